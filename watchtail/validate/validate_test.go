package validate_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/watchtail/validate"
)

// history writes three keys in one revision, changes and deletes them.
func history() (want []keyspace.Event, got []validate.Event) {
	state := map[string]keyspace.Record{}
	put := func(rev, sub int64, key string) {
		r := keyspace.Record{Key: []byte(key), Value: fmt.Appendf(nil, "v%d", rev), CreateRev: rev, ModRev: rev, Version: 1}
		if old, ok := state[key]; ok {
			r.CreateRev, r.Version = old.CreateRev, old.Version+1
		}
		state[key] = r
		want = append(want, keyspace.Event{Rev: keyspace.Revision{Main: rev, Sub: sub}, Record: r})
	}
	del := func(rev int64, key string) {
		delete(state, key)
		want = append(want, keyspace.Event{Type: keyspace.Delete, Rev: keyspace.Revision{Main: rev}, Record: keyspace.Record{Key: []byte(key), ModRev: rev}})
	}
	put(2, 0, "a")
	put(3, 0, "a")
	put(3, 1, "b")
	put(3, 2, "c")
	put(4, 0, "other")
	put(5, 0, "b")
	del(6, "a")
	put(7, 0, "a")
	prev := map[string]keyspace.Record{}
	for _, w := range want {
		e := validate.Event{Revision: w.Rev.Main, I: int(w.Rev.Sub) + 1, N: 1, Type: w.Type.String(), Key: string(w.Record.Key), CreateRev: w.Record.CreateRev, Version: w.Record.Version}
		if w.Rev.Main == 3 {
			e.N = 3
		}
		if w.Type == keyspace.Put {
			v := string(w.Record.Value)
			e.Value = &v
		}
		if p, ok := prev[e.Key]; ok {
			v := string(p.Value)
			b, err := json.Marshal(map[string]any{"prev": map[string]any{"modRevision": p.ModRev, "value": v}})
			if err != nil || json.Unmarshal(b, &e) != nil {
				panic(err)
			}
		}
		prev[e.Key] = w.Record
		if w.Type == keyspace.Delete {
			delete(prev, e.Key)
		}
		if e.Key != "other" {
			got = append(got, e)
		}
	}
	return want, got
}

func selected(key []byte) bool { return string(key) != "other" }

// Every kind of fault that is planted is found, as what it is, and nothing is found without.
func TestPlanted(t *testing.T) {
	t.Parallel()
	other := "else"
	for _, c := range []struct {
		name, property string
		plant          func(e []validate.Event) []validate.Event
	}{
		{"nothing", "", func(e []validate.Event) []validate.Event { return e }},
		{"lost", "reliable", func(e []validate.Event) []validate.Event { return slices.Delete(e, 4, 5) }},
		{"lost at the end", "reliable", func(e []validate.Event) []validate.Event { return e[:len(e)-1] }},
		{"lost inside of a revision", "atomic", func(e []validate.Event) []validate.Event { return slices.Delete(e, 2, 3) }},
		{"repeated", "unique", func(e []validate.Event) []validate.Event { return slices.Insert(e, 5, e[4]) }},
		{"a revision repeated", "ordered", func(e []validate.Event) []validate.Event { return slices.Insert(e, 5, e[1], e[2], e[3]) }},
		{"reordered", "ordered", func(e []validate.Event) []validate.Event { e[4], e[5] = e[5], e[4]; return e }},
		{"reordered inside of a revision", "atomic", func(e []validate.Event) []validate.Event { e[1], e[2] = e[2], e[1]; return e }},
		{"split", "atomic", func(e []validate.Event) []validate.Event { return slices.Insert(slices.Delete(e, 3, 4), 4, e[3]) }},
		{"torn at the end", "atomic", func(e []validate.Event) []validate.Event { return e[:3] }},
		{"not asked for", "filtered", func(e []validate.Event) []validate.Event {
			return slices.Insert(e, 4, validate.Event{Revision: 4, I: 1, N: 1, Type: "PUT", Key: "other", Version: 1})
		}},
		{"another value", "reliable", func(e []validate.Event) []validate.Event { e[4].Value = &other; return e }},
		{"invented", "reliable", func(e []validate.Event) []validate.Event {
			return append(e, validate.Event{Revision: 9, I: 1, N: 1, Type: "PUT", Key: "x", Version: 1})
		}},
		{"a wrong previous value", "right about previous values", func(e []validate.Event) []validate.Event { e[4].Prev.Value = &other; return e }},
		{"no previous value", "right about previous values", func(e []validate.Event) []validate.Event { e[4].Prev = nil; return e }},
		{"not a creation", "right about creations", func(e []validate.Event) []validate.Event { e[0].Version = 2; return e }},
	} {
		want, got := history()
		found := validate.Check(c.plant(got), want, validate.Options{Selected: selected, From: 2, To: 7, Prev: true})
		if c.property == "" {
			if len(found) > 0 {
				t.Errorf("%s: %v", c.name, found)
			}
			continue
		}
		if !slices.ContainsFunc(found, func(v validate.Violation) bool { return v.Property == c.property }) {
			t.Errorf("%s: not found: %v", c.name, found)
		}
	}
}

func TestBookmark(t *testing.T) {
	t.Parallel()
	want, got := history()
	o := validate.Options{Selected: selected, From: 2}
	if v := validate.Bookmark(got, want, 5, o); len(v) > 0 {
		t.Error(v)
	}
	if v := validate.Bookmark(got[:4], want, 4, o); len(v) > 0 {
		t.Error(v)
	}
	if v := validate.Bookmark(got[:4], want, 5, o); len(v) != 1 || v[0].Property != "bookmarkable" {
		t.Errorf("a bookmark ahead of the events: %v", v)
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	_, got := history()
	var b bytes.Buffer
	for _, e := range got {
		line, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(line, '\n'))
	}
	if back, err := validate.Read(bytes.NewReader(b.Bytes())); err != nil || len(back) != len(got) {
		t.Errorf("%d lines, %v", len(back), err)
	}
	for _, bad := range []string{b.String()[:b.Len()-1], strings.Replace(b.String(), "{", "", 1)} {
		if _, err := validate.Read(strings.NewReader(bad)); err == nil {
			t.Error("a damaged file is read")
		}
	}
}
