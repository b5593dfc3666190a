package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"time"
)

// A lock of flags needs nothing but that what was written is listed: everybody
// raises a flag of their own, then looks for others. Of two who do so at once, at
// least one sees the other and takes its flag down, so there are never two
// holders. Both can see each other; then both try again after a random while.

const (
	flagTries = 4
	flagPause = 2 * time.Second
)

// raise takes a lock of flags in any store.
func raise(ctx context.Context, s Store, store, name string, o LockOptions) (*Lock, error) {
	var err error
	for range flagTries {
		f := &flag{s: s, lock: name, me: newOwner(o.ttl())}
		since := time.Now()
		var young bool
		young, err = f.raise(ctx)
		if err == nil {
			return keep(ctx, f.me, since, f.refresh, f.lower), nil
		}
		if !young {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(rand.N(flagPause)):
		}
	}
	return nil, fail(ctx, "lock", store, name, err)
}

type flag struct {
	s    Store
	lock string
	me   Owner
}

func (f *flag) name() string { return f.lock + "/" + f.me.Token }

// raise is ErrLocked when there is another living flag, which is young if it was
// raised just now.
func (f *flag) raise(ctx context.Context) (young bool, err error) {
	if err := f.write(ctx, f.me, false); err != nil {
		return false, err
	}
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.me.ttl())
			defer cancel()
			_ = f.s.Delete(ctx, f.name()) // the next one removes it when it is old
		}
	}()
	for other, err := range f.s.List(ctx, f.lock+"/") {
		if err != nil {
			return false, err
		}
		if other.Name == f.name() {
			continue
		}
		owner, err := f.read(ctx, other.Name)
		switch {
		case errors.Is(err, ErrNotExist): // taken down meanwhile
			continue
		case err != nil:
			return false, err
		case owner.Token == "" || f.lock+"/"+owner.Token != other.Name:
			return false, asf(ErrExists, "%s is no lock of this program", other.Name)
		}
		// The two clocks may differ by as much as a TTL.
		if now := time.Now(); now.Sub(owner.Refreshed) < 2*owner.ttl() {
			return now.Sub(owner.Since).Abs() < 3*flagPause, &LockedError{f.lock, owner}
		}
		if err := f.s.Delete(ctx, other.Name); err != nil && !errors.Is(err, ErrNotExist) {
			return false, err
		}
	}
	return false, nil
}

// read reads a flag, which its owner can be writing again.
func (f *flag) read(ctx context.Context, name string) (o Owner, err error) {
	for range flagTries {
		var r io.ReadCloser
		if r, err = f.s.Get(ctx, name); err != nil {
			return o, err
		}
		var b []byte
		b, err = io.ReadAll(io.LimitReader(r, 4096))
		r.Close()
		if err == nil {
			return readOwner(b), nil
		}
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
	}
	return o, err
}

func (f *flag) write(ctx context.Context, o Owner, replace bool) error {
	text := string(o.bytes())
	return f.s.Put(ctx, f.name(), strings.NewReader(text), int64(len(text)), sha256.Sum256([]byte(text)), PutOptions{Replace: replace})
}

func (f *flag) refresh(ctx context.Context, o Owner) error {
	if _, err := f.s.Stat(ctx, f.name()); errors.Is(err, ErrNotExist) {
		return ErrLockLost
	}
	return f.write(ctx, o, true)
}

func (f *flag) lower(ctx context.Context) error {
	if err := f.s.Delete(ctx, f.name()); err != nil && !errors.Is(err, ErrNotExist) {
		return err
	}
	return nil
}
