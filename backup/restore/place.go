package restore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// Names of our own on disk. A folder under work is called after its place and this,
// with a random end. The guard is called as etcd's logs are, so that etcd takes it for
// one, and is none, so that it cannot read it.
const (
	workMark  = ".etcdctl-plus-restore-"
	markFile  = "restore-id" // in a work folder, and in a data folder whose log is not in place yet
	guardName = "restore-unfinished.wal"
	// magic is what markFile and guardName begin with; the id of the restore follows.
	magic = "etcdctl-plus restore, not finished; remove this with the next restore\n"
)

// OccupiedError says that a place is taken. It wraps fs.ErrExist.
type OccupiedError struct {
	Path string
	What string
}

func (e *OccupiedError) Error() string { return fmt.Sprintf("%s %s", e.Path, e.What) }

// Unwrap makes errors.Is(err, fs.ErrExist) true.
func (e *OccupiedError) Unwrap() error { return fs.ErrExist }

// InUseError says that another process works in a place. It wraps keyspace.ErrLocked.
type InUseError struct {
	Path string
	Who  string
}

func (e *InUseError) Error() string { return fmt.Sprintf("%s is in use by %s", e.Path, e.Who) }

// Unwrap makes errors.Is(err, keyspace.ErrLocked) true.
func (e *InUseError) Unwrap() error { return keyspace.ErrLocked }

// places looks whether both places are free. With sweep, what killed restores have
// left there is removed; without, it only does not count.
func (p *Plan) places(ctx context.Context, sweep bool) error {
	stale, err := p.finishKilled(ctx, sweep)
	if err != nil || stale {
		return err
	}
	if err := p.sweepDir(filepath.Dir(p.DataDir), workPrefix(p.DataDir), sweep); err != nil {
		return err
	}
	if err := p.free(ctx, p.DataDir, sweep); err != nil {
		return err
	}
	if p.o.WALDir == "" {
		return nil
	}
	return p.free(ctx, p.WALDir, sweep)
}

// workPrefix is how work folders beside a place begin.
func workPrefix(place string) string { return "." + filepath.Base(place) + workMark }

// free looks at one place: nothing, or an empty folder.
func (p *Plan) free(ctx context.Context, dir string, sweep bool) error {
	st, err := os.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("restore: %w", err)
	case st.Mode()&fs.ModeSymlink != 0:
		return &OccupiedError{dir, "is a symbolic link, which is not followed: name the folder itself"}
	case !st.IsDir():
		return &OccupiedError{dir, "exists and is no folder"}
	}
	if err := p.sweepDir(dir, workMark, sweep); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), workMark) && !sweep && p.dead(filepath.Join(dir, e.Name())) {
			continue // Run will remove it
		}
		if _, ok := isMark(filepath.Join(dir, e.Name())); ok && e.Name() == guardName && !sweep {
			continue
		}
		return taken(ctx, dir)
	}
	return nil
}

// taken tells a folder in use from one that is merely not empty.
func taken(ctx context.Context, dir string) error {
	src, err := dbfile.Open(ctx, dir, dbfile.Options{NoWAL: true, IgnoreChecksum: true})
	if err == nil {
		src.Close()
	}
	if errors.Is(err, keyspace.ErrLocked) {
		return &InUseError{dir, "another process, probably a running etcd"}
	}
	logs, _ := filepath.Glob(filepath.Join(dir, "*.wal")) // the pattern is well formed
	for _, l := range logs {
		f, err := fileutil.TryLockFile(l, os.O_WRONLY, 0o600)
		if errors.Is(err, fileutil.ErrLocked) {
			return &InUseError{dir, "another process, probably a running etcd"}
		}
		if err == nil {
			f.Close()
		}
	}
	return &OccupiedError{dir, "exists and is not empty"}
}

// work is a folder in which something is built. A lock on it tells that its process
// lives.
type work struct {
	dir  string
	lock io.Closer
}

