package dbfile_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// TestLargeOrder reads a file that is large enough for two cores to share the
// ordering, with keys that agree in little, in much, in their first eight bytes,
// and in all but zeros at the end. A map is the oracle.
func TestLargeOrder(t *testing.T) {
	t.Parallel()
	shapes := []func(i int) string{
		func(i int) string { return fmt.Sprintf("/registry/pods/team-%02d/web-%05d", i%37, i) },
		func(i int) string { return fmt.Sprintf("%x", uint64(i)*0x9e3779b97f4a7c15) },
		func(i int) string { return fmt.Sprintf("samehead/%d", i) },
		func(i int) string { return "zeros" + string(make([]byte, i%5000)) },
		func(i int) string { return fmt.Sprintf("key%d\x00", i%50) },
	}
	const total = 60_000
	r := rand.New(rand.NewPCG(1, 2))
	live := map[string]int64{}
	versions := map[string]int64{}
	created := map[string]int64{}
	evs := make([]keyspace.Event, 0, total)
	at := map[int64]map[string]int64{} // what was live at some revisions
	for i := range total {
		rev := int64(i + 2)
		key := shapes[r.IntN(len(shapes))](r.IntN(20_000))
		e := keyspace.Event{Rev: keyspace.Revision{Main: rev}, Record: keyspace.Record{Key: []byte(key), ModRev: rev}}
		if _, ok := live[key]; ok && r.IntN(4) == 0 {
			e.Type = keyspace.Delete
			delete(live, key)
			delete(versions, key)
		} else {
			if versions[key]++; versions[key] == 1 {
				created[key] = rev
			}
			e.Record.Version, e.Record.CreateRev, e.Record.Value = versions[key], created[key], []byte("v")
			live[key] = rev
		}
		evs = append(evs, e)
		if i%(total/7) == 0 || i == total-1 {
			at[rev] = maps.Clone(live)
		}
	}
	b := build(t, 4096)
	b.events(evs)
	src, err := dbfile.Open(t.Context(), b.done(), dbfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	for rev, live := range at {
		r := keyspace.All()
		r.Rev = rev
		want := slices.Sorted(maps.Keys(live))
		i := 0
		for rec, err := range src.Records(context.Background(), r) {
			if err != nil {
				t.Fatal(err)
			}
			if i >= len(want) || !bytes.Equal(rec.Key, []byte(want[i])) || rec.ModRev != live[want[i]] || string(rec.Value) != "v" {
				t.Fatalf("revision %d: record %d is %.40q at %d", rev, i, rec.Key, rec.ModRev)
			}
			i++
		}
		if i != len(want) {
			t.Errorf("revision %d: %d records, want %d", rev, i, len(want))
		}
	}
	// A consumer that stops in the middle, or closes the source there, leaves nobody
	// who still reads.
	for rec, err := range src.Records(context.Background(), keyspace.All()) {
		if err != nil || len(rec.Key) == 0 {
			t.Fatal(rec, err)
		}
		break
	}
	n, last := 0, error(nil)
	for _, err := range src.Records(context.Background(), keyspace.All()) {
		if last = err; err == nil {
			n++
		}
		if n == 1000 {
			src.Close()
		}
	}
	if !errors.Is(last, dbfile.ErrClosed) || n < 1000 || n >= len(live) {
		t.Errorf("closed after 1000 records, ended after %d of %d with %v", n, len(live), last)
	}
}
