package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// folder keeps objects as files. Everything goes through an os.Root, so neither a
// name nor a symbolic link leads out of it.
type folder struct {
	root *os.Root
	path string

	mu    sync.Mutex
	swept map[string]bool // folders whose leftovers were removed
}

func openFolder(where string, o Options) (*folder, error) {
	where = filepath.Clean(where)
	if o.Create {
		if err := os.MkdirAll(where, 0o700); err != nil {
			return nil, &Error{Op: "open", Store: where, Err: err}
		}
	}
	root, err := os.OpenRoot(where)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &Error{Op: "open", Store: where, Kind: ErrConfig, Err: errText("no such folder")}
	case err != nil:
		if i, serr := os.Stat(where); serr == nil && !i.IsDir() {
			return nil, &Error{Op: "open", Store: where, Kind: ErrConfig, Err: errText("it is no folder")}
		}
		var path *fs.PathError
		if errors.As(err, &path) {
			err = path.Err // the path is in the message already
		}
		return nil, &Error{Op: "open", Store: where, Err: err}
	}
	return &folder{root: root, path: where, swept: map[string]bool{}}, nil
}

func (s *folder) String() string { return s.path }

func (s *folder) Close() error { return s.root.Close() }

func (s *folder) Put(ctx context.Context, name string, src io.ReaderAt, size int64, sum [32]byte, o PutOptions) error {
	return fail(ctx, "put", s.path, name, s.put(ctx, name, src, size, sum, o))
}

func (s *folder) put(ctx context.Context, name string, src io.ReaderAt, size int64, sum [32]byte, o PutOptions) (err error) {
	if err := CheckName(name); err != nil {
		return err
	}
	if err := s.free(name, o.Replace); err != nil { // before the work
		return err
	}
	dir, base := path.Split(name)
	d, err := s.open(dir)
	if err != nil {
		return err
	}
	defer d.close()
	tmp, err := d.create()
	if err != nil {
		return err
	}
	defer func() {
		tmp.file.Close()
		if err != nil {
			_ = d.root.Remove(tmp.name) // the error that brought us here says more
		}
	}()
	s.sweep(dir, d, tmp)
	if err := copyChecked(ctx, tmp.file, src, size, sum, o.Progress); err != nil {
		return err
	}
	if err := tmp.file.Sync(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if o.Replace {
		if err := s.free(name, true); err != nil {
			return err
		}
		err = d.root.Rename(tmp.name, base)
	} else {
		err = d.place(tmp.name, base)
	}
	if err != nil {
		return err
	}
	return d.sync()
}

// free tells whether an object can be put under name: nothing is there, or a
// regular file that may be replaced.
func (s *folder) free(name string, replace bool) error {
	i, err := s.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case isNotDir(err):
		return asf(ErrExists, "its folder is a file")
	case err != nil:
		return err
	case !i.Mode().IsRegular():
		return asf(ErrExists, "it is %s", fileType(i.Mode()))
	case !replace:
		return ErrExists
	}
	return nil
}

func fileType(m fs.FileMode) string {
	switch m.Type() {
	case fs.ModeDir:
		return "a folder"
	case fs.ModeSymlink:
		return "a symbolic link"
	case fs.ModeNamedPipe:
		return "a named pipe"
	case fs.ModeSocket:
		return "a socket"
	}
	return "no regular file"
}

func copyChecked(ctx context.Context, dst io.Writer, src io.ReaderAt, size int64, sum [32]byte, progress func(int64)) error {
	h := sha256.New()
	buf := make([]byte, 1<<20)
	for off := int64(0); off < size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := int(min(int64(len(buf)), size-off))
		if err := readFull(src, buf[:n], off); err != nil {
			return err
		}
		h.Write(buf[:n])
		if _, err := dst.Write(buf[:n]); err != nil {
			return err
		}
		off += int64(n)
		if progress != nil {
			progress(off)
		}
	}
	return sameSum(h.Sum(nil), sum)
}

// readFull fills buf from off of the source, which may not end before.
func readFull(src io.ReaderAt, buf []byte, off int64) error {
	n, err := src.ReadAt(buf, off)
	if n == len(buf) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read what is to be stored, at byte %d: %w", off+int64(n), err)
}

func sameSum(got []byte, want [32]byte) error {
	if string(got) == string(want[:]) {
		return nil
	}
	return &ChecksumError{What: "the SHA-256 of what is to be stored", Want: hex.EncodeToString(want[:]), Got: hex.EncodeToString(got)}
}

