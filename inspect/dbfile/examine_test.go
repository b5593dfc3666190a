package dbfile_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/corpus"
)

// healthy examines a file that is whole.
func healthy(tb testing.TB, s *dbfile.Source) dbfile.Examined {
	tb.Helper()
	sum, err := s.Examine(tb.Context(), func(f dbfile.Finding) { tb.Errorf("a finding in a whole file: %v", f) })
	if err != nil {
		tb.Error(err)
	}
	return sum
}

func TestExamineCorpus(t *testing.T) {
	t.Parallel()
	for _, path := range []string{corpus.Snapshot(t), corpus.Later(t)} {
		s := open(t, path, dbfile.Options{})
		sum := healthy(t, s)
		if n := int64(len(records(t, s, keyspace.All()))); sum.Keys != n || sum.Records <= n || sum.Pages < 10 {
			t.Errorf("%+v, want %d keys", sum, n)
		}
	}
}

// Flipped bits of a snapshot: whatever Examine says, it ends, without a panic; and a
// flip that changes what the file answers is found, or is in a value.
func TestExamineFlips(t *testing.T) {
	t.Parallel()
	whole := smallSnapshot(t)
	whole = whole[:len(whole)-32]
	path := filepath.Join(t.TempDir(), "db")
	rng := rand.New(rand.NewPCG(7, 7))
	found := 0
	for i := range 600 {
		b := append([]byte(nil), whole...)
		at := rng.IntN(len(b))
		if i%2 == 0 { // most of a file is values; here are the heads of pages and elements
			at = at/4096*4096 + at%256
		}
		b[at] ^= 1 << rng.IntN(8)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := dbfile.Open(t.Context(), path, dbfile.Options{})
		if err != nil {
			found++
			continue
		}
		n := 0
		sum, err := s.Examine(t.Context(), func(dbfile.Finding) { n++ })
		if err != nil {
			t.Errorf("byte %d: %v", at, err)
		}
		if n > 0 {
			found++
		} else if sum.Keys != 199 || sum.Records != 301 {
			t.Errorf("byte %d: no finding, %+v", at, sum)
		}
		s.Close()
	}
	t.Logf("%d of 600 flips were found", found)
	if found < 50 {
		t.Errorf("only %d of 600 flips were found", found)
	}
}
