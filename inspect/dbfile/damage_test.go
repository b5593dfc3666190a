package dbfile_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sandbox"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest"
)

// smallSnapshot is a real server's snapshot of some hundred KB, with branch pages,
// pages with overflow, and pages in which keys were deleted.
func smallSnapshot(t *testing.T) []byte {
	t.Helper()
	s, err := sandbox.Start(t.Context(), sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, err := s.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i := range 300 {
		size := 40
		if i%50 == 0 {
			size = 12_000
		}
		if _, err := c.Put(t.Context(), fmt.Sprintf("/registry/things/default/thing-%d", i%200), strings.Repeat("x", size)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Delete(t.Context(), "/registry/things/default/thing-17"); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(sourcetest.SaveSnapshot(t, c))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// answers is all that a file says, as one hash.
func answers(ctx context.Context, path string) (sum [32]byte, err error) {
	return answersWith(ctx, path, dbfile.Options{})
}

func answersWith(ctx context.Context, path string, o dbfile.Options) (sum [32]byte, err error) {
	s, err := dbfile.Open(ctx, path, o)
	if err != nil {
		return sum, err
	}
	defer s.Close()
	h := sha256.New()
	info, err := s.Info(ctx)
	if err != nil {
		return sum, err
	}
	fmt.Fprintln(h, info.Revision, info.CompactRev, info.CompactScheduled, info.Version)
	for r, err := range s.Records(ctx, keyspace.All()) {
		if err != nil {
			return sum, err
		}
		fmt.Fprintf(h, "%q %q %d %d %d %d\n", r.Key, r.Value, r.CreateRev, r.ModRev, r.Version, r.Lease)
	}
	er := whole
	er.Prev = true
	for e, err := range s.Events(ctx, er) {
		if err != nil {
			return sum, err
		}
		fmt.Fprintf(h, "%v %v %q %q %s\n", e.Type, e.Rev, e.Record.Key, e.Record.Value, showRecord(e.Prev))
	}
	_, err = s.Leases(ctx)
	if err == nil {
		_, err = s.BytesInUse(ctx)
	}
	h.Sum(sum[:0])
	return sum, err
}

func clear10(err error) bool {
	return errors.Is(err, keyspace.ErrCorrupt) || errors.Is(err, keyspace.ErrNotDatabase)
}

// bounded runs fn and fails the test if it takes long or much memory for so small
// a file.
func bounded(t *testing.T, what string, fn func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin := time.Now()
	fn()
	took := time.Since(begin)
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 64<<20 {
		t.Errorf("%s: %d MB allocated", what, got>>20)
	}
	if took > 10*time.Second {
		t.Errorf("%s: took %v", what, took)
	}
}

// F17, reading: a thousand flipped bits in a snapshot, and in a member's own file,
// which nothing seals.
func TestFlippedBits(t *testing.T) {
	snapshot := smallSnapshot(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "snapshot.db")
	write(t, path, snapshot)
	right, err := answers(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d, %d bytes", seed, len(snapshot))
	rng := rand.New(rand.NewPCG(seed, 1))
	found := 0
	for n := range 1000 {
		sealed := n%2 == 0
		b := bytes.Clone(snapshot)
		if !sealed {
			b = b[:len(b)-sha256.Size]
		}
		at := rng.IntN(len(b) * 8)
		if n%4 == 3 {
			// Most of a file is values. Hit the pages' own numbers as well.
			at = (rng.IntN(len(b)/4096)*4096)*8 + rng.IntN(160*8)
		}
		b[at/8] ^= 1 << (at % 8)
		write(t, path, b)
		what := fmt.Sprintf("bit %d of byte %d flipped, sealed %v", at%8, at/8, sealed)
		bounded(t, what, func() {
			got, err := answers(t.Context(), path)
			switch {
			case err != nil && !clear10(err):
				t.Errorf("%s: %v is neither damage nor a foreign file", what, err)
			case err != nil && !strings.Contains(err.Error(), path):
				t.Errorf("%s: %v does not name the file", what, err)
			case err != nil:
				found++
			case sealed && got != right:
				t.Errorf("%s: a wrong answer and no error", what)
			case sealed:
				t.Errorf("%s: not noticed", what)
			}
		})
	}
	if found < 500 {
		t.Errorf("%d of 1000 found, all 500 sealed ones must be", found)
	}
}

// F18, reading: cut at every page, one byte before and behind.
func TestCutAtEveryPage(t *testing.T) {
	snapshot := smallSnapshot(t)
	path := filepath.Join(t.TempDir(), "snapshot.db")
	write(t, path, snapshot)
	right, err := answers(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	for page := 0; page*4096 <= len(snapshot); page++ {
		for _, size := range []int{page*4096 - 1, page * 4096, page*4096 + 1, page*4096 + 32} {
			if size < 0 || size >= len(snapshot) {
				continue
			}
			write(t, path, snapshot[:size])
			what := fmt.Sprintf("cut to %d bytes", size)
			bounded(t, what, func() {
				got, err := answers(t.Context(), path)
				switch {
				case err != nil && !clear10(err):
					t.Errorf("%s: %v", what, err)
				case err == nil && got != right:
					t.Errorf("%s: a wrong answer and no error", what)
				}
			})
		}
	}
}

// A page too much makes an unsealed file, not a wrong answer. A length that no database
// has is damage, and so is a snapshot whose trailer was cut off: it must not pass for a
// member's own file.
func TestLongerAndUnsealed(t *testing.T) {
	snapshot := smallSnapshot(t)
	path := filepath.Join(t.TempDir(), "snapshot.db")
	write(t, path, snapshot)
	right, err := answers(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, append(bytes.Clone(snapshot), make([]byte, 4096-32)...))
	if got, err := answers(t.Context(), path); err != nil || got != right {
		t.Errorf("a page too much: %v", err)
	}
	write(t, path, snapshot[:len(snapshot)-32])
	var stripped *dbfile.StrippedError
	if _, err := answers(t.Context(), path); !errors.As(err, &stripped) || !errors.Is(err, keyspace.ErrCorrupt) {
		t.Errorf("stripped: %v", err)
	}
	if got, err := answersWith(t.Context(), path, dbfile.Options{IgnoreChecksum: true}); err != nil || got != right {
		t.Errorf("stripped, and asked for: %v", err)
	}
	for name, b := range map[string][]byte{
		"appended": append(bytes.Clone(snapshot), "garbage"...),
		"cut by 1": snapshot[:len(snapshot)-1],
	} {
		write(t, path, b)
		if _, err := dbfile.Open(t.Context(), path, dbfile.Options{}); !errors.Is(err, keyspace.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
		src, err := dbfile.Open(t.Context(), path, dbfile.Options{IgnoreChecksum: true})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, err := range src.Records(t.Context(), keyspace.All()) {
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		src.Close()
	}
}

// patch changes one page of a database.
func patch(b []byte, pageSize, id int, fn func(page []byte)) {
	fn(b[id*pageSize : (id+1)*pageSize])
}

// Pages that lead nowhere or in a circle, with valid meta pages.
func TestHostilePages(t *testing.T) {
	t.Parallel()
	var m sourcetest.Memory
	for i := range 400 {
		put(&m, fmt.Sprintf("key-%d", i))
	}
	b := build(t, 1024)
	b.events(events(t, &m, whole))
	good, err := os.ReadFile(b.done())
	if err != nil {
		t.Fatal(err)
	}
	put16 := func(p []byte, at int, v uint16) { p[at], p[at+1] = byte(v), byte(v>>8) }
	put64 := func(p []byte, at int, v uint64) {
		for i := range 8 {
			p[at+i] = byte(v >> (8 * i))
		}
	}
	branch := -1
	for id := 2; id < len(good)/1024; id++ {
		if p := good[id*1024:]; p[8] == 1 && p[0] == byte(id) && p[1] == byte(id>>8) {
			branch = id
		}
	}
	if branch < 0 {
		t.Fatal("no branch page in the file")
	}
	metas := func(b []byte, fn func(meta []byte)) {
		for id := range 2 {
			patch(b, 1024, id, func(p []byte) {
				fn(p[16:])
				h := fnv.New64a()
				h.Write(p[16 : 16+56])
				put64(p, 16+56, h.Sum64())
			})
		}
	}
	for name, change := range map[string]func([]byte){
		"child is itself": func(b []byte) {
			patch(b, 1024, branch, func(p []byte) { put64(p, 16+8, uint64(branch)) })
		},
		"all children are one": func(b []byte) {
			patch(b, 1024, branch, func(p []byte) {
				for i := 1; i < int(p[10]); i++ {
					copy(p[16+16*i+8:], p[16+8:16+16])
				}
			})
		},
		"child is a meta page":  func(b []byte) { patch(b, 1024, branch, func(p []byte) { put64(p, 16+8, 0) }) },
		"child beyond the file": func(b []byte) { patch(b, 1024, branch, func(p []byte) { put64(p, 16+8, 1<<60) }) },
		"largest child":         func(b []byte) { patch(b, 1024, branch, func(p []byte) { put64(p, 16+8, 1<<64-1) }) },
		"too many elements":     func(b []byte) { patch(b, 1024, branch, func(p []byte) { put16(p, 10, 0xffff) }) },
		"no elements":           func(b []byte) { patch(b, 1024, branch, func(p []byte) { put16(p, 10, 0) }) },
		"huge overflow": func(b []byte) {
			patch(b, 1024, branch, func(p []byte) { put64(p, 8, 1|uint64(2)<<16|uint64(0xffffffff)<<32) })
		},
		"other kind":            func(b []byte) { patch(b, 1024, branch, func(p []byte) { put16(p, 8, 0x10) }) },
		"other number":          func(b []byte) { patch(b, 1024, branch, func(p []byte) { put64(p, 0, 3) }) },
		"key outside":           func(b []byte) { patch(b, 1024, branch, func(p []byte) { put64(p, 16, 0xffffffffffffffff) }) },
		"root beyond the file":  func(b []byte) { metas(b, func(m []byte) { put64(m, 16, 1<<40) }) },
		"root is a meta page":   func(b []byte) { metas(b, func(m []byte) { put64(m, 16, 1) }) },
		"root is a branch":      func(b []byte) { metas(b, func(m []byte) { put64(m, 16, uint64(branch)) }) },
		"more pages than bytes": func(b []byte) { metas(b, func(m []byte) { put64(m, 40, 1<<63) }) },
		"no pages":              func(b []byte) { metas(b, func(m []byte) { put64(m, 40, 0) }) },
		"page size 0":           func(b []byte) { metas(b, func(m []byte) { put64(m, 8, 0) }) },
		"page size 2 GB":        func(b []byte) { metas(b, func(m []byte) { put64(m, 8, 1<<31) }) },
	} {
		t.Run(name, func(t *testing.T) {
			bad := bytes.Clone(good)
			change(bad)
			path := filepath.Join(t.TempDir(), "bad.db")
			write(t, path, bad)
			bounded(t, name, func() {
				if _, err := answers(t.Context(), path); !clear10(err) {
					t.Errorf("error %v", err)
				}
			})
		})
	}
	// The count of pages looks at no key; only the pages themselves show that they
	// come up again and again.
	circle := bytes.Clone(good)
	patch(circle, 1024, branch, func(p []byte) {
		for i := 1; i < int(p[10]); i++ {
			copy(p[16+16*i+8:], p[16+8:16+16])
		}
	})
	path := filepath.Join(t.TempDir(), "circle.db")
	write(t, path, circle)
	s := open(t, path, dbfile.Options{})
	_, err = s.BytesInUse(t.Context())
	wantError(t, "count of pages", err, keyspace.ErrCorrupt, "referenced twice")
	// Two elements that share their bytes; each is in order.
	leaf := -1
	for id := 2; id < len(good)/1024; id++ {
		if p := good[id*1024:]; p[8] == 2 && p[10] > 2 && p[0] == byte(id) && p[1] == byte(id>>8) && bytes.Contains(p[:1024], []byte("key-")) {
			leaf = id
		}
	}
	overlap := bytes.Clone(good)
	patch(overlap, 1024, leaf, func(p []byte) {
		// The first element's value reaches over the second.
		p[16+12] += 8
	})
	path = filepath.Join(t.TempDir(), "overlap.db")
	write(t, path, overlap)
	if _, err := answers(t.Context(), path); !errors.Is(err, keyspace.ErrCorrupt) || !strings.Contains(err.Error(), "overlaps") {
		t.Errorf("elements that share bytes: %v", err)
	}
	// Either meta page alone is enough; the older one shows the state before.
	for id := range 2 {
		one := bytes.Clone(good)
		patch(one, 1024, id, func(p []byte) { clear(p) })
		path := filepath.Join(t.TempDir(), "one.db")
		write(t, path, one)
		s := open(t, path, dbfile.Options{})
		if n := len(records(t, s, keyspace.All())); n != 400 && n != 0 {
			t.Errorf("without meta page %d: %d records", id, n)
		}
	}
}