// newWork makes a work folder in parent, which must be there.
func newWork(parent, prefix, id string) (*work, error) {
	for tries := 0; ; tries++ {
		dir := filepath.Join(parent, prefix+randomName())
		err := os.Mkdir(dir, 0o700)
		if errors.Is(err, fs.ErrExist) && tries < 100 {
			continue
		}
		if err != nil {
			return nil, err
		}
		lock, err := lockFolder(dir)
		if err != nil {
			return nil, errors.Join(err, os.Remove(dir))
		}
		if err := writeMark(filepath.Join(dir, markFile), id); err != nil {
			// A sweeper may have taken a folder that had no lock yet.
			lock.Close()
			if rerr := os.Remove(dir); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
				err = errors.Join(err, rerr)
			}
			if errors.Is(err, fs.ErrNotExist) && tries < 100 {
				continue
			}
			return nil, err
		}
		return &work{dir: dir, lock: lock}, nil
	}
}

func randomName() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// remove takes the folder away and lets go of it.
func (w *work) remove() error {
	err := removeOwn(w.dir, workLayout(), false)
	return errors.Join(err, w.lock.Close())
}

// writeMark writes a file that says whose work a folder is.
func writeMark(name, id string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(magic + id + "\n")
	return errors.Join(err, f.Sync(), f.Close())
}

// isMark tells whether a file is one that writeMark wrote, or had begun to write, and
// returns the id in it; empty: it was only begun.
func isMark(name string) (id string, ok bool) {
	st, err := os.Lstat(name)
	if err != nil || !st.Mode().IsRegular() || st.Size() > int64(len(magic))+100 {
		return "", false
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return "", false
	}
	id, whole := strings.CutPrefix(string(b), magic)
	if !whole {
		return "", strings.HasPrefix(magic, string(b))
	}
	id, whole = strings.CutSuffix(id, "\n")
	if !whole {
		id = ""
	}
	return id, true
}

// dead tells whether a folder is a work folder whose process is gone. One that is
// younger than its lock could be has no mark yet and is not dead.
func (p *Plan) dead(dir string) bool {
	st, err := os.Lstat(dir)
	if !canLock || err != nil || !st.IsDir() || !mine(st) {
		return false
	}
	lock, err := lockFolder(dir)
	if err != nil {
		return false
	}
	defer lock.Close()
	return checkOwn(dir, workLayout()) == nil
}

// sweepDir removes the work folders of killed restores from a folder. One that is at
// work there is an *InUseError.
func (p *Plan) sweepDir(dir, prefix string, sweep bool) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || !canLock {
		return nil
	}
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		if !strings.HasPrefix(e.Name(), prefix) || !e.IsDir() || len(e.Name()) != len(prefix)+16 {
			continue
		}
		if st, err := os.Lstat(name); err != nil || !mine(st) {
			continue // another user's, or gone
		}
		lock, err := lockFolder(name)
		if errors.Is(err, errFolderLocked) {
			return &InUseError{dir, "another restore, in " + name}
		}
		if err != nil {
			continue // gone meanwhile, or not to be opened: not ours
		}
		if sweep {
			if removeOwn(name, workLayout(), false) == nil { // what is not ours stays, and is found to be in the way where it is
				p.Swept = append(p.Swept, name)
			}
		}
		lock.Close()
	}
	return nil
}

