package inspect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Change is one difference between two JSON documents. Old is nil when the
// value was added, New when it was removed; both are compact JSON.
type Change struct {
	Path string          `json:"path"` // .spec.replicas, .metadata.labels["a.b/c"], .spec.containers[name=web].image
	Old  json.RawMessage `json:"old,omitempty"`
	New  json.RawMessage `json:"new,omitempty"`
}

// String says it in one line.
func (c Change) String() string {
	switch {
	case c.Old == nil:
		return c.Path + ": added " + string(c.New)
	case c.New == nil:
		return c.Path + ": removed " + string(c.Old)
	default:
		return c.Path + ": " + string(c.Old) + " → " + string(c.New)
	}
}

// Changes lists the differences between two JSON documents in the order of the
// new one (what was removed comes last in its object). Of two lists whose items
// are all objects with a distinct name, key, type or id of its own, items are
// matched by it, else by position. Nil documents count as absent.
func Changes(old, current []byte) ([]Change, error) {
	a, err := parse(old)
	if err != nil {
		return nil, fmt.Errorf("old document: %w", err)
	}
	b, err := parse(current)
	if err != nil {
		return nil, fmt.Errorf("new document: %w", err)
	}
	var out []Change
	diff(&out, "", a, b)
	return out, nil
}

// node keeps the order of members and the digits of numbers.
type node struct {
	raw    json.RawMessage
	fields []field // of an object
	items  []*node // of an array
	kind   byte    // '{', '[', or 'v'
}

type field struct {
	name string
	val  *node
}

func (n *node) field(name string) *node {
	for _, f := range n.fields {
		if f.name == name {
			return f.val
		}
	}
	return nil
}

func parse(doc []byte) (*node, error) {
	if len(doc) == 0 {
		return nil, nil
	}
	var c bytes.Buffer
	if err := json.Compact(&c, doc); err != nil {
		return nil, err
	}
	return parseNode(c.Bytes())
}

func parseNode(raw json.RawMessage) (*node, error) {
	n := &node{raw: raw, kind: 'v'}
	if len(raw) == 0 || raw[0] != '{' && raw[0] != '[' {
		return n, nil
	}
	n.kind = raw[0]
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	for d.More() {
		var name string
		if n.kind == '{' {
			t, err := d.Token()
			if err != nil {
				return nil, err
			}
			name, _ = t.(string)
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return nil, err
		}
		c, err := parseNode(v)
		if err != nil {
			return nil, err
		}
		if n.kind == '{' {
			n.fields = append(n.fields, field{name, c})
		} else {
			n.items = append(n.items, c)
		}
	}
	return n, nil
}

func diff(out *[]Change, path string, a, b *node) {
	switch {
	case a == nil && b == nil:
	case a == nil:
		*out = append(*out, Change{Path: orRoot(path), New: b.raw})
	case b == nil:
		*out = append(*out, Change{Path: orRoot(path), Old: a.raw})
	case bytes.Equal(a.raw, b.raw):
	case a.kind == '{' && b.kind == '{':
		for _, f := range b.fields {
			diff(out, path+member(f.name), a.field(f.name), f.val)
		}
		for _, f := range a.fields {
			if b.field(f.name) == nil {
				diff(out, path+member(f.name), f.val, nil)
			}
		}
	case a.kind == '[' && b.kind == '[':
		diffLists(out, path, a, b)
	default:
		*out = append(*out, Change{Path: orRoot(path), Old: a.raw, New: b.raw})
	}
}

func orRoot(path string) string {
	if path == "" {
		return "."
	}
	return path
}

func member(name string) string {
	plain := name != ""
	for _, r := range name {
		plain = plain && (r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z')
	}
	if plain {
		return "." + name
	}
	return "[" + strconv.Quote(name) + "]"
}

// identities are what names an item of a Kubernetes list, the most telling first.
var identities = []string{"name", "uid", "id", "key", "type", "ip", "manager", "containerPort", "port", "mountPath", "devicePath"}

func diffLists(out *[]Change, path string, a, b *node) {
	id := commonIdentity(a, b)
	if id == "" {
		for i := range max(len(a.items), len(b.items)) {
			diff(out, fmt.Sprintf("%s[%d]", path, i), at(a, i), at(b, i))
		}
		return
	}
	old := map[string]*node{}
	for _, it := range a.items {
		old[string(it.field(id).raw)] = it
	}
	for _, it := range b.items {
		k := string(it.field(id).raw)
		diff(out, path+selector(id, k), old[k], it)
		delete(old, k)
	}
	for _, it := range a.items {
		if k := string(it.field(id).raw); old[k] != nil {
			diff(out, path+selector(id, k), it, nil)
		}
	}
}

func selector(id, raw string) string {
	return "[" + id + "=" + strings.Trim(raw, `"`) + "]"
}

func at(n *node, i int) *node {
	if i < len(n.items) {
		return n.items[i]
	}
	return nil
}

// commonIdentity finds a member that every item of both lists has, with a
// distinct scalar value inside each list.
func commonIdentity(a, b *node) string {
	for _, id := range identities {
		if distinct(a, id) && distinct(b, id) {
			return id
		}
	}
	return ""
}

func distinct(n *node, id string) bool {
	seen := make(map[string]bool, len(n.items))
	for _, it := range n.items {
		f := it.field(id)
		if it.kind != '{' || f == nil || f.kind != 'v' || seen[string(f.raw)] {
			return false
		}
		seen[string(f.raw)] = true
	}
	return true
}
