// Package datadir works on the data folder of an etcd that does not run: it makes the
// database smaller, and changes the version of its layout.
//
// The database is never changed in its place. A new one is made beside it, compared with
// it, synced, and takes its name in one step; whatever goes wrong before leaves what was
// there. Meanwhile the old one is locked, so that no etcd starts on it.
package datadir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"
	boltErrors "go.etcd.io/bbolt/errors"

	"github.com/etcdctl-plus/etcdctl-plus/backup"
	"github.com/etcdctl-plus/etcdctl-plus/backup/place"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// DB is where a data folder has its database.
func DB(dir string) string { return filepath.Join(dir, "member", "snap", "db") }

// folder is a data folder whose database is locked.
type folder struct {
	path string
	old  *bolt.DB
	mode fs.FileInfo
	lock *place.Lock
}

// lockFolder checks the database down to its records, since bbolt trusts its files, and locks it.
// It waits up to timeout for another process; 0: as long as it takes.
func lockFolder(ctx context.Context, dir string, timeout time.Duration) (*folder, error) {
	path := DB(dir)
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s is no data folder of etcd: %w", dir, err)
	case err != nil:
		return nil, err
	case !st.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	lock, err := place.Take(path + ".etcdctl-plus.lock")
	if err != nil {
		return nil, err
	}
	f := &folder{path: path, mode: st, lock: lock}
	place.Sweep(path)
	if err := f.check(ctx, timeout); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

func (f *folder) check(ctx context.Context, timeout time.Duration) error {
	free, err := awaitFree(ctx, f.path, timeout)
	if err != nil {
		return err
	}
	if !free {
		return fmt.Errorf("%s: %w", f.path, place.ErrBusy)
	}
	var found []backup.Finding
	r, err := backup.Verify(ctx, f.path, backup.VerifyOptions{Level: backup.LevelRecords, Report: func(f backup.Finding) { found = append(found, f) }})
	if err != nil {
		return err
	}
	if r.Damage > 0 {
		return &backup.DamagedError{Endpoint: f.path, Findings: found}
	}
	f.old, err = bolt.Open(f.path, 0, &bolt.Options{ReadOnly: true, Timeout: max(timeout, time.Second)})
	if errors.Is(err, boltErrors.ErrTimeout) {
		return fmt.Errorf("%s: %w", f.path, place.ErrBusy)
	}
	return err
}

// awaitFree waits until nobody has the file locked.
func awaitFree(ctx context.Context, path string, timeout time.Duration) (bool, error) {
	for start := time.Now(); ; {
		f, err := os.Open(path)
		if err != nil {
			return false, err
		}
		free, err := place.TryLock(f)
		f.Close()
		if err != nil || free {
			return free, err
		}
		if timeout > 0 && time.Since(start) >= timeout {
			return false, nil
		}
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (f *folder) close() error {
	var err error
	if f.old != nil {
		err = f.old.Close()
		f.old = nil
	}
	return errors.Join(err, f.lock.Release())
}

// replace makes the new database with fill, which leaves it closed, and puts it in the
// place of the old one if both have the same but for the buckets in except.
func (f *folder) replace(ctx context.Context, fill func(path string) error, except ...string) (err error) {
	tmp, err := place.Temp(f.path)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name()) // ours, and of no use
		}
	}()
	if err := tmp.Close(); err != nil {
		return err
	}
	if err := fill(tmp.Name()); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if err := f.same(tmp.Name(), except); err != nil {
		return err
	}
	if err := errors.Join(os.Chmod(tmp.Name(), f.mode.Mode().Perm()), keepOwner(tmp.Name(), f.mode)); err != nil {
		return err
	}
	if err := place.SyncFile(tmp.Name()); err != nil {
		return err
	}
	if err := f.release(); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), f.path); err != nil {
		return err
	}
	return place.SyncDir(filepath.Dir(f.path))
}

// same compares every bucket of both databases, record by record.
func (f *folder) same(path string, except []string) error {
	made, err := bolt.Open(path, 0, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return err
	}
	defer made.Close()
	return f.old.View(func(a *bolt.Tx) error {
		return made.View(func(b *bolt.Tx) error {
			for _, pair := range [][2]*bolt.Tx{{a, b}, {b, a}} {
				if err := pair[0].ForEach(func(name []byte, x *bolt.Bucket) error {
					if slices.Contains(except, string(name)) {
						return nil
					}
					y := pair[1].Bucket(name)
					if y == nil {
						return fmt.Errorf("the new database differs in bucket %q: %w", name, keyspace.ErrCorrupt)
					}
					return equal(string(name), x, y)
				}); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

func equal(name string, a, b *bolt.Bucket) error {
	x, y := a.Cursor(), b.Cursor()
	ka, va := x.First()
	kb, vb := y.First()
	for ka != nil || kb != nil {
		if !bytes.Equal(ka, kb) || !bytes.Equal(va, vb) {
			return fmt.Errorf("the new database differs in bucket %q at %x: %w", name, ka, keyspace.ErrCorrupt)
		}
		ka, va = x.Next()
		kb, vb = y.Next()
	}
	return nil
}

// release closes the old database where a file that is open cannot be replaced.
func (f *folder) release() error {
	if !closeFirst {
		return nil
	}
	err := f.old.Close()
	f.old = nil
	return err
}

// Defragmented is what Defrag did.
type Defragmented struct {
	BytesBefore int64 `json:"bytesBefore"`
	BytesAfter  int64 `json:"bytesAfter"`
}

// copyBytes is how much bbolt copies in one transaction.
const copyBytes = 16 << 20

// Defrag makes the database of a data folder anew, without free pages. timeout is how
// long it waits for a process that uses it; 0: as long as it takes. The error is
// place.ErrBusy when the folder is in use, backup.DamagedError when the database is
// damaged. It needs room for a second database.
func Defrag(ctx context.Context, dir string, timeout time.Duration) (_ *Defragmented, err error) {
	f, err := lockFolder(ctx, dir, timeout)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	d := &Defragmented{BytesBefore: f.mode.Size()}
	if err := f.replace(ctx, func(path string) error {
		fresh, err := bolt.Open(path, 0o600, &bolt.Options{NoFreelistSync: true, NoSync: true, Timeout: time.Second})
		if err != nil {
			return err
		}
		return errors.Join(bolt.Compact(fresh, f.old, copyBytes), fresh.Sync(), fresh.Close())
	}); err != nil {
		return nil, err
	}
	st, err := os.Stat(f.path)
	if err != nil {
		return nil, err
	}
	d.BytesAfter = st.Size()
	return d, nil
}

// copyTo copies the locked database.
func (f *folder) copyTo(path string) error {
	in, err := os.Open(f.path)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
