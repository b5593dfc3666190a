package restore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
)

// Run makes what Prepare has planned. When it fails, or ctx ends, nothing of it is left;
// when the process is killed nothing is left that etcd would start on.
func (p *Plan) Run(ctx context.Context) error {
	if err := p.places(ctx, true); err != nil {
		return err
	}
	b := &build{p: p, id: randomName()}
	err := b.run(ctx)
	if err != nil {
		return errors.Join(fmt.Errorf("restore: %w", err), b.undo())
	}
	p.Done = true
	p.Seconds = time.Since(p.started).Seconds()
	return nil
}

// build is one restore under way, and what it has made so far.
type build struct {
	p    *Plan
	id   string
	made []string // folders above the places, from the outside in

	data    *work // holds data/member
	inside  bool  // it lies in the data folder, which was there
	placed  bool  // the data is in its place
	marked  bool  // the data folder has our mark
	log     *work // of a separate write-ahead log
	guarded bool
	// between is called when the data is in place and the log is not, by tests.
	between func() error
}

func (b *build) run(ctx context.Context) error {
	if err := b.makeWork(); err != nil {
		return err
	}
	member := filepath.Join(b.data.dir, "data", "member")
	snap := filepath.Join(member, "snap")
	wal := filepath.Join(member, "wal")
	if b.log != nil {
		wal = filepath.Join(b.log.dir, "wal")
	}
	if err := os.MkdirAll(snap, 0o700); err != nil {
		return err
	}
	db := filepath.Join(snap, "db")
	if err := b.p.writeDatabase(ctx, db); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := b.p.writeLog(wal, snap); err != nil {
		return err
	}
	if err := b.p.checkBuilt(ctx, db); err != nil {
		return err
	}
	if err := syncTree(filepath.Join(b.data.dir, "data")); err != nil {
		return err
	}
	if b.log != nil {
		if err := syncTree(b.log.dir); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	// From here on a signal waits: it is a matter of milliseconds.
	if b.log == nil {
		return errors.Join(b.placeData(), b.tidy())
	}
	return b.placeBoth(wal)
}

// makeWork makes the work folders.
func (b *build) makeWork() (err error) {
	p := b.p
	parent, prefix := filepath.Dir(p.DataDir), workPrefix(p.DataDir)
	if _, err := os.Lstat(p.DataDir); err == nil {
		// An empty folder keeps its owner and mode, and may be a mount point.
		b.inside, parent, prefix = true, p.DataDir, workMark
	}
	if err := b.makeAbove(parent); err != nil {
		return err
	}
	if b.data, err = newWork(parent, prefix, b.id); err != nil {
		return err
	}
	if p.o.WALDir == "" {
		return nil
	}
	if err := b.makeAbove(p.WALDir); err != nil {
		return err
	}
	if err := writeMark(filepath.Join(p.WALDir, guardName), b.id); err != nil {
		return err
	}
	b.guarded = true
	if err := syncPath(p.WALDir); err != nil {
		return err
	}
	b.log, err = newWork(p.WALDir, workMark, b.id)
	return err
}

// makeAbove makes a folder and those above it, and remembers which.
func (b *build) makeAbove(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := b.makeAbove(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	b.made = append(b.made, dir)
	return syncPath(filepath.Dir(dir))
}

// placeData puts the data into its place.
func (b *build) placeData() error {
	built := filepath.Join(b.data.dir, "data")
	to, above := b.p.DataDir, filepath.Dir(b.p.DataDir)
	if b.inside {
		built, to, above = filepath.Join(built, "member"), filepath.Join(to, "member"), to
	}
	if err := renameNew(built, to); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return &OccupiedError{to, "was made by another process meanwhile"}
		}
		return err
	}
	b.placed = true
	return syncPath(above)
}

// placeBoth puts data and a separate log into their places. The guard in the log's
// folder keeps etcd from starting until both are there.
func (b *build) placeBoth(wal string) error {
	mark := filepath.Join(b.p.DataDir, markFile)
	built := mark
	if !b.inside {
		built = filepath.Join(b.data.dir, "data", markFile)
	}
	if err := writeMark(built, b.id); err != nil {
		return err
	}
	b.marked = b.inside
	if err := syncPath(filepath.Dir(built)); err != nil {
		return err
	}
	if err := b.placeData(); err != nil {
		return err
	}
	b.marked = true
	if b.between != nil {
		if err := b.between(); err != nil {
			return err
		}
	}
	logs, err := os.ReadDir(wal)
	if err != nil {
		return err
	}
	if len(logs) != 1 {
		return fmt.Errorf("the new write-ahead log has %d files", len(logs))
	}
	if err := renameNew(filepath.Join(wal, logs[0].Name()), filepath.Join(b.p.WALDir, logs[0].Name())); err != nil {
		return err
	}
	// It is done: what follows only takes away what is not needed any more.
	b.placed, b.marked, b.guarded = false, false, false
	err = errors.Join(syncPath(b.p.WALDir), os.Remove(filepath.Join(b.p.WALDir, guardName)), os.Remove(mark), b.tidy())
	if err != nil {
		return fmt.Errorf("the folders are in place, but: %w", err)
	}
	return errors.Join(syncPath(b.p.WALDir), syncPath(b.p.DataDir))
}

// tidy removes the work folders.
func (b *build) tidy() error {
	var errs []error
	for _, w := range []**work{&b.log, &b.data} {
		if *w != nil {
			errs = append(errs, (*w).remove())
			*w = nil
		}
	}
	return errors.Join(errs...)
}

// undo takes back what was made.
func (b *build) undo() error {
	var errs []error
	errs = append(errs, b.tidy())
	if b.p.o.WALDir != "" && (b.placed || b.marked) {
		errs = append(errs, removeOwn(b.p.DataDir, placedLayout(), true))
		if !b.inside {
			errs = append(errs, os.Remove(b.p.DataDir))
		}
	}
	if b.guarded {
		errs = append(errs, os.Remove(filepath.Join(b.p.WALDir, guardName)))
	}
	for i := len(b.made) - 1; i >= 0; i-- {
		if err := os.Remove(b.made[i]); err != nil {
			break // somebody else uses it by now
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	return nil
}

// checkBuilt reads back what was written, as far as it was changed on the way.
func (p *Plan) checkBuilt(ctx context.Context, db string) (err error) {
	src, err := dbfile.Open(ctx, db, dbfile.Options{})
	if err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	info, err := src.Info(ctx)
	if err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	members, err := src.Members(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("read back: %w", err)
	case info.Revision != p.NewRev && !p.Rebuilt:
		return fmt.Errorf("read back: the restored database is at revision %d and should be at %d", info.Revision, p.NewRev)
	case len(members) != len(p.Members):
		return fmt.Errorf("read back: the restored database has %d members and should have %d", len(members), len(p.Members))
	}
	return nil
}
