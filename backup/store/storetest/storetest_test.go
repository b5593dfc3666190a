package storetest_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/etcdctl-plus/etcdctl-plus/backup/store"
	"github.com/etcdctl-plus/etcdctl-plus/backup/store/storetest"
)

// broken is a folder that breaks its promises in one way.
type broken struct {
	store.Store
	dir    string
	put    func(b *broken, ctx context.Context, name string, src io.ReaderAt, size int64, sum [32]byte, o store.PutOptions) error
	get    func(b *broken, ctx context.Context, name string) (io.ReadCloser, error)
	list   func(all []store.Object) []store.Object
	delete func(b *broken, ctx context.Context, name string) error
	lock   func(b *broken, ctx context.Context, name string, o store.LockOptions) (*store.Lock, error)
}

func (b *broken) Put(ctx context.Context, name string, src io.ReaderAt, size int64, sum [32]byte, o store.PutOptions) error {
	if b.put == nil {
		return b.Store.Put(ctx, name, src, size, sum, o)
	}
	return b.put(b, ctx, name, src, size, sum, o)
}

func (b *broken) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	if b.get == nil {
		return b.Store.Get(ctx, name)
	}
	return b.get(b, ctx, name)
}

func (b *broken) List(ctx context.Context, prefix string) iter.Seq2[store.Object, error] {
	if b.list == nil {
		return b.Store.List(ctx, prefix)
	}
	return func(yield func(store.Object, error) bool) {
		var all []store.Object
		for o, err := range b.Store.List(ctx, prefix) {
			if err != nil {
				yield(o, err)
				return
			}
			all = append(all, o)
		}
		for _, o := range b.list(all) {
			if !yield(o, nil) {
				return
			}
		}
	}
}

func (b *broken) Delete(ctx context.Context, name string) error {
	if b.delete == nil {
		return b.Store.Delete(ctx, name)
	}
	return b.delete(b, ctx, name)
}

func (b *broken) Lock(ctx context.Context, name string, o store.LockOptions) (*store.Lock, error) {
	if b.lock == nil {
		return b.Store.Lock(ctx, name, o)
	}
	return b.lock(b, ctx, name, o)
}

// litter writes what a Put did not finish.
func litter(b *broken, name string, text string) {
	path := filepath.Join(b.dir, filepath.FromSlash(name))
	_ = os.MkdirAll(filepath.Dir(path), 0o700)
	_ = os.WriteFile(path, []byte(text), 0o600)
}

var locks atomic.Int64

