package dbfile_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/corpus"
)

func open(tb testing.TB, path string, o dbfile.Options) *dbfile.Source {
	tb.Helper()
	s, err := dbfile.Open(context.Background(), path, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

func records(tb testing.TB, s keyspace.Source, r keyspace.Range) []keyspace.Record {
	tb.Helper()
	var out []keyspace.Record
	for rec, err := range s.Records(context.Background(), r) {
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, rec)
	}
	return out
}

func events(tb testing.TB, s keyspace.HistorySource, r keyspace.EventRange) []keyspace.Event {
	tb.Helper()
	var out []keyspace.Event
	for ev, err := range s.Events(context.Background(), r) {
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, ev)
	}
	return out
}

// Done when 4 of the corpus: every event of both files.
func TestCorpus(t *testing.T) {
	for _, c := range []struct {
		name, dir    string
		path         func(testing.TB) string
		rev, compact int64
	}{
		{"snapshot", "", corpus.Snapshot, 1491, 0},
		{"later", "later/", corpus.Later, 1652, 1590},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := c.path(t)
			sourcetest.Untouched(t, path)
			s := open(t, path, dbfile.Options{})
			info, err := s.Info(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if info.Revision != c.rev || info.CompactRev != c.compact || info.Kind != keyspace.Snapshot || info.Version != "3.7" || info.CompactScheduled != 0 {
				t.Errorf("Info = %+v", info)
			}
			var got strings.Builder
			fmt.Fprintln(&got, "mod_rev\ttype\tkey\tcreate_rev\tversion\tlease\tvalue_len\tvalue_sha256")
			for _, e := range events(t, s, keyspace.EventRange{Key: []byte{0}, End: []byte{0}, MinRev: c.compact + 1}) {
				r := e.Record
				sum := ""
				if e.Type == keyspace.Put {
					sum = fmt.Sprintf("%x", sha256.Sum256(r.Value))
				}
				fmt.Fprintf(&got, "%d\t%s\t%s\t%d\t%d\t%d\t%d\t%s\n", r.ModRev, e.Type, r.Key, r.CreateRev, r.Version, r.Lease, len(r.Value), sum)
			}
			want := corpus.Truth(t, c.dir+"history.tsv")
			if got.String() != string(want) {
				t.Errorf("history differs: %s", firstDifference(got.String(), string(want)))
			}
			compareKeys(t, corpus.Truth(t, c.dir+"keys.tsv"), records(t, s, keyspace.All()))
		})
	}
}

func compareKeys(t *testing.T, truth []byte, got []keyspace.Record) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(string(truth)), "\n")[1:]
	want := map[string]string{}
	for _, l := range lines {
		f := strings.Split(l, "\t")
		want[f[0]] = strings.Join([]string{f[1], f[2], f[3], f[4], f[5], f[len(f)-1]}, " ")
	}
	var last []byte
	n := 0
	for _, r := range got {
		if bytes.Compare(r.Key, last) <= 0 {
			t.Errorf("%q comes after %q", r.Key, last)
		}
		last = r.Key
		w, ok := want[string(r.Key)]
		if !ok {
			if strings.HasPrefix(string(r.Key), "/registry/") {
				t.Errorf("%q is not in the truth", r.Key)
			}
			continue
		}
		n++
		g := fmt.Sprintf("%d %d %d %d %d %x", r.CreateRev, r.ModRev, r.Version, r.Lease, len(r.Value), sha256.Sum256(r.Value))
		if g != w {
			t.Errorf("%q: got %s, want %s", r.Key, g, w)
		}
	}
	if n != len(lines) {
		t.Errorf("%d of %d keys found", n, len(lines))
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d:\n got %s\nwant %s", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(g), len(w))
}
