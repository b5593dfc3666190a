package tail

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/watchtail"
)

// objects opens the decoder where objects are wanted. Custom resources are found in src.
func (o *options) objects(ctx context.Context, open func(context.Context) (keyspace.Source, error)) error {
	if !o.decode && !o.diff && !o.filter.needsKubernetes() {
		return nil
	}
	if _, err := o.decoder.Options(); err != nil {
		return err
	}
	src, err := open(ctx)
	if err != nil {
		return err
	}
	if o.dec, err = o.decoder.OpenIfAllowed(ctx, src, 0); err != nil {
		return err
	}
	for _, k := range o.filter.kinds {
		if _, err := o.dec.Mapper.Find(k); err != nil {
			return cli.Usagef("--kind %q: %v", k, err)
		}
	}
	return nil
}

// previous tells whether the record before a change is needed.
func (o *options) previous() bool { return o.prev || o.diff || o.filter.needsObject() }

// candidate is an event that may be shown.
type candidate struct {
	e *keyspace.Event
	v event

	decoded bool
	value   cli.Value // of the record, of a deletion of the one before
}

// choose returns the events of a step that are to be shown.
func (o *options) choose(s watchtail.Step) ([]*candidate, error) {
	shown := make([]*candidate, 0, len(s.Events))
	for i := range s.Events {
		e := &s.Events[i]
		if !o.filter.byKey(e) {
			continue
		}
		c := &candidate{e: e, v: eventOf(e, o.prev)}
		if s.List == watchtail.ListPart {
			c.v.Origin, c.v.Revision, c.v.ModRev = s.Origin.String(), s.Rev, e.Record.ModRev
		}
		ok, err := o.fits(c)
		if err != nil {
			return nil, err
		}
		if ok {
			shown = append(shown, c)
		}
	}
	return shown, nil
}

// fits decodes what is to be shown, and decides what the object decides.
func (o *options) fits(c *candidate) (bool, error) {
	if o.dec == nil {
		return true, nil
	}
	if !o.ofKind(c.e.Record.Key) {
		return false, nil
	}
	if o.filter.selector != "" && !o.filter.match.Matches(labelsOf(o.object(c).JSON())) {
		return false, nil
	}
	if o.decode {
		o.withObject(c)
	}
	if o.diff {
		if err := o.withChanges(c); err != nil {
			return false, err
		}
	}
	if o.filter.query == nil {
		return true, nil
	}
	asked := *c
	o.withObject(&asked)
	if c.e.Type == keyspace.Delete { // it is asked of the object that went
		asked.v.Object = o.object(c).JSON()
	}
	line, err := appendJSON(nil, &asked.v, c.e)
	if err != nil {
		return false, err
	}
	ok, err := o.filter.passes(line)
	if err != nil && !o.filter.told {
		o.filter.told = true
		o.env.Warn("--where: %q at revision %d: %v; such events are let through", c.e.Record.Key, c.e.Rev.Main, err)
	}
	return ok, nil
}

// ofKind decides by namespace and kind.
func (o *options) ofKind(key []byte) bool {
	if o.filter.namespace == "" && len(o.filter.kinds) == 0 {
		return true
	}
	info, ok := o.dec.Mapper.Parse(key)
	if !ok || o.filter.namespace != "" && info.Namespace != o.filter.namespace {
		return false
	}
	return len(o.filter.kinds) == 0 || slices.ContainsFunc(o.filter.kinds, func(k string) bool {
		all, err := o.dec.Mapper.Find(k)
		if err != nil {
			return false // it was found before
		}
		for i := range all {
			if all[i].Plural == info.Resource.Plural && all[i].Group == info.Resource.Group {
				return true
			}
		}
		return false
	})
}

// object decodes a record once, of a deletion the one before.
func (o *options) object(c *candidate) cli.Value {
	if c.decoded {
		return c.value
	}
	c.decoded = true
	switch {
	case c.e.Type == keyspace.Put:
		c.value = o.dec.Value(c.e.Record)
	case c.e.Prev != nil:
		c.value = o.dec.Value(*c.e.Prev)
	}
	return c.value
}

// withObject puts the object into the line, in place of the stored bytes.
func (o *options) withObject(c *candidate) {
	if c.e.Type == keyspace.Delete {
		return
	}
	val := o.object(c)
	c.v.Encoding, c.v.Encryption, c.v.Object, c.v.Problem = val.Encoding, val.Encryption, val.Object, val.Problem
	c.v.Value, c.v.ValueBase64 = val.Text, val.Bytes
	if p := c.e.Prev; p != nil && c.v.Prev != nil {
		before := o.dec.Value(*p)
		c.v.Prev.Object, c.v.Prev.Value, c.v.Prev.ValueBase64 = before.Object, before.Text, before.Bytes
	}
}

