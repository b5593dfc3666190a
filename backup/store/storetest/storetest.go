// Package storetest is the suite that every store passes.
//
// A check returns what is wrong instead of failing a test, so that the suite can
// be held against stores that are broken on purpose.
package storetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdctl-plus/etcdctl-plus/backup/store"
)

// Place is where a check works: an empty store of its own.
type Place struct {
	// Open opens the place; each call is another user of it.
	Open func() (store.Store, error)
	// Left returns what lies there besides the objects: temporary files, uploads
	// that were not finished. nil: nobody can look.
	Left func(context.Context) ([]string, error)
	// Part is the size in bytes beyond which the store cuts objects.
	Part int64
	// Many is how many objects are listed; 0: 1100, more than a page of S3.
	Many int
	// Odd are names to try; nil: OddNames.
	Odd []string
	// Races says that two Puts of one name at once can both succeed, as the store
	// has no conditional requests.
	Races bool
	// TTL is the lock's in the checks of locks; 0: 2 seconds.
	TTL time.Duration
}

// Check is one part of the contract.
type Check struct {
	Name string
	Run  func(context.Context, Place) error
}

// Checks are all of them.
var Checks = []Check{
	{"round trip", roundTrip},
	{"no overwrite", noOverwrite},
	{"replace", replace},
	{"list", list},
	{"many", many},
	{"odd names", oddNames},
	{"names that try to leave", escapes},
	{"source fails", sourceFails},
	{"source too short", sourceShort},
	{"cancelled", cancelled},
	{"wrong checksum", wrongSum},
	{"concurrent puts", concurrent},
	{"delete", deletes},
	{"absent", absent},
	{"progress", progress},
	{"lock", lock},
	{"lock at once", lockAtOnce},
	{"stale lock", staleLock},
	{"lost lock", lostLock},
}