// finishKilled takes back what a restore has put into place that was killed before its
// log came into place, too: the guard, and the data folder that carries the same id. A
// data folder that holds anything else than what a restore writes is left alone.
// Without sweep it only tells, by stale, that it would.
func (p *Plan) finishKilled(ctx context.Context, sweep bool) (stale bool, err error) {
	if p.o.WALDir == "" || !canLock {
		return false, nil
	}
	guard, mark := filepath.Join(p.WALDir, guardName), filepath.Join(p.DataDir, markFile)
	id, ok := isMark(guard)
	if !ok {
		return false, nil
	}
	for _, dir := range []string{p.WALDir, p.DataDir} {
		if err := p.sweepDir(dir, workMark, sweep); err != nil {
			return false, err
		}
	}
	if markID, ok := isMark(mark); ok && id != "" && markID == id {
		if err := p.placedAlone(ctx); err != nil {
			return false, err
		}
		if !sweep {
			return true, nil
		}
		if err := removeOwn(p.DataDir, placedLayout(), true); err != nil {
			return false, fmt.Errorf("remove what a killed restore has left: %w", err)
		}
		p.Swept = append(p.Swept, p.DataDir)
	}
	if sweep {
		if err := os.Remove(guard); err != nil {
			return false, fmt.Errorf("remove what a killed restore has left: %w", err)
		}
	}
	return false, nil
}

// placedAlone tells whether both places hold nothing but what a restore left: no log has
// come into place, and no etcd has written to the data.
func (p *Plan) placedAlone(ctx context.Context) error {
	for dir, layout := range map[string]*regexp.Regexp{p.DataDir: placedLayout(), p.WALDir: guardLayout()} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return fmt.Errorf("restore: %w", err)
		}
		for _, e := range entries {
			own := layout.MatchString(e.Name())
			if own && e.IsDir() && !strings.HasPrefix(e.Name(), workMark) {
				own = dir == p.DataDir && checkOwn(filepath.Join(dir, e.Name()), memberLayout()) == nil
			}
			if !own {
				return taken(ctx, dir)
			}
		}
	}
	return nil
}

// What a restore writes into a work folder, and into a data folder.
var (
	workLayout = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(` + markFile + `|data|data/` + markFile + `|(data/)?member|(data/)?member/snap|(data/)?member/snap/(db|[0-9a-f-]+\.snap)|((data/member/)?wal(\.tmp)?|member/wal)(/[0-9a-f-]+\.(wal|tmp)|/[0-9]+\.tmp)?)$`)
	})
	placedLayout = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(` + markFile + `|member|member/snap|member/snap/(db|[0-9a-f-]+\.snap)|` + regexp.QuoteMeta(workMark) + `[0-9a-f]{16})$`)
	})
	memberLayout = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(snap|snap/(db|[0-9a-f-]+\.snap))$`)
	})
	guardLayout = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(` + regexp.QuoteMeta(guardName) + `|` + regexp.QuoteMeta(workMark) + `[0-9a-f]{16})$`)
	})
)

// checkOwn tells whether a folder holds nothing but what layout names: regular files
// and folders, no links.
func checkOwn(dir string, layout *regexp.Regexp) error {
	return fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name == ".":
			return nil
		case !d.IsDir() && !d.Type().IsRegular(), !layout.MatchString(name):
			return fmt.Errorf("%s in %s is not of a restore", name, dir)
		}
		return nil
	})
}

// removeOwn removes what is in a folder that holds nothing but what layout names, and
// unless keep is set the folder; of any other it removes nothing. It stays inside dir
// whatever happens to the names meanwhile.
func removeOwn(dir string, layout *regexp.Regexp, keep bool) error {
	if err := checkOwn(dir, layout); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	var names []string
	err = fs.WalkDir(root.FS(), ".", func(name string, _ fs.DirEntry, err error) error {
		if err == nil && name != "." {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		return err
	}
	// The mark goes last: what is left of a removal that was cut off is still ours.
	for i := len(names) - 1; i >= 0; i-- {
		if path.Base(names[i]) == markFile && path.Dir(names[i]) == "." {
			continue
		}
		if err := root.Remove(filepath.FromSlash(names[i])); err != nil {
			return err
		}
	}
	if err := root.Remove(markFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if keep {
		return nil
	}
	return os.Remove(dir)
}

// syncTree syncs every file and folder below dir, and dir.
func syncTree(dir string) error {
	return filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return syncPath(name)
	})
}

func syncPath(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	if err := errors.Join(ignoreUnsupported(f.Sync()), f.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", name, err)
	}
	return nil
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}
