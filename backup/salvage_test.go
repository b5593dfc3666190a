package backup_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcdctl-plus/etcdctl-plus/backup"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/corpus"
)

// recordsOf reads all live records of a file; a damaged one as far as it can be.
func recordsOf(tb testing.TB, path string) map[string]string {
	tb.Helper()
	s, err := dbfile.Open(tb.Context(), path, dbfile.Options{IgnoreChecksum: true})
	if err != nil {
		tb.Fatal(err)
	}
	defer s.Close()
	all := map[string]string{}
	for r, err := range s.Records(tb.Context(), keyspace.All()) {
		if err != nil {
			tb.Fatal(err)
		}
		all[string(r.Key)] = string(r.Value)
	}
	return all
}

// damaged writes a copy of the corpus that damage has changed.
func damaged(tb testing.TB, damage func([]byte) []byte) string {
	tb.Helper()
	b, err := os.ReadFile(corpus.Snapshot(tb))
	if err != nil {
		tb.Fatal(err)
	}
	path := filepath.Join(tb.TempDir(), "damaged.db")
	if err := os.WriteFile(path, damage(b), 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

// damagePage damages a page that is in use, of a kind (1 branch, 2 leaf).
func damagePage(tb testing.TB, b []byte, kind uint16, damage func(page []byte)) []byte {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "tried.db")
	for at := 2 * 4096; at+4096 <= len(b); at += 4096 {
		if binary.LittleEndian.Uint64(b[at:]) != uint64(at/4096) || binary.LittleEndian.Uint16(b[at+8:]) != kind || binary.LittleEndian.Uint16(b[at+10:]) < 3 {
			continue
		}
		tried := bytes.Clone(b)
		damage(tried[at : at+4096])
		if err := os.WriteFile(path, tried, 0o600); err != nil {
			tb.Fatal(err)
		}
		s, err := dbfile.Open(tb.Context(), path, dbfile.Options{Damaged: true})
		if err != nil {
			tb.Fatal(err)
		}
		n := 0
		_, err = s.Examine(tb.Context(), func(f dbfile.Finding) {
			if f.Bucket == "key" && !f.Records || f.Records && f.Key == nil {
				n++
			}
		})
		if err := errors.Join(err, s.Close()); err != nil {
			tb.Fatal(err)
		}
		if n > 0 {
			return tried
		}
	}
	tb.Fatalf("no page of kind %d is in use", kind)
	return nil
}

func TestSalvage(t *testing.T) {
	t.Parallel()
	whole := recordsOf(t, corpus.Snapshot(t))
	for name, c := range map[string]struct {
		damage func([]byte) []byte
		lost   int // findings at least
		most   int // keys that may be missing
	}{
		"whole": {func(b []byte) []byte { return b }, 0, 0},
		"a value, which only the checksum finds": {func(b []byte) []byte {
			b[bytes.Index(b, []byte("ClusterIP"))] ^= 1
			return b
		}, 1, 0},
		"a leaf page": {func(b []byte) []byte {
			return damagePage(t, b, 2, func(p []byte) { clear(p[:16]) })
		}, 1, 60},
		// Its leaf pages are all there, and nothing leads to them.
		"the branch page": {func(b []byte) []byte {
			return damagePage(t, b, 1, func(p []byte) { clear(p) })
		}, 1, 0},
		"one entry's key cut to 16 bytes": {func(b []byte) []byte {
			return damagePage(t, b, 2, func(p []byte) {
				last := 16 + 16*(int(binary.LittleEndian.Uint16(p[10:]))-1)
				binary.LittleEndian.PutUint32(p[last+8:], 16)
			})
		}, 1, 1},
		// An old copy of it says how far the keyspace is compacted.
		"the page of the buckets": {func(b []byte) []byte {
			root := int(binary.LittleEndian.Uint64(b[16+16:]))
			clear(b[root*4096 : root*4096+4096])
			return b
		}, 1, 0},
		"cut off before any copy of that": {func(b []byte) []byte { return b[:len(b)*2/3] }, 1, len(whole) / 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := damaged(t, c.damage)
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			out := filepath.Join(t.TempDir(), "out.db")
			s, err := backup.Salvage(t.Context(), path, out, dbfile.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if s.Lost < c.lost || c.lost == 0 && s.Lost > 0 {
				t.Errorf("%d losses were listed: %v", s.Lost, s.Findings)
			}
			after, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(before, after) {
				t.Errorf("the damaged file was changed, or %v", err)
			}
			got := recordsOf(t, out)
			missing := 0
			for k, v := range got {
				// Without its newest revisions a file is as it was before them.
				if was, ok := whole[k]; !strings.HasPrefix(name, "cut off") && (!ok || was != v && !strings.HasPrefix(name, "a value")) {
					t.Errorf("key %q was not in the file, or not so", k)
				}
			}
			for k := range whole {
				if _, ok := got[k]; !ok {
					missing++
				}
			}
			if missing > c.most || int64(len(got)) != s.Keys {
				t.Errorf("%d of %d keys are missing, %+v", missing, len(whole), s)
			}
			// What was saved is a whole file again; only its history may have gaps.
			r, found := verify(t, out, backup.VerifyOptions{Level: backup.LevelPages})
			if r.Verdict != backup.Healthy {
				t.Errorf("what was saved is %s: %v", r.Verdict, found)
			}
			if _, err := backup.Salvage(t.Context(), path, out, dbfile.Options{}); !errors.Is(err, backup.ErrExists) {
				t.Errorf("a second time over it: %v", err)
			}
			if left, _ := os.ReadDir(filepath.Dir(out)); len(left) != 1 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// A record at or below the compact revision that is only in a page without use must not
// come back: etcd may have removed it.
func TestSalvageResurrectsNothing(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(corpus.Later(t)) // compacted
	if err != nil {
		t.Fatal(err)
	}
	whole := recordsOf(t, corpus.Later(t))
	b = damagePage(t, b, 1, func(p []byte) { clear(p) })
	path, out := filepath.Join(t.TempDir(), "later.db"), filepath.Join(t.TempDir(), "out.db")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := backup.Salvage(t.Context(), path, out, dbfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := recordsOf(t, out)
	for k, v := range got {
		if whole[k] != v {
			t.Errorf("key %q came back, or is not as it was", k)
		}
	}
	if s.Carved == 0 || len(got) == len(whole) {
		t.Errorf("%+v", s)
	}
}

// A file whose checksum alone is wrong is kept whole, and said to be wrong.
func TestSalvageChecksum(t *testing.T) {
	t.Parallel()
	whole := corpus.Snapshot(t)
	path := damaged(t, func(b []byte) []byte {
		b[len(b)-5] ^= 1
		return b
	})
	out := filepath.Join(t.TempDir(), "out.db")
	s, err := backup.Salvage(t.Context(), path, out, dbfile.Options{})
	if err != nil || s.Lost != 1 || !s.OnlyChecksum || s.Findings[len(s.Findings)-1].Level != backup.LevelSeal {
		t.Fatalf("%+v, %v", s, err)
	}
	if !maps.Equal(recordsOf(t, out), recordsOf(t, whole)) {
		t.Error("the new file has other records")
	}
	if s, err := backup.Salvage(t.Context(), whole, out+"2", dbfile.Options{}); err != nil || s.Lost != 0 || s.OnlyChecksum {
		t.Errorf("of a sound one: %+v, %v", s, err)
	}
}

// Without its meta pages every page of a file is a lost one, and is found by what it says of
// itself. What is no database is still said to be none.
func TestSalvageHeadless(t *testing.T) {
	t.Parallel()
	path := damaged(t, func(b []byte) []byte {
		clear(b[:2*4096])
		return b
	})
	out := filepath.Join(t.TempDir(), "out.db")
	s, err := backup.Salvage(t.Context(), path, out, dbfile.Options{})
	if err != nil || s.Lost == 0 || s.OnlyChecksum || s.Carved != s.Records {
		t.Fatalf("%+v, %v", s, err)
	}
	if !maps.Equal(recordsOf(t, out), recordsOf(t, corpus.Snapshot(t))) {
		t.Error("the new file has other records")
	}
	r, err := backup.Verify(t.Context(), path, backup.VerifyOptions{Level: backup.LevelHash})
	if err != nil || r.Verdict != backup.Damaged {
		t.Errorf("%+v, %v", r, err)
	}
	_, err = dbfile.Open(t.Context(), path, dbfile.Options{})
	if !errors.Is(err, keyspace.ErrCorrupt) || !strings.Contains(err.Error(), "both meta pages were overwritten") {
		t.Errorf("%v", err)
	}
	zeros := damaged(t, func(b []byte) []byte {
		clear(b)
		return b
	})
	if _, err := backup.Salvage(t.Context(), zeros, out+"2", dbfile.Options{}); !errors.Is(err, keyspace.ErrNotDatabase) {
		t.Errorf("zeros: %v", err)
	}
}
