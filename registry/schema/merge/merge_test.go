package merge

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/etcdctl-plus/etcdctl-plus/registry/schema/describe"
)

func twoVersions() []Versioned {
	return []Versioned{
		{"v2", &describe.Table{
			Kinds:    []describe.Kind{{APIVersion: "v1", Kind: "New", Message: "p.New"}},
			Messages: []describe.Message{{Name: "p.New", Fields: []describe.Field{{Number: 2, Name: "b", Type: "string", OmitEmpty: true}, {Number: 1, Name: "a", Type: "map", Value: "bytes"}}}},
		}},
		{"v1", &describe.Table{
			Kinds: []describe.Kind{{APIVersion: "v1", Kind: "Gone", Message: "p.Gone"}, {APIVersion: "v1", Kind: "New", Message: "p.New"}},
			Messages: []describe.Message{
				{Name: "p.Gone", Fields: []describe.Field{{Number: 1, Name: "x", Type: "p.New", List: true, Pointer: true}}},
				{Name: "p.New", Fields: []describe.Field{
					{Number: 1, Name: "other", Type: "int32"}, // its number is taken
					{Number: 4, Name: "b", Type: "int64"},     // its name is taken
					{Number: 3, Name: "c", Type: "bool", OmitZero: true, Inline: false},
				}},
			},
		}},
	}
}

func TestNewestWins(t *testing.T) {
	t.Parallel()
	m := Tables(twoVersions())
	want := &Table{
		Versions: []string{"v2", "v1"},
		Kinds: []Kind{
			{describe.Kind{APIVersion: "v1", Kind: "Gone", Message: "p.Gone"}, 1},
			{describe.Kind{APIVersion: "v1", Kind: "New", Message: "p.New"}, 0},
		},
		Messages: []Message{
			{"p.Gone", []Field{{describe.Field{Number: 1, Name: "x", Type: "p.New", List: true, Pointer: true}, 1, false}}},
			{"p.New", []Field{
				{describe.Field{Number: 2, Name: "b", Type: "string", OmitEmpty: true}, 0, false},
				{describe.Field{Number: 1, Name: "a", Type: "map", Value: "bytes"}, 0, false},
				{describe.Field{Number: 3, Name: "c", Type: "bool", OmitZero: true}, 1, true},
			}},
		},
	}
	if !reflect.DeepEqual(m, want) {
		t.Errorf("got  %+v\nwant %+v", m, want)
	}
	if got, want := m.Summary(), "2 kinds (1 removed), 2 messages, 4 fields (1 retired)"; got != want {
		t.Errorf("summary %q, want %q", got, want)
	}
}

func TestFileRoundTrip(t *testing.T) {
	t.Parallel()
	m := Tables(twoVersions())
	b, err := Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Encode(Tables(twoVersions()))
	if err != nil || !bytes.Equal(b, again) {
		t.Errorf("the same table gave other bytes (%v)", err)
	}
	got, err := Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, m) {
		t.Errorf("got  %+v\nwant %+v", got, m)
	}
	for i := range b {
		if _, err := Decode(b[:i]); err == nil {
			t.Fatalf("a file cut to %d of %d bytes was accepted", i, len(b))
		}
	}
}