func (o *options) withChanges(c *candidate) error {
	if c.e.Type == keyspace.Delete || c.e.Prev == nil {
		return nil
	}
	before, now := o.dec.Value(*c.e.Prev).JSON(), o.object(c).JSON()
	if before == nil || now == nil {
		return nil
	}
	all, err := inspect.Changes(before, now)
	if err != nil {
		return fmt.Errorf("compare versions of %q at revision %d: %w", c.e.Record.Key, c.e.Rev.Main, err)
	}
	c.v.Changes = slices.DeleteFunc(all, func(c inspect.Change) bool { return strings.HasPrefix(c.Path, ".metadata.managedFields") })
	if c.v.Manager = writer(before, now); c.v.Manager == "" && len(c.v.Changes) > 0 {
		c.v.Manager = owner(now, c.v.Changes)
	}
	return nil
}

// meta is what is read of an object's metadata.
type meta struct {
	Metadata struct {
		Labels        map[string]string `json:"labels"`
		ManagedFields []managed         `json:"managedFields"`
	} `json:"metadata"`
}

// managed is one manager's entry. Each write of it sets its time anew.
type managed struct {
	Manager     string `json:"manager"`
	Operation   string `json:"operation"`
	Subresource string `json:"subresource"`
	Time        string `json:"time"`
}

// ownership is a manager's entry with the fields that it wrote last.
type ownership struct {
	Metadata struct {
		ManagedFields []struct {
			Manager  string          `json:"manager"`
			FieldsV1 json.RawMessage `json:"fieldsV1"`
		} `json:"managedFields"`
	} `json:"metadata"`
}

func labelsOf(object []byte) labels.Set {
	var m meta
	if object == nil || json.Unmarshal(object, &m) != nil {
		return nil
	}
	return m.Metadata.Labels
}

// writer is the manager whose entry the change has made or set anew; "": it cannot be told.
func writer(before, now []byte) string {
	var a, b meta
	if json.Unmarshal(before, &a) != nil || json.Unmarshal(now, &b) != nil {
		return ""
	}
	var newest managed
	for _, m := range b.Metadata.ManagedFields {
		if !slices.Contains(a.Metadata.ManagedFields, m) && m.Time >= newest.Time { // RFC 3339 orders by itself
			newest = m
		}
	}
	return newest.Manager
}

// owner is the one manager that owns a field which has changed: it has written it last, also
// where its entry has the time of another write within the same second; "": several do, or
// none.
func owner(now []byte, changes []inspect.Change) string {
	var o ownership
	if json.Unmarshal(now, &o) != nil {
		return ""
	}
	for _, c := range changes {
		path := fieldsOf(c.Path)
		if len(path) == 0 {
			continue
		}
		var names []string
		for _, m := range o.Metadata.ManagedFields {
			if owns(m.FieldsV1, path) && !slices.Contains(names, m.Manager) {
				names = append(names, m.Manager)
			}
		}
		if len(names) == 1 {
			return names[0]
		}
	}
	return ""
}

// steps are the parts of a path as inspect.Change has it: .name, ["name"], [key=value].
var steps = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\.([^.\[]+)|\["((?:[^"\\]|\\.)*)"\]|\[([a-z][A-Za-z]*)=([^\]]*)\]`)
})

// fieldsOf is a path as Kubernetes' FieldsV1 names it; nil when it has a place in a list.
func fieldsOf(path string) (out []string) {
	at := 0
	for _, m := range steps().FindAllStringSubmatchIndex(path, -1) {
		if m[0] != at {
			return nil
		}
		at = m[1]
		part := func(i int) string { return path[m[2*i]:m[2*i+1]] }
		switch {
		case m[2] >= 0:
			out = append(out, "f:"+part(1))
		case m[4] >= 0:
			var name string
			if json.Unmarshal([]byte(`"`+part(2)+`"`), &name) != nil {
				return nil
			}
			out = append(out, "f:"+name)
		default:
			value, err := json.Marshal(part(4))
			if err != nil {
				return nil
			}
			out = append(out, `k:{"`+part(3)+`":`+string(value)+"}")
		}
	}
	if at != len(path) {
		return nil
	}
	return out
}

// owns tells whether a path is in a set of fields; one that ends early holds what is below.
func owns(fields json.RawMessage, path []string) bool {
	var set map[string]json.RawMessage
	if json.Unmarshal(fields, &set) != nil {
		return false
	}
	below, ok := set[path[0]]
	if !ok || len(path) == 1 || string(below) == "{}" {
		return ok
	}
	return owns(below, path[1:])
}
