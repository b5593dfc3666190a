package inspect

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest"
)

func TestDiff(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	var a, b sourcetest.Memory
	a.Put("changed", "1")
	a.Put("gone", "x")
	a.Put("rewritten", "same")
	a.Put("same", "s")
	a.Apply(sourcetest.Change{Key: []byte("lease"), Value: []byte("v"), Lease: 7})
	b.Put("changed", "2")
	b.Put("new", "n")
	b.Put("rewritten", "other")
	b.Put("same", "s")
	b.Apply(sourcetest.Change{Key: []byte("lease"), Value: []byte("v"), Lease: 8})
	b.Put("rewritten", "same")
	b.Put("zlast", "z")
	show := func(from, to keyspace.Source, ra, rb keyspace.Range) string {
		var s strings.Builder
		for d, err := range Diff(ctx, from, to, ra, rb) {
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&s, "%s %s\n", d.Kind, d.Key())
			if (d.Old == nil) != (d.Kind == Added) || (d.New == nil) != (d.Kind == Removed) {
				t.Errorf("%s: old %v, new %v", d.Key(), d.Old, d.New)
			}
		}
		return s.String()
	}
	all := keyspace.All()
	if got, want := show(&a, &b, all, all), "changed changed\nremoved gone\nchanged lease\nadded new\nrewritten rewritten\nadded zlast\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := show(&a, &a, all, all); got != "" {
		t.Errorf("with itself:\n%s", got)
	}
	old := all
	old.Rev = 4
	if got, want := show(&b, &b, old, all), "added lease\nchanged rewritten\nadded same\nadded zlast\n"; got != want {
		t.Errorf("between revisions:\n%swant\n%s", got, want)
	}
	for range Diff(ctx, &a, &b, all, all) {
		break // must not leak or hang
	}
	future := all
	future.Rev = 99
	for _, err := range Diff(ctx, &a, &b, all, future) {
		if err == nil {
			t.Error("no error for a future revision")
		}
		break
	}
}

func TestChurn(t *testing.T) {
	t.Parallel()
	var m sourcetest.Memory
	for i := range 5 {
		m.Put("/a/x", fmt.Sprint(i))
	}
	m.Put("/a/y", "1")
	m.Put("/b/z", "22")
	m.Delete("/b/z")
	rep, err := CountChurn(context.Background(), &m, ChurnOptions{Depth: 1})
	if err != nil {
		t.Fatal(err)
	}
	want := []Churn{{Prefix: "/a/", Puts: 6, Keys: 2, Bytes: 30, LastRev: 7}, {Prefix: "/b/", Puts: 1, Deletes: 1, Keys: 1, Bytes: 10, LastRev: 9}}
	if fmt.Sprint(rep.Prefixes) != fmt.Sprint(want) || rep.Total.Puts != 7 || rep.Total.Keys != 3 || rep.FromRev != 1 || rep.ToRev != 9 {
		t.Errorf("%+v", rep)
	}
	rep, err = CountChurn(context.Background(), &m, ChurnOptions{Prefix: "/a/", MinRev: 4})
	if err != nil || len(rep.Prefixes) != 2 || rep.Prefixes[0] != (Churn{Prefix: "/a/x", Puts: 3, Keys: 1, Bytes: 15, LastRev: 6}) {
		t.Errorf("%+v %v", rep, err)
	}
}

func TestLeases(t *testing.T) {
	t.Parallel()
	var m sourcetest.Memory
	for i := range 7 {
		m.Apply(sourcetest.Change{Key: fmt.Appendf(nil, "k%d", i), Value: []byte("v"), Lease: 5})
	}
	m.Apply(sourcetest.Change{Key: []byte("lost"), Value: []byte("v"), Lease: -9})
	m.Put("plain", "v")
	uses, err := Leases(context.Background(), &m, 0, []LeaseTTL{{5, 60, 30}, {6, 10, -1}})
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%+v", uses)
	want := "[{ID:5 GrantedSeconds:60 RemainingSeconds:30 Keys:7 Bytes:21 Sample:[k0 k1 k2 k3 k4] Orphan:false} " +
		"{ID:6 GrantedSeconds:10 RemainingSeconds:-1 Keys:0 Bytes:0 Sample:[] Orphan:false} " +
		"{ID:-9 GrantedSeconds:0 RemainingSeconds:-1 Keys:1 Bytes:5 Sample:[lost] Orphan:true}]"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