func (s *folder) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	f, err := s.get(name)
	if err != nil {
		return nil, fail(ctx, "get", s.path, name, err)
	}
	return f, nil
}

func (s *folder) get(name string) (*os.File, error) {
	before, err := s.stat(name)
	if err != nil {
		return nil, err
	}
	f, err := s.root.Open(name)
	if err != nil {
		return nil, absent(err)
	}
	// It may have become something else since it was looked at.
	i, err := f.Stat()
	if err == nil && !os.SameFile(i, before) && !i.Mode().IsRegular() {
		err = ErrNotExist
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// absent gives an error of the file system its kind.
func absent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNotExist
	}
	return err
}

func (s *folder) Stat(ctx context.Context, name string) (Object, error) {
	i, err := s.stat(name)
	if err != nil {
		return Object{}, fail(ctx, "stat", s.path, name, err)
	}
	return Object{Name: name, Bytes: i.Size(), ModTime: i.ModTime()}, nil
}

func (s *folder) stat(name string) (fs.FileInfo, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	i, err := s.root.Lstat(name)
	if err != nil {
		if isNotDir(err) {
			return nil, ErrNotExist
		}
		return nil, absent(err)
	}
	if !i.Mode().IsRegular() {
		return nil, ErrNotExist
	}
	return i, nil
}

func (s *folder) Delete(ctx context.Context, name string) error {
	return fail(ctx, "delete", s.path, name, s.delete(name))
}

func (s *folder) delete(name string) error {
	if _, err := s.stat(name); err != nil {
		return err
	}
	if err := s.root.Remove(name); err != nil {
		return absent(err)
	}
	return syncDir(s.root, path.Dir(name))
}

func (s *folder) List(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		dir := ""
		if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
			dir = prefix[:i]
			if CheckName(dir) != nil {
				return // no object has such a name
			}
		}
		s.walk(ctx, dir, prefix, yield)
	}
}

// walk yields what is below dir and begins with prefix. A folder sorts as its name
// with the "/" that its objects have, so the whole is in the order of the names.
func (s *folder) walk(ctx context.Context, dir, prefix string, yield func(Object, error) bool) bool {
	entries, err := s.entries(dir)
	if err != nil {
		if dir != "" && (errors.Is(err, fs.ErrNotExist) || isNotDir(err)) {
			return true
		}
		yield(Object{}, fail(ctx, "list", s.path, dir, err))
		return false
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			yield(Object{}, fail(ctx, "list", s.path, "", err))
			return false
		}
		name := path.Join(dir, strings.TrimSuffix(e, "/"))
		if strings.HasSuffix(e, "/") {
			if p := name + "/"; !strings.HasPrefix(p, prefix) && !strings.HasPrefix(prefix, p) {
				continue
			}
			if !s.walk(ctx, name, prefix, yield) {
				return false
			}
			continue
		}
		if !strings.HasPrefix(name, prefix) || CheckName(name) != nil {
			continue
		}
		i, err := s.root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			yield(Object{}, fail(ctx, "list", s.path, name, err))
			return false
		}
		if !i.Mode().IsRegular() {
			continue
		}
		if !yield(Object{Name: name, Bytes: i.Size(), ModTime: i.ModTime()}, nil) {
			return false
		}
	}
	return true
}

// Strangers is a walk of its own: what it yields is not listed.
func (s *folder) Strangers(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) { s.strangers(ctx, ".", yield) }
}

func (s *folder) strangers(ctx context.Context, dir string, yield func(string, error) bool) bool {
	list, err := s.read(dir)
	if errors.Is(err, fs.ErrNotExist) || isNotDir(err) {
		return true // it went meanwhile
	}
	if err != nil {
		yield("", fail(ctx, "list", s.path, dir, err))
		return false
	}
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range list {
		if err := ctx.Err(); err != nil {
			yield("", fail(ctx, "list", s.path, "", err))
			return false
		}
		name := path.Join(dir, e.Name())
		switch {
		case e.IsDir():
			if !s.strangers(ctx, name, yield) {
				return false
			}
			continue
		case strings.HasPrefix(e.Name(), ours):
			continue
		case e.Type().IsRegular() && CheckName(name) == nil:
			continue
		}
		what := "no name of an object"
		if !e.Type().IsRegular() {
			what = fileType(e.Type())
		}
		if !yield(fmt.Sprintf("%s (%s)", name, what), nil) {
			return false
		}
	}
	if len(list) == 0 && dir != "." {
		return yield(dir+"/ (an empty folder)", nil)
	}
	return true
}

func (s *folder) read(dir string) ([]fs.DirEntry, error) {
	f, err := s.root.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.ReadDir(-1)
}

