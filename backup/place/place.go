// Package place puts files and folders under their names for good: complete, synced to
// the disk, and without replacing what is there.
package place

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrBusy says that another process holds a lock.
var ErrBusy = errors.New("in use by another process")

// SyncDir makes names in a folder last. File systems that cannot sync a folder are
// forgiven.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if unsyncable(err) {
		err = nil
	}
	return errors.Join(err, d.Close())
}

// SyncFile makes the content of a file last.
func SyncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Lock is a lock that other processes respect, on a file that is there as long as the
// lock is held, or was when its holder died.
type Lock struct {
	f    *os.File
	path string
}

// Take takes the lock at path, or fails with ErrBusy. A lock file whose holder died is
// taken over. Something else under that name, or a symbolic link, is an error.
func Take(path string) (*Lock, error) {
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|noFollow, 0o600)
		if err != nil {
			if st, lerr := os.Lstat(path); lerr == nil && !st.Mode().IsRegular() {
				err = &fs.PathError{Op: "lock", Path: path, Err: fs.ErrExist}
			}
			return nil, err
		}
		st, err := f.Stat()
		if err != nil {
			f.Close()
			return nil, err
		}
		free, err := TryLock(f)
		if err != nil || !free {
			f.Close()
			if err == nil {
				err = ErrBusy
			}
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		// Whoever held it before may have removed the file meanwhile.
		now, err := os.Lstat(path)
		if err == nil && os.SameFile(st, now) {
			return &Lock{f: f, path: path}, nil
		}
		f.Close()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
}

// Release removes the file and gives the lock back.
func (l *Lock) Release() error {
	if removeBeforeClose {
		return errors.Join(os.Remove(l.path), l.f.Close())
	}
	return errors.Join(l.f.Close(), os.Remove(l.path))
}

// Temp returns a new empty file of mode 0600, whatever the umask, that nobody else has,
// beside path.
func Temp(path string) (*os.File, error) {
	dir, base := filepath.Split(path)
	f, err := os.CreateTemp(filepath.Clean(dir+"."), tempPattern(base)) // O_EXCL, which follows no link
	if err != nil {
		return nil, err
	}
	if err := f.Chmod(0o600); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	return f, nil
}

func tempPattern(base string) string { return "." + base + ".etcdctl-plus-*.tmp" }

// Sweep removes temporary files that Temp made for path. It is for who holds a lock that
// every writer of path takes: then their writers are gone. Nothing else is touched, and
// what cannot be removed stays.
func Sweep(path string) {
	dir, base := filepath.Split(path)
	dir = filepath.Clean(dir + ".")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if ok, err := filepath.Match(tempPattern(quoteMeta(base)), e.Name()); err != nil || !ok || !e.Type().IsRegular() {
			continue
		}
		_ = os.Remove(filepath.Join(dir, e.Name()))
	}
}

// quoteMeta makes filepath.Match take a name as it is.
func quoteMeta(s string) string {
	var b []byte
	for i := range len(s) {
		switch s[i] {
		case '*', '?', '[', '\\':
			b = append(b, '\\')
		}
		b = append(b, s[i])
	}
	return string(b)
}

// byLink gives a file a second name, which fails when the name is taken, and takes the
// first one away.
func byLink(from, to string) error {
	if err := os.Link(from, to); err != nil {
		return err
	}
	return os.Remove(from)
}
