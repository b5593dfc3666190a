package keyspace_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest"
)

func TestUnder(t *testing.T) {
	t.Parallel()
	m := &sourcetest.Memory{}
	for _, k := range []string{"p", "p/", "p/a", "p/b", "p/b/c", "p/\xff", "p0", "o/a"} {
		m.Put(k, "1")
	}
	m.Put("p/b", "2")
	m.Delete("p/a")
	src := keyspace.Under([]byte("p/"), m)
	if keyspace.Base(src) != keyspace.Source(m) || keyspace.Under(nil, m) != keyspace.Source(m) {
		t.Error("the base is another one")
	}
	for _, c := range []struct {
		r    keyspace.Range
		want []string
	}{
		{keyspace.All(), []string{"b", "b/c", "\xff"}},
		{keyspace.Prefix([]byte("b")), []string{"b", "b/c"}},
		{keyspace.From([]byte("b/")), []string{"b/c", "\xff"}},
		{keyspace.One([]byte("b")), []string{"b"}},
		{keyspace.One([]byte("a")), nil},
		{keyspace.Range{Key: []byte("a"), End: []byte("b/")}, []string{"b"}},
		{keyspace.Range{Key: []byte{0}, End: []byte{0}, Rev: 9}, []string{"a", "b", "b/c", "\xff"}},
		{keyspace.Prefix([]byte("\xff")), []string{"\xff"}},
	} {
		var got []string
		for rec, err := range src.Records(t.Context(), c.r) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(rec.Key))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q to %q: %q, want %q", c.r.Key, c.r.End, got, c.want)
		}
	}
	var got []string
	for e, err := range src.(keyspace.HistorySource).Events(t.Context(), keyspace.EventRange{Key: []byte{0}, End: []byte{0}, MinRev: 9, Prev: true}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%v %s after %s=%s", e.Type, e.Record.Key, e.Prev.Key, e.Prev.Value))
	}
	if want := []string{"PUT b after b=1", "DELETE a after a=1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if _, ok := keyspace.Under([]byte("p/"), noHistory{m}).(keyspace.HistorySource); ok {
		t.Error("a history out of nothing")
	}
}

type noHistory struct{ keyspace.Source }