func (s *folder) entries(dir string) ([]string, error) {
	if dir == "" {
		dir = "."
	}
	list, err := s.read(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(list))
	for _, e := range list {
		switch {
		case e.IsDir():
			names = append(names, e.Name()+"/")
		case e.Type().IsRegular():
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// subfolder is one folder of the store in which something is written.
type subfolder struct {
	root *os.Root
	file *os.File // the folder itself, for renameat2 and fsync
}

// open opens the folder that dir names, "" or with a "/" at its end, and makes it.
func (s *folder) open(dir string) (*subfolder, error) {
	dir = strings.TrimSuffix(dir, "/")
	if dir == "" {
		dir = "."
	} else if err := s.mkdir(dir); err != nil {
		return nil, err
	}
	// Opening a fifo would wait for its other end.
	if i, err := s.root.Stat(dir); err != nil {
		return nil, err
	} else if !i.IsDir() {
		return nil, asf(ErrExists, "its folder is a file")
	}
	root, err := s.root.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	f, err := root.Open(".")
	if err != nil {
		root.Close()
		return nil, err
	}
	return &subfolder{root, f}, nil
}

func (s *folder) mkdir(dir string) error {
	if i, err := s.root.Stat(dir); err == nil && i.IsDir() {
		return nil
	}
	for i := 0; i <= len(dir); i++ {
		if i < len(dir) && dir[i] != '/' {
			continue
		}
		switch err := s.root.Mkdir(dir[:i], 0o700); {
		case errors.Is(err, fs.ErrExist):
			continue
		case err != nil:
			return err
		}
		if err := s.root.Chmod(dir[:i], 0o700); err != nil { // whatever the umask
			return err
		}
		if err := syncDir(s.root, path.Dir(dir[:i])); err != nil {
			return err
		}
	}
	return nil
}

func (d *subfolder) close() {
	d.file.Close()
	d.root.Close()
}

func (d *subfolder) sync() error { return ignoreUnsyncable(d.file.Sync()) }

func syncDir(root *os.Root, dir string) error {
	f, err := root.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return ignoreUnsyncable(f.Sync())
}

// part is a file that is being written under a temporary name. Its lock, which
// ends with the process, says that its writer lives.
type part struct {
	name string
	file *os.File
}

func (d *subfolder) create() (*part, error) {
	for {
		name := partName()
		f, err := d.root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, err
		}
		if err := f.Chmod(0o600); err != nil { // whatever the umask
			f.Close()
			_ = d.root.Remove(name) // made a moment ago
			return nil, err
		}
		// Until it is locked it looks like a dead writer's: a sweep can have its lock,
		// or have removed it. Where there are no locks, age tells, and it is free.
		if free, _ := tryLock(f); free && d.holds(name, f) {
			return &part{name, f}, nil
		}
		f.Close()
		_ = d.root.Remove(name) // ours, if it is there
	}
}

// holds tells whether the file called name is f.
func (d *subfolder) holds(name string, f *os.File) bool {
	a, err := d.root.Lstat(name)
	if err != nil {
		return false
	}
	b, err := f.Stat()
	return err == nil && os.SameFile(a, b)
}

// foreignAge is how old a temporary file of another host must be to count as dead:
// that host's locks may not be seen here, but a living writer writes.
const foreignAge = 24 * time.Hour

// sweep removes temporary files whose writers are dead, once for each folder.
// What cannot be removed is left for the next run.
func (s *folder) sweep(dir string, d *subfolder, mine *part) {
	s.mu.Lock()
	done := s.swept[dir]
	s.swept[dir] = true
	s.mu.Unlock()
	if done {
		return
	}
	now, err := mine.file.Stat() // the file system's clock
	if err != nil {
		return
	}
	entries, err := d.file.ReadDir(-1)
	if err != nil {
		return
	}
	for _, e := range entries {
		host, ok := partOf(e.Name())
		if !ok || e.Name() == mine.name || !e.Type().IsRegular() {
			continue
		}
		d.sweepOne(e.Name(), host == hostTag(), now.ModTime())
	}
}

func (d *subfolder) sweepOne(name string, local bool, now time.Time) {
	f, err := d.root.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer f.Close()
	i, err := f.Stat()
	if err != nil || !i.Mode().IsRegular() || !d.holds(name, f) {
		return
	}
	free, err := tryLock(f)
	if !free || (err != nil || !local) && now.Sub(i.ModTime()) < foreignAge {
		return
	}
	_ = d.root.Remove(name) // see sweep
}