// breakages are ways to break the contract, and the checks that must notice.
var breakages = []struct {
	name   string
	store  broken
	notice []string
}{
	{"a byte is lost", broken{put: func(b *broken, ctx context.Context, name string, src io.ReaderAt, size int64, _ [32]byte, o store.PutOptions) error {
		buf := make([]byte, max(0, size-1))
		if _, err := src.ReadAt(buf, 0); err != nil {
			return err
		}
		return b.Store.Put(ctx, name, bytes.NewReader(buf), int64(len(buf)), sha256.Sum256(buf), o)
	}}, []string{"round trip", "list"}},
	{"everything is replaced", broken{put: func(b *broken, ctx context.Context, name string, src io.ReaderAt, size int64, sum [32]byte, o store.PutOptions) error {
		o.Replace = true
		return b.Store.Put(ctx, name, src, size, sum, o)
	}}, []string{"no overwrite", "concurrent puts"}},
	{"nothing is replaced", broken{put: func(b *broken, ctx context.Context, name string, src io.ReaderAt, size int64, sum [32]byte, o store.PutOptions) error {
		err := b.Store.Put(ctx, name, src, size, sum, store.PutOptions{Progress: o.Progress})
		if o.Replace && errors.Is(err, store.ErrExists) {
			return nil
		}
		return err
	}}, []string{"replace"}},
	{"half of it is left under the name", broken{put: func(b *broken, ctx context.Context, name string, src io.ReaderAt, size int64, sum [32]byte, o store.PutOptions) error {
		err := b.Store.Put(ctx, name, src, size, sum, o)
		if err != nil && store.CheckName(name) == nil && !errors.Is(err, store.ErrExists) {
			litter(b, name, "half")
		}
		return err
	}}, []string{"source fails", "source too short", "cancelled", "wrong checksum"}},
	{"temporary files are left", broken{put: func(b *broken, ctx context.Context, name string, src io.ReaderAt, size int64, sum [32]byte, o store.PutOptions) error {
		err := b.Store.Put(ctx, name, src, size, sum, o)
		litter(b, ".etcdctl-plus-left", "x")
		return err
	}}, []string{"round trip", "source fails", "source too short", "cancelled", "wrong checksum", "concurrent puts", "names that try to leave"}},
	{"checksums are not compared", broken{put: func(b *broken, ctx context.Context, name string, src io.ReaderAt, size int64, _ [32]byte, o store.PutOptions) error {
		all, err := io.ReadAll(io.NewSectionReader(src, 0, size))
		if err != nil {
			return err
		}
		return b.Store.Put(ctx, name, src, size, sha256.Sum256(all), o)
	}}, []string{"wrong checksum"}},
	{"the source's failure is its end", broken{put: func(b *broken, ctx context.Context, name string, src io.ReaderAt, size int64, _ [32]byte, o store.PutOptions) error {
		all, _ := io.ReadAll(io.NewSectionReader(src, 0, size))
		return b.Store.Put(ctx, name, bytes.NewReader(all), int64(len(all)), sha256.Sum256(all), o)
	}}, []string{"source fails", "source too short"}},
	{"the end of the context is not seen", broken{put: func(b *broken, ctx context.Context, name string, src io.ReaderAt, size int64, sum [32]byte, o store.PutOptions) error {
		return b.Store.Put(context.WithoutCancel(ctx), name, src, size, sum, o)
	}}, []string{"cancelled"}},
	{"names are cleaned instead of refused", broken{put: func(b *broken, ctx context.Context, name string, src io.ReaderAt, size int64, sum [32]byte, o store.PutOptions) error {
		return b.Store.Put(ctx, strings.TrimPrefix(filepath.Clean("/"+name), "/"), src, size, sum, o)
	}}, []string{"names that try to leave"}},
	{"names lose their spaces", broken{put: func(b *broken, ctx context.Context, name string, src io.ReaderAt, size int64, sum [32]byte, o store.PutOptions) error {
		return b.Store.Put(ctx, strings.TrimSpace(name), src, size, sum, o)
	}}, []string{"odd names"}},
	{"progress is not told", broken{put: func(b *broken, ctx context.Context, name string, src io.ReaderAt, size int64, sum [32]byte, o store.PutOptions) error {
		return b.Store.Put(ctx, name, src, size, sum, store.PutOptions{Replace: o.Replace})
	}}, []string{"progress"}},
	{"lists have no order", broken{list: func(all []store.Object) []store.Object { slices.Reverse(all); return all }}, []string{"list", "many"}},
	{"only a page is listed", broken{list: func(all []store.Object) []store.Object { return all[:min(len(all), 1000)] }}, []string{"many"}},
	{"what is absent is empty", broken{get: func(b *broken, ctx context.Context, name string) (io.ReadCloser, error) {
		r, err := b.Store.Get(ctx, name)
		if errors.Is(err, store.ErrNotExist) {
			return io.NopCloser(strings.NewReader("")), nil
		}
		return r, err
	}}, []string{"absent"}},
	{"what is absent is deleted", broken{delete: func(b *broken, ctx context.Context, name string) error {
		if err := b.Store.Delete(ctx, name); !errors.Is(err, store.ErrNotExist) {
			return err
		}
		return nil
	}}, []string{"delete", "absent"}},
	{"everybody gets the lock", broken{lock: func(b *broken, ctx context.Context, name string, o store.LockOptions) (*store.Lock, error) {
		return b.Store.Lock(ctx, name+"-"+strings.Repeat("x", int(locks.Add(1))), o)
	}}, []string{"lock", "lock at once", "stale lock"}},
	{"a lock is taken over at once", broken{lock: func(b *broken, ctx context.Context, name string, o store.LockOptions) (*store.Lock, error) {
		_ = b.Store.Delete(ctx, name)
		return b.Store.Lock(ctx, name, o)
	}}, []string{"lock", "stale lock", "lost lock"}},
	{"a lock is never taken over", broken{lock: func(b *broken, ctx context.Context, name string, o store.LockOptions) (*store.Lock, error) {
		if _, err := b.Stat(ctx, name); err == nil {
			return nil, &store.LockedError{Name: name, Owner: storetest.Stale(0)}
		}
		return b.Store.Lock(ctx, name, o)
	}}, []string{"stale lock"}},
}

func place(t *testing.T, with broken) storetest.Place {
	dir := t.TempDir()
	return storetest.Place{
		Open: func() (store.Store, error) {
			s, err := store.Open(dir, store.Options{})
			b := with
			b.Store, b.dir = s, dir
			return &b, err
		},
		Left: func(context.Context) ([]string, error) {
			return filepath.Glob(filepath.Join(dir, ".etcdctl-plus-*"))
		},
		Part: 1 << 16,
	}
}

// TestNotices holds the suite against stores that are broken: each check must fail
// where it has to, and each check does so somewhere.
func TestNotices(t *testing.T) {
	t.Parallel()
	noticed := map[string]bool{}
	for _, b := range breakages {
		for _, n := range b.notice {
			i := slices.IndexFunc(storetest.Checks, func(c storetest.Check) bool { return c.Name == n })
			if i < 0 {
				t.Fatalf("there is no check %q", n)
			}
			noticed[n] = true
			t.Run(strings.ReplaceAll(b.name+"/"+n, " ", "_"), func(t *testing.T) {
				t.Parallel()
				err := storetest.Checks[i].Run(t.Context(), place(t, b.store))
				if err == nil {
					t.Errorf("%s: the check %q finds nothing", b.name, n)
				}
				t.Log(err)
			})
		}
	}
	for _, c := range storetest.Checks {
		if !noticed[c.Name] {
			t.Errorf("no broken store shows that the check %q can fail", c.Name)
		}
	}
}
