// Package validate tells whether the output of a tail is what it promises, by the history
// that it was made of.
//
// The properties are those of etcd's robustness tests for watches: ordered, unique, atomic,
// reliable, resumable, bookmarkable, and what they say of previous values and of creations,
// and of the keys that were asked for.
package validate

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// Event is one line of a tail's jsonl.
type Event struct {
	Revision    int64   `json:"revision"`
	I           int     `json:"i"`
	N           int     `json:"n"`
	Type        string  `json:"type"`
	Key         string  `json:"key"`
	KeyBase64   []byte  `json:"keyBase64"`
	CreateRev   int64   `json:"createRevision"`
	Version     int64   `json:"version"`
	Value       *string `json:"value"`
	ValueBase64 []byte  `json:"valueBase64"`
	Prev        *struct {
		ModRev      int64   `json:"modRevision"`
		Value       *string `json:"value"`
		ValueBase64 []byte  `json:"valueBase64"`
	} `json:"prev"`
}

func (e *Event) key() string {
	if e.KeyBase64 != nil {
		return string(e.KeyBase64)
	}
	return e.Key
}

func either(s *string, b []byte) string {
	if s != nil {
		return *s
	}
	return string(b)
}

// Read reads a tail's jsonl. A last line without its end is an error too.
func Read(r io.Reader) ([]Event, error) {
	var out []Event
	in := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if err == io.EOF && len(line) == 0 {
			return out, nil
		}
		if err != nil {
			return out, fmt.Errorf("line %d is torn: %w", n, err)
		}
		var e Event
		if err := json.Unmarshal(bytes.TrimSpace(line), &e); err != nil {
			return out, fmt.Errorf("line %d: %w", n, err)
		}
		out = append(out, e)
	}
}

// Violation is a property that does not hold.
type Violation struct {
	Property string
	Revision int64
	What     string
}

func (v Violation) Error() string {
	return fmt.Sprintf("not %s at revision %d: %s", v.Property, v.Revision, v.What)
}

// Options say what was asked for.
type Options struct {
	Selected func(key []byte) bool // nil: every key
	From, To int64                 // the revisions that must be there; To 0: up to the last that came
	Prev     bool                  // previous values were asked for
}

// Check compares got with the history want, which is whole from Options.From on and, for
// previous values, before it.
func Check(got []Event, want []keyspace.Event, o Options) []Violation {
	c := checker{o: o}
	c.itself(got)
	c.against(got, want)
	return c.found
}

type checker struct {
	o     Options
	found []Violation
}

func (c *checker) say(property string, rev int64, format string, a ...any) {
	c.found = append(c.found, Violation{property, rev, fmt.Sprintf(format, a...)})
}

// itself looks at the output alone.
func (c *checker) itself(got []Event) {
	type place struct {
		rev int64
		key string
	}
	seen := map[place]bool{}
	var last Event
	for i := range got {
		e := &got[i]
		switch {
		case e.Revision < last.Revision:
			c.say("ordered", e.Revision, "it comes after %d", last.Revision)
		case e.Revision == last.Revision && (e.I != last.I+1 || e.N != last.N), e.Revision != last.Revision && e.I != 1:
			c.say("atomic", e.Revision, "event %d of %d follows %d of %d of revision %d", e.I, e.N, last.I, last.N, last.Revision)
		case e.Revision != last.Revision && last.I != last.N:
			c.say("atomic", last.Revision, "it ends with event %d of %d", last.I, last.N)
		}
		p := place{e.Revision, e.key()}
		if seen[p] {
			c.say("unique", e.Revision, "key %q comes again", p.key)
		}
		seen[p] = true
		last = *e
	}
	if last.I != last.N {
		c.say("atomic", last.Revision, "it ends with event %d of %d", last.I, last.N)
	}
}

// against compares the output with the history, event by event.
func (c *checker) against(got []Event, want []keyspace.Event) {
	to := c.o.To
	if to == 0 && len(got) > 0 {
		to = got[len(got)-1].Revision
	}
	state := map[string]keyspace.Record{}
	i := 0
	for _, w := range want {
		key := string(w.Record.Key)
		prev, had := state[key]
		if w.Type == keyspace.Put {
			state[key] = w.Record
		} else {
			delete(state, key)
		}
		if w.Rev.Main < c.o.From || w.Rev.Main > to || c.o.Selected != nil && !c.o.Selected(w.Record.Key) {
			continue
		}
		// What came and is not in the history at that place.
		for i < len(got) && (got[i].Revision < w.Rev.Main) {
			c.extra(&got[i])
			i++
		}
		if i == len(got) || got[i].Revision != w.Rev.Main || got[i].key() != key {
			c.say("reliable", w.Rev.Main, "%s of %q is missing", w.Type, key)
			continue
		}
		c.equal(&got[i], w, prev, had)
		i++
	}
	for ; i < len(got); i++ {
		c.extra(&got[i])
	}
}

func (c *checker) extra(e *Event) {
	if c.o.Selected != nil && !c.o.Selected([]byte(e.key())) {
		c.say("filtered", e.Revision, "key %q was not asked for", e.key())
		return
	}
	c.say("reliable", e.Revision, "%s of %q is not in the history there", e.Type, e.key())
}

func (c *checker) equal(e *Event, w keyspace.Event, prev keyspace.Record, had bool) {
	r := w.Record
	if e.Type != w.Type.String() {
		c.say("reliable", e.Revision, "%q: it is %s, was %s", r.Key, e.Type, w.Type)
		return
	}
	if w.Type == keyspace.Put {
		if either(e.Value, e.ValueBase64) != string(r.Value) || e.Version != r.Version || e.CreateRev != r.CreateRev {
			c.say("reliable", e.Revision, "%q: the record differs", r.Key)
		}
		if create := e.Version == 1 && e.CreateRev == e.Revision; create == had {
			c.say("right about creations", e.Revision, "%q: version %d, and it was there before: %t", r.Key, e.Version, had)
		}
	}
	if !c.o.Prev {
		return
	}
	switch {
	case had != (e.Prev != nil):
		c.say("right about previous values", e.Revision, "%q: there was one: %t, it has one: %t", r.Key, had, e.Prev != nil)
	case had && (e.Prev.ModRev != prev.ModRev || either(e.Prev.Value, e.Prev.ValueBase64) != string(prev.Value)):
		c.say("right about previous values", e.Revision, "%q: of revision %d, was %d", r.Key, e.Prev.ModRev, prev.ModRev)
	}
}

// Bookmark checks that up to a revision, which a checkpoint or a progress notice names, the
// history's selected events are all in got.
func Bookmark(got []Event, want []keyspace.Event, rev int64, o Options) []Violation {
	var upTo []Event
	for _, e := range got {
		if e.Revision <= rev {
			upTo = append(upTo, e)
		}
	}
	o.To = rev
	c := checker{o: o}
	c.against(upTo, want)
	for i := range c.found {
		c.found[i].Property = "bookmarkable"
	}
	return c.found
}