// Run holds the stores that place makes to the whole contract, or to the checks
// that are named.
func Run(t *testing.T, place func(*testing.T) Place, only ...string) {
	for _, c := range Checks {
		if len(only) > 0 && !slices.Contains(only, c.Name) {
			continue
		}
		t.Run(strings.ReplaceAll(c.Name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			if err := c.Run(t.Context(), place(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

func with(p Place, do func(store.Store) error) error {
	s, err := p.Open()
	if err != nil {
		return err
	}
	return errors.Join(do(s), s.Close())
}

// Bytes are n bytes that differ with the seed and do not repeat.
func Bytes(n int64, seed uint64) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8(sha256.Sum256(fmt.Append(nil, seed))).Read(b) // never fails
	return b
}

// Put puts b under name.
func Put(ctx context.Context, s store.Store, name string, b []byte, o store.PutOptions) error {
	return s.Put(ctx, name, bytes.NewReader(b), int64(len(b)), sha256.Sum256(b), o)
}

// Get reads all of an object.
func Get(ctx context.Context, s store.Store, name string) ([]byte, error) {
	r, err := s.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(r)
	return b, errors.Join(err, r.Close())
}

// Names lists the names that begin with prefix.
func Names(ctx context.Context, s store.Store, prefix string) ([]string, error) {
	var names []string
	for o, err := range s.List(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		names = append(names, o.Name)
	}
	return names, nil
}

// holds tells whether exactly b is stored under name.
func holds(ctx context.Context, s store.Store, name string, b []byte) error {
	got, err := Get(ctx, s, name)
	if err != nil {
		return fmt.Errorf("get %q: %w", name, err)
	}
	if !bytes.Equal(got, b) {
		return fmt.Errorf("%q holds %d bytes that are not the %d stored ones", name, len(got), len(b))
	}
	return nil
}

// nothing tells whether the place is as empty as it was.
func nothing(ctx context.Context, p Place, s store.Store) error {
	names, err := Names(ctx, s, "")
	if err != nil {
		return err
	}
	if len(names) > 0 {
		return fmt.Errorf("objects are left: %q", names)
	}
	return nothingLeft(ctx, p)
}

func nothingLeft(ctx context.Context, p Place) error {
	if p.Left == nil {
		return nil
	}
	left, err := p.Left(ctx)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("what is not finished is left: %q", left)
	}
	return nil
}

func want(err, kind error, doing string) error {
	if err == nil {
		return fmt.Errorf("%s is done, instead of: %w", doing, kind)
	}
	if !errors.Is(err, kind) {
		return fmt.Errorf("%s gives: %w; instead of: %w", doing, err, kind)
	}
	return nil
}

func roundTrip(ctx context.Context, p Place) error {
	return with(p, func(s store.Store) error {
		for i, n := range []int64{0, 1, p.Part - 1, p.Part, p.Part + 1, 40 << 20} {
			name, b := fmt.Sprintf("cluster-1/%d.db", n), Bytes(n, uint64(i))
			before := time.Now().Add(-time.Minute) // its clock may differ a little
			if err := Put(ctx, s, name, b, store.PutOptions{}); err != nil {
				return err
			}
			if err := holds(ctx, s, name, b); err != nil {
				return err
			}
			o, err := s.Stat(ctx, name)
			if err != nil {
				return err
			}
			if o.Name != name || o.Bytes != n || o.ModTime.Before(before) || o.ModTime.After(time.Now().Add(time.Minute)) {
				return fmt.Errorf("Stat says %+v of %d bytes", o, n)
			}
			if sum := sha256.Sum256(b); o.SHA256 != nil && !bytes.Equal(o.SHA256, sum[:]) {
				return fmt.Errorf("the store says that the SHA-256 of %s is %x", name, o.SHA256)
			}
		}
		return nothingLeft(ctx, p)
	})
}

func noOverwrite(ctx context.Context, p Place) error {
	return with(p, func(s store.Store) error {
		for _, n := range []int64{10, p.Part + 1} {
			name, old := fmt.Sprintf("n%d", n), Bytes(n, 1)
			if err := Put(ctx, s, name, old, store.PutOptions{}); err != nil {
				return err
			}
			if err := want(Put(ctx, s, name, Bytes(n, 2), store.PutOptions{}), store.ErrExists, "a second Put"); err != nil {
				return err
			}
			if err := holds(ctx, s, name, old); err != nil {
				return err
			}
		}
		return nothingLeft(ctx, p)
	})
}

func replace(ctx context.Context, p Place) error {
	return with(p, func(s store.Store) error {
		for _, n := range []int64{10, p.Part + 1, 10} { // also the same length again
			b := Bytes(n, uint64(time.Now().UnixNano()))
			if err := Put(ctx, s, "x/y", b, store.PutOptions{Replace: true}); err != nil {
				return err
			}
			if err := holds(ctx, s, "x/y", b); err != nil {
				return err
			}
		}
		b := Bytes(10, 7) // the same length and, where times are coarse, time
		if err := Put(ctx, s, "x/y", b, store.PutOptions{Replace: true}); err != nil {
			return err
		}
		if err := holds(ctx, s, "x/y", b); err != nil {
			return err
		}
		return nothingLeft(ctx, p)
	})
}

func list(ctx context.Context, p Place) error {
	// In the order of their bytes: "-" and "." come before "/", "0" behind it.
	all := []string{"a", "b-1/x", "b.d", "b/1", "b/10", "b/2/deep/er", "b/2/x", "b0", "c/B", "c/b", "ä"}
	return with(p, func(s store.Store) error {
		shuffled := slices.Clone(all)
		rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		for _, name := range shuffled {
			if err := Put(ctx, s, name, []byte(name), store.PutOptions{}); err != nil {
				return err
			}
		}
		for _, prefix := range []string{"", "a", "b", "b/", "b/1", "b/2/", "b-1/x", "c/", "none", "none/", "b/none/x", "ä", "../", "/"} {
			var expect []string
			for _, name := range all {
				if strings.HasPrefix(name, prefix) {
					expect = append(expect, name)
				}
			}
			names, err := Names(ctx, s, prefix)
			if err != nil {
				return fmt.Errorf("list %q: %w", prefix, err)
			}
			if !slices.Equal(names, expect) {
				return fmt.Errorf("below %q are %q, listed are %q", prefix, expect, names)
			}
		}
		for o, err := range s.List(ctx, "") {
			if err != nil {
				return err
			}
			if o.Bytes != int64(len(o.Name)) {
				return fmt.Errorf("listed with %d bytes: %q", o.Bytes, o.Name)
			}
			if o.Name == "b/1" {
				return nil // a consumer may stop
			}
		}
		return errors.New("b/1 is not listed")
	})
}

func many(ctx context.Context, p Place) error {
	n := p.Many
	if n == 0 {
		n = 1100
	}
	return with(p, func(s store.Store) error {
		var names []string
		for i := range n {
			names = append(names, fmt.Sprintf("m/%02d/%05d", i%7, i))
		}
		slices.Sort(names)
		work := make(chan string)
		errs := make(chan error, 8)
		for range cap(errs) {
			go func() {
				var err error
				for name := range work {
					if e := Put(ctx, s, name, []byte("x"), store.PutOptions{}); e != nil && err == nil {
						err = e
					}
				}
				errs <- err
			}()
		}
		for _, name := range names {
			work <- name
		}
		close(work)
		var err error
		for range cap(errs) {
			err = errors.Join(err, <-errs)
		}
		if err != nil {
			return err
		}
		got, err := Names(ctx, s, "m/")
		if err != nil {
			return err
		}
		if !slices.Equal(got, names) {
			return fmt.Errorf("%d objects are stored, %d are listed, or in another order", len(names), len(got))
		}
		return nil
	})
}

// OddNames are legal names that something on the way could take for something else.
var OddNames = []string{
	"-rf", "--help", "~", "~u/x", "a b", " lead", "trail ", "dot.", "..a", "a..", "...", ".hidden", ".hid/.x",
	"plus+and&equals=", "percent%41%2F", "ques?tion", "hash#tag", "quote'\"`", "$HOME", "$(id)", "{a,b}", "*", "[x]", "semi;colon", "co:lon:", "C:/x", "pipe|<>",
	"tilde~1", "ünïcödé/日本語", "e\u0301", "\u00e9", "\U0001F600", "at@x", "comma,x", "caret^", "!bang", strings.Repeat("n", 200), strings.Repeat("d/", 50) + "x",
	"snapshot.db.part", ".etcdctl", "CON", "nul.txt", "Case", "case",
}

func oddNames(ctx context.Context, p Place) error {
	odd := p.Odd
	if odd == nil {
		odd = OddNames
	}
	return with(p, func(s store.Store) error {
		var errs []error
		for _, name := range odd {
			if err := Put(ctx, s, "odd/"+name, []byte(name), store.PutOptions{}); err != nil {
				errs = append(errs, err)
			}
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
		var expect []string
		for _, name := range odd {
			expect = append(expect, "odd/"+name)
			if err := holds(ctx, s, "odd/"+name, []byte(name)); err != nil {
				return err
			}
		}
		slices.Sort(expect)
		names, err := Names(ctx, s, "odd/")
		if err != nil {
			return err
		}
		if !slices.Equal(names, expect) {
			return fmt.Errorf("stored are %q, listed are %q", expect, names)
		}
		for _, name := range expect {
			if err := s.Delete(ctx, name); err != nil {
				return err
			}
		}
		return nothing(ctx, p, s)
	})
}

// Escapes are names that no store takes.
var Escapes = []string{
	"", ".", "..", "../x", "a/../../x", "a/..", "/etc/x", "/", "a/", "/a", "a//b", "./a", "a/./b", `..\x`, `a\b`, "a\x00b", "a\nb", "a\x7fb", "\xff",
	".etcdctl-plus-00000000-00000000000000000000000000000000.part", "a/.etcdctl-plus-x", strings.Repeat("n", 201), strings.Repeat("dd/", 300) + "x",
}

func escapes(ctx context.Context, p Place) error {
	return with(p, func(s store.Store) error {
		for _, name := range Escapes {
			_, statErr := s.Stat(ctx, name)
			_, getErr := Get(ctx, s, name)
			_, lockErr := s.Lock(ctx, name, store.LockOptions{})
			for _, e := range []struct {
				doing string
				err   error
			}{
				{"Put", Put(ctx, s, name, []byte("x"), store.PutOptions{})}, {"Put with Replace", Put(ctx, s, name, []byte("x"), store.PutOptions{Replace: true})},
				{"Stat", statErr}, {"Get", getErr}, {"Delete", s.Delete(ctx, name)}, {"Lock", lockErr},
			} {
				if err := want(e.err, store.ErrName, fmt.Sprintf("%s of %.30q", e.doing, name)); err != nil {
					return err
				}
			}
		}
		return nothing(ctx, p, s)
	})
}

var errSource = errors.New("the disk is on fire")

// broken fails from a place on.
type broken struct {
	io.ReaderAt
	from int64
	at   func() // called when it is reached
	err  error
}

func (b *broken) ReadAt(buf []byte, off int64) (int, error) {
	if off+int64(len(buf)) <= b.from {
		return b.ReaderAt.ReadAt(buf, off)
	}
	if b.at != nil {
		b.at()
	}
	if b.err == nil {
		return b.ReaderAt.ReadAt(buf, off)
	}
	n := max(0, b.from-off)
	if n, err := b.ReaderAt.ReadAt(buf[:n], off); err != nil {
		return n, err
	}
	return int(n), b.err
}

// sizes are of objects that go in one piece, and in several.
func (p Place) sizes() []int64 { return []int64{1000, 3*p.Part + 5} }

func sourceFails(ctx context.Context, p Place) error {
	return with(p, func(s store.Store) error {
		for _, n := range p.sizes() {
			b := Bytes(n, 3)
			for _, from := range []int64{0, n / 2, n - 1} {
				src := &broken{ReaderAt: bytes.NewReader(b), from: from, err: errSource}
				if err := want(s.Put(ctx, "x/half", src, n, sha256.Sum256(b), store.PutOptions{}), errSource, "Put of a source that fails"); err != nil {
					return err
				}
				if err := nothing(ctx, p, s); err != nil {
					return fmt.Errorf("source of %d bytes fails at %d: %w", n, from, err)
				}
			}
		}
		return nil
	})
}

func sourceShort(ctx context.Context, p Place) error {
	return with(p, func(s store.Store) error {
		for _, n := range p.sizes() {
			b := Bytes(n, 4)
			if err := want(s.Put(ctx, "short", bytes.NewReader(b[:n-1]), n, sha256.Sum256(b), store.PutOptions{}), io.ErrUnexpectedEOF, "Put of a source that ends"); err != nil {
				return err
			}
			if err := nothing(ctx, p, s); err != nil {
				return err
			}
		}
		return nil
	})
}

func cancelled(ctx context.Context, p Place) error {
	return with(p, func(s store.Store) error {
		old := []byte("old")
		if err := Put(ctx, s, "kept", old, store.PutOptions{}); err != nil {
			return err
		}
		for _, n := range p.sizes() {
			b := Bytes(n, 5)
			ctx, cancel := context.WithCancel(ctx)
			src := &broken{ReaderAt: bytes.NewReader(b), from: n / 2, at: cancel}
			for _, name := range []string{"x/gone", "kept"} {
				if err := want(s.Put(ctx, name, src, n, sha256.Sum256(b), store.PutOptions{Replace: true}), context.Canceled, "a cancelled Put"); err != nil {
					cancel()
					return err
				}
			}
			cancel()
		}
		if err := holds(ctx, s, "kept", old); err != nil {
			return err
		}
		if err := s.Delete(ctx, "kept"); err != nil {
			return err
		}
		return nothing(ctx, p, s)
	})
}

func wrongSum(ctx context.Context, p Place) error {
	return with(p, func(s store.Store) error {
		for _, n := range append(p.sizes(), 0) {
			b := Bytes(n, 6)
			sum := sha256.Sum256(b)
			sum[0] ^= 1
			if err := want(s.Put(ctx, "x/wrong", bytes.NewReader(b), n, sum, store.PutOptions{}), store.ErrChecksum, "Put with a wrong checksum"); err != nil {
				return err
			}
			if err := nothing(ctx, p, s); err != nil {
				return err
			}
		}
		return nil
	})
}

func concurrent(ctx context.Context, p Place) error {
	const writers = 6
	for round, n := range p.sizes() {
		name := fmt.Sprintf("race/%d", round)
		var stores []store.Store
		for range writers {
			s, err := p.Open()
			if err != nil {
				return err
			}
			defer s.Close()
			stores = append(stores, s)
		}
		var won [writers]error
		var wg sync.WaitGroup
		for i, s := range stores {
			wg.Go(func() { won[i] = Put(ctx, s, name, Bytes(n, uint64(100+i)), store.PutOptions{}) })
		}
		wg.Wait()
		got, err := Get(ctx, stores[0], name)
		if err != nil {
			return fmt.Errorf("after %d Puts at once: %w (%w)", writers, err, errors.Join(won[:]...))
		}
		winners, whose := 0, -1
		for i, err := range won {
			if err == nil {
				winners++
			} else if !errors.Is(err, store.ErrExists) {
				return err
			}
			if bytes.Equal(got, Bytes(n, uint64(100+i))) {
				whose = i
			}
		}
		switch {
		case winners == 0 || winners > 1 && !p.Races:
			return fmt.Errorf("%d of %d Puts of one name won", winners, writers)
		case whose < 0:
			return errors.New("what is stored is nobody's")
		case won[whose] != nil:
			return fmt.Errorf("what is stored is of a Put that failed: %w", won[whose])
		}
		if err := nothingLeft(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func deletes(ctx context.Context, p Place) error {
	return with(p, func(s store.Store) error {
		for _, name := range []string{"d/a", "d/b"} {
			if err := Put(ctx, s, name, []byte(name), store.PutOptions{}); err != nil {
				return err
			}
		}
		if err := s.Delete(ctx, "d/a"); err != nil {
			return err
		}
		_, err := s.Stat(ctx, "d/a")
		if err := want(err, store.ErrNotExist, "Stat of a deleted object"); err != nil {
			return err
		}
		if err := want(s.Delete(ctx, "d/a"), store.ErrNotExist, "a second Delete"); err != nil {
			return err
		}
		if err := holds(ctx, s, "d/b", []byte("d/b")); err != nil {
			return err
		}
		return Put(ctx, s, "d/a", []byte("again"), store.PutOptions{})
	})
}

func absent(ctx context.Context, p Place) error {
	return with(p, func(s store.Store) error {
		if err := Put(ctx, s, "here/x", []byte("x"), store.PutOptions{}); err != nil {
			return err
		}
		for _, name := range []string{"gone", "gone/x", "here", "here/y", "here/x/below"} {
			_, statErr := s.Stat(ctx, name)
			_, getErr := s.Get(ctx, name)
			if err := errors.Join(
				want(statErr, store.ErrNotExist, "Stat of "+name), want(getErr, store.ErrNotExist, "Get of "+name),
				want(s.Delete(ctx, name), store.ErrNotExist, "Delete of "+name),
			); err != nil {
				return err
			}
		}
		return holds(ctx, s, "here/x", []byte("x"))
	})
}

func progress(ctx context.Context, p Place) error {
	return with(p, func(s store.Store) error {
		for _, n := range p.sizes() {
			b := Bytes(n, 8)
			var last int64
			calls := 0
			err := Put(ctx, s, fmt.Sprintf("p%d", n), b, store.PutOptions{Progress: func(sent int64) { last = sent; calls++ }})
			if err != nil {
				return err
			}
			if last != n || calls == 0 {
				return fmt.Errorf("of %d bytes, progress tells %d at last, in %d calls", n, last, calls)
			}
		}
		return nil
	})
}

func (p Place) ttl() time.Duration {
	if p.TTL > 0 {
		return p.TTL
	}
	return 2 * time.Second
}

// errSlow: the holder could not refresh its lock in time and has noticed, as on a machine
// that does a lot else. Nobody has held it twice. It is tried again with more time.
var errSlow = errors.New("the holder lost it, being too slow")

func lock(ctx context.Context, p Place) error {
	var err error
	for range 3 {
		if err = lockOnce(ctx, p); !errors.Is(err, errSlow) {
			return err
		}
		time.Sleep(2 * p.ttl()) // what was lost lies there until it is too old
		p.TTL = 2 * p.ttl()
	}
	return err
}

func lockOnce(ctx context.Context, p Place) error {
	return with(p, func(a store.Store) error {
		return with(p, func(b store.Store) error {
			o := store.LockOptions{TTL: p.ttl()}
			l, err := a.Lock(ctx, "lock", o)
			if err != nil {
				return err
			}
			// Longer than it lasts without being refreshed.
			for end := time.Now().Add(2*p.ttl() + p.ttl()/2); time.Now().Before(end); time.Sleep(p.ttl() / 4) {
				second, err := b.Lock(ctx, "lock", o)
				if err == nil && l.Context().Err() != nil {
					return errors.Join(errSlow, second.Release(), l.Release())
				}
				if err := want(err, store.ErrLocked, "a second holder's Lock"); err != nil {
					return err
				}
				var held *store.LockedError
				if !errors.As(err, &held) || held.Name != "lock" || held.Owner.Host == "" || held.Owner.PID == 0 || held.Owner.Since.IsZero() {
					return fmt.Errorf("who holds it is not told: %w", err)
				}
			}
			if err := l.Context().Err(); err != nil {
				return fmt.Errorf("%w: %w", errSlow, context.Cause(l.Context()))
			}
			other, err := b.Lock(ctx, "another", o)
			if err != nil {
				return fmt.Errorf("a lock of another name: %w", err)
			}
			if err := errors.Join(other.Release(), l.Release(), l.Release()); err != nil {
				return err
			}
			if l.Context().Err() == nil {
				return errors.New("the context of a released lock goes on")
			}
			again, err := b.Lock(ctx, "lock", o)
			if err != nil {
				return fmt.Errorf("after its release: %w", err)
			}
			if err := again.Release(); err != nil {
				return err
			}
			return nothing(ctx, p, b)
		})
	})
}

// lockAtOnce lets several ask at the same time, again and again: never are there
// two holders, and in the end everybody has had it.
func lockAtOnce(ctx context.Context, p Place) error {
	const users = 3
	var mu sync.Mutex
	holders, most := 0, 0
	errs := make(chan error, users)
	for range users {
		go func() {
			errs <- with(p, func(s store.Store) error {
				for deadline := time.Now().Add(90 * time.Second); ; {
					l, err := s.Lock(ctx, "lock", store.LockOptions{TTL: 10 * time.Second})
					if errors.Is(err, store.ErrLocked) && time.Now().Before(deadline) {
						time.Sleep(rand.N(100 * time.Millisecond))
						continue
					}
					if err != nil {
						return err
					}
					mu.Lock()
					holders++
					most = max(most, holders)
					mu.Unlock()
					time.Sleep(100 * time.Millisecond)
					mu.Lock()
					holders--
					mu.Unlock()
					return l.Release()
				}
			})
		}()
	}
	var err error
	for range users {
		err = errors.Join(err, <-errs)
	}
	if err == nil && most != 1 {
		err = fmt.Errorf("%d held the lock at once", most)
	}
	return err
}

// Stale is a record of a holder on another host that died a long time ago.
func Stale(ttl time.Duration) store.Owner {
	past := time.Now().Add(-time.Hour).UTC()
	return store.Owner{Host: "elsewhere.invalid", Boot: "another", PID: 4711, Since: past, Refreshed: past, TTLMillis: ttl.Milliseconds(), Token: strings.Repeat("ab", 16)}
}

func staleLock(ctx context.Context, p Place) error {
	return with(p, func(s store.Store) error {
		// A lock is an object: a dead holder's is put back after its release, and
		// nobody refreshes it.
		ttl := p.ttl()
		name, record, err := leftLock(ctx, s, ttl)
		if err != nil {
			return err
		}
		if err := Put(ctx, s, name, record, store.PutOptions{}); err != nil {
			return err
		}
		o := store.LockOptions{TTL: 10 * time.Second}
		_, err = s.Lock(ctx, "lock", o)
		if err := want(err, store.ErrLocked, "Lock before a dead holder's time is over"); err != nil {
			return err
		}
		for start := time.Now(); ; time.Sleep(ttl / 4) {
			l, err := s.Lock(ctx, "lock", o)
			if err == nil {
				if err := l.Release(); err != nil {
					return err
				}
				return nothing(ctx, p, s)
			}
			if !errors.Is(err, store.ErrLocked) || time.Since(start) > 5*ttl+10*time.Second {
				return fmt.Errorf("a lock whose holder is dead: %w", err)
			}
		}
	})
}

// leftLock returns what a holder on another host writes, refreshed just now, and
// where.
func leftLock(ctx context.Context, s store.Store, ttl time.Duration) (name string, record []byte, err error) {
	l, err := s.Lock(ctx, "lock", store.LockOptions{})
	if err != nil {
		return "", nil, err
	}
	names, err := Names(ctx, s, "lock")
	if err == nil && len(names) != 1 {
		err = fmt.Errorf("a lock is listed as %q", names)
	}
	if err := errors.Join(err, l.Release()); err != nil {
		return "", nil, err
	}
	o := Stale(ttl)
	o.Refreshed = time.Now().UTC()
	if strings.HasPrefix(names[0], "lock/") {
		names[0] = "lock/" + o.Token
	}
	record = fmt.Appendf(nil, `{"host":%q,"boot":%q,"pid":%d,"since":%q,"refreshed":%q,"ttlMillis":%d,"token":%q}`+"\n",
		o.Host, o.Boot, o.PID, o.Since.Format(time.RFC3339Nano), o.Refreshed.Format(time.RFC3339Nano), o.TTLMillis, o.Token)
	return names[0], record, nil
}

// lostLock takes a lock away from its holder, who must notice and leave the next
// holder's alone.
func lostLock(ctx context.Context, p Place) error {
	return with(p, func(a store.Store) error {
		return with(p, func(b store.Store) error {
			ttl := p.ttl()
			l, err := a.Lock(ctx, "lock", store.LockOptions{TTL: ttl})
			if err != nil {
				return err
			}
			names, err := Names(ctx, b, "lock")
			if err != nil {
				return err
			}
			for _, name := range names {
				if err := b.Delete(ctx, name); err != nil {
					return err
				}
			}
			next, err := b.Lock(ctx, "lock", store.LockOptions{TTL: 20 * time.Second})
			if err != nil {
				return err
			}
			select {
			case <-l.Context().Done():
			case <-time.After(2 * ttl):
				return errors.New("the holder does not notice that its lock is gone")
			}
			if err := want(context.Cause(l.Context()), store.ErrLockLost, "the context of a lost lock"); err != nil {
				return err
			}
			if err := l.Release(); err != nil {
				return err
			}
			_, err = a.Lock(ctx, "lock", store.LockOptions{})
			if err := want(err, store.ErrLocked, "Lock after the release of a lost lock, which is the next holder's"); err != nil {
				return err
			}
			return next.Release()
		})
	})
}
