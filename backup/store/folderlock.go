package store

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"time"
)

// The lock of a folder is a file that appears with its owner's record in it. Its
// owner holds the file system's lock on it, which ends with the process, and writes
// the record again from time to time, so that hosts which do not see each other's
// locks see that it lives by the file's age.

func (s *folder) Lock(ctx context.Context, name string, o LockOptions) (*Lock, error) {
	l, err := s.lock(ctx, name, o)
	if err != nil {
		return nil, fail(ctx, "lock", s.path, name, err)
	}
	return l, nil
}

func (s *folder) lock(ctx context.Context, name string, o LockOptions) (*Lock, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	dir, base := path.Split(name)
	d, err := s.open(dir)
	if err != nil {
		return nil, err
	}
	me := newOwner(o.ttl())
	since := time.Now()
	mine, err := d.acquire(ctx, base, name, me)
	if err != nil {
		d.close()
		return nil, err
	}
	refresh := func(_ context.Context, o Owner) error {
		if !d.holds(base, mine.file) {
			return ErrLockLost
		}
		return mine.write(o)
	}
	release := func(context.Context) error {
		defer d.close()
		defer mine.file.Close()
		if !d.holds(base, mine.file) {
			return nil
		}
		if err := d.root.Remove(base); err != nil {
			return fail(ctx, "unlock", s.path, name, err)
		}
		return nil
	}
	return keep(ctx, me, since, refresh, release), nil
}

// acquire makes the lock's file, in the place of a dead holder's if need be.
func (d *subfolder) acquire(ctx context.Context, base, name string, me Owner) (*part, error) {
	mine, err := d.create()
	if err != nil {
		return nil, err
	}
	taken := false
	defer func() {
		if !taken {
			_ = d.root.Remove(mine.name) // not ours any more, or empty of meaning
			mine.file.Close()
		}
	}()
	if err := mine.write(me); err != nil {
		return nil, err
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		switch err := d.place(mine.name, base); {
		case err == nil:
			taken = true
			return mine, d.sync()
		case !errors.Is(err, ErrExists):
			return nil, err
		}
		if err := d.evict(base, name, mine); err != nil {
			return nil, err
		}
	}
}

// evict removes the lock's file if its holder is dead, and is ErrLocked if not.
func (d *subfolder) evict(base, name string, mine *part) error {
	i, err := d.root.Lstat(base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !i.Mode().IsRegular() {
		return asf(ErrExists, "it is %s", fileType(i.Mode()))
	}
	f, err := d.root.OpenFile(base, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return err
	}
	owner := readOwner(b)
	free, lockErr := tryLock(f)
	if !free {
		return &LockedError{name, owner}
	}
	if !d.holds(base, f) {
		return nil // released, or another's by now
	}
	if owner.Token == "" {
		return asf(ErrExists, "it is no lock of this program")
	}
	// The holder's process is gone where its locks are seen here.
	if lockErr != nil || !owner.local() {
		if err := mine.touch(); err != nil {
			return err
		}
		now, err := mine.file.Stat()
		if err != nil {
			return err
		}
		i, err := f.Stat()
		if err != nil {
			return err
		}
		if now.ModTime().Sub(i.ModTime()) < owner.ttl() {
			return &LockedError{name, owner}
		}
	}
	// Another host may do the same: move it away and look at what was moved.
	away := partName()
	if err := d.root.Rename(base, away); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	if !d.holds(away, f) {
		// A holder that came between. If there is yet another by now, the one moved
		// away notices that it lost.
		if err := d.place(away, base); err == nil {
			return nil
		}
	}
	return d.root.Remove(away)
}

// write replaces the record in the file; readers see the old or the new one, or
// cannot read it.
func (p *part) write(o Owner) error {
	b := o.bytes()
	if _, err := p.file.WriteAt(b, 0); err != nil {
		return err
	}
	if err := p.file.Truncate(int64(len(b))); err != nil {
		return err
	}
	return p.file.Sync()
}

// touch gives the file the time that the file system has now.
func (p *part) touch() error {
	b := make([]byte, 1)
	if _, err := p.file.ReadAt(b, 0); err != nil {
		return err
	}
	_, err := p.file.WriteAt(b, 0)
	return err
}
