package backup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/etcdctl-plus/etcdctl-plus/backup/place"
)

// ErrExists says that a name where something is to be written is taken.
var ErrExists = errors.New("it exists already")

// ErrNoFolder says that the folder where something is to be written is not there.
var ErrNoFolder = errors.New("its folder is not there")

// TargetError says why nothing can be written under a name. It wraps ErrExists where
// something is there.
type TargetError struct {
	Path   string
	Reason string // what is there, such as "a folder"
	Err    error
}

func (e *TargetError) Error() string {
	return fmt.Sprintf("write %s: %v, %s", e.Path, e.Err, e.Reason)
}

// Unwrap returns what it is about.
func (e *TargetError) Unwrap() error { return e.Err }

// target is a file on its way to its name. Until commit nothing is under that name that
// was not there before.
type target struct {
	path  string
	force bool // replace a regular file
	lock  *place.Lock
	f     *os.File
}

// newTarget locks a name and makes a temporary file beside it. Temporary files of
// writers that died are removed. Close it with abandon, also after commit.
func newTarget(path string, force bool) (_ *target, err error) {
	t := &target{path: path, force: force}
	if err := t.free(); err != nil {
		return nil, err
	}
	dir, base := filepath.Split(path)
	lock := filepath.Join(dir, "."+base+".etcdctl-plus.lock")
	if t.lock, err = place.Take(lock); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil, &TargetError{Path: lock, Reason: "and is no file that could be locked", Err: ErrExists}
		}
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			t.abandon()
		}
	}()
	if err := t.free(); err != nil { // whoever held the lock before may have written it
		return nil, err
	}
	place.Sweep(path)
	if t.f, err = place.Temp(path); err != nil {
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	return t, nil
}

// free tells whether path may be written.
func (t *target) free() error {
	st, err := os.Lstat(t.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Stat(filepath.Dir(t.path)); errors.Is(err, fs.ErrNotExist) {
			return &TargetError{Path: t.path, Reason: filepath.Dir(t.path), Err: ErrNoFolder}
		}
		return nil
	case err != nil:
		return fmt.Errorf("write %s: %w", t.path, err)
	case st.IsDir():
		return &TargetError{Path: t.path, Reason: "a folder", Err: ErrExists}
	case !st.Mode().IsRegular():
		return &TargetError{Path: t.path, Reason: "no regular file", Err: ErrExists}
	case !t.force:
		return &TargetError{Path: t.path, Reason: "a file", Err: ErrExists}
	}
	return nil
}

// temp is the path of the temporary file.
func (t *target) temp() string { return t.f.Name() }

// commit makes the content last, then the name.
func (t *target) commit() error {
	if err := place.SyncFile(t.temp()); err != nil {
		return fmt.Errorf("write %s: %w", t.path, err)
	}
	rename := place.Rename
	if t.force {
		if err := t.free(); err != nil {
			return err
		}
		rename = os.Rename
	}
	if err := rename(t.temp(), t.path); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return &TargetError{Path: t.path, Reason: "a file", Err: ErrExists}
		}
		return fmt.Errorf("write %s: %w", t.path, err)
	}
	err := t.f.Close()
	t.f = nil
	if err = errors.Join(err, place.SyncDir(filepath.Dir(t.path))); err != nil {
		return fmt.Errorf("write %s: %w", t.path, err)
	}
	return nil
}

// abandon removes what commit did not place, and gives the lock back. What goes wrong
// with that leaves a file that the next writer sweeps.
func (t *target) abandon() {
	if t.f != nil {
		_ = os.Remove(t.temp())
		_ = t.f.Close()
		t.f = nil
	}
	if t.lock != nil {
		_ = t.lock.Release()
		t.lock = nil
	}
}
