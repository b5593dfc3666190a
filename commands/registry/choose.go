package registry

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

// chooser picks objects by their labels and fields.
type chooser struct {
	labels labels.Selector
	fields fields.Requirements
	paths  []*output.Path // of fields
	second []*output.Path // where the field is when it is empty; nil: nowhere
	found  []atomic.Bool  // an object had the field; of paths
}

func newChooser(label, field string) (*chooser, error) {
	l, err := labels.Parse(label)
	if err != nil {
		return nil, cli.Usagef("--selector %q: %v", label, err)
	}
	f, err := fields.ParseSelector(field)
	if err != nil {
		return nil, cli.WithHint(cli.Usagef("--field-selector %q: %v", field, err), "it is like status.phase=Running,spec.nodeName!=node-1")
	}
	c := &chooser{labels: l, fields: f.Requirements()}
	c.found = make([]atomic.Bool, len(c.fields))
	for _, r := range c.fields {
		first, second := stored(r.Field)
		p, err := output.ParsePath(first)
		if err != nil {
			return nil, cli.Usagef("--field-selector %q: %v", field, err)
		}
		var q *output.Path
		if second != "" {
			if q, err = output.ParsePath(second); err != nil {
				return nil, err
			}
		}
		c.paths, c.second = append(c.paths, p), append(c.second, q)
	}
	return c, nil
}

// stored returns the path of a field that the API server selects by another name, and
// the one it takes when that is empty.
func stored(field string) (first, second string) {
	switch field {
	case "status.successful": // of jobs
		return "status.succeeded", ""
	case "source": // of events
		return "source.component", "reportingComponent"
	}
	return field, ""
}

// unknown returns a field of the selector that no object had; "" when there is none.
// It may be misspelt; but fields that are empty are not stored.
func (c *chooser) unknown() string {
	for i, r := range c.fields {
		if !c.found[i].Load() && r.Field != "metadata.name" && r.Field != "metadata.namespace" {
			return r.Field
		}
	}
	return ""
}

// matches tells whether an object is wanted. Of an object that did not decode only
// name and namespace are known, from its key.
func (c *chooser) matches(v objectView) bool {
	x := v.Object
	if !c.labels.Empty() && !c.labels.Matches(labels.Set(metaOf(x).Labels)) {
		return false
	}
	for i, r := range c.fields {
		var value string
		switch r.Field {
		case "metadata.name":
			value = v.meta.Name
		case "metadata.namespace":
			value = v.meta.Namespace
		default:
			var there bool
			if value, there = fieldOf(x, c.paths[i], r.Value); value == "" && c.second[i] != nil {
				value, there = fieldOf(x, c.second[i], r.Value)
			}
			if there {
				c.found[i].Store(true)
			}
		}
		if (value == r.Value) != (r.Operator != selection.NotEquals) {
			return false
		}
	}
	return true
}

// fieldOf returns a field as text, and whether it is there; a missing one is empty, or
// false where a boolean is asked for.
func fieldOf(x inspect.Object, p *output.Path, wanted string) (value string, there bool) {
	missing := ""
	if wanted == "false" || wanted == "true" {
		missing = "false"
	}
	if x.Object == nil {
		return missing, false
	}
	found, err := p.Find(x.Object)
	if err != nil || len(found) == 0 || found[0] == nil {
		return missing, false
	}
	return fmt.Sprint(found[0]), true
}

// sorter holds objects back and puts them in order.
type sorter struct {
	path    *output.Path
	objects []objectView
	keys    [][]any
}

func newSorter(path string) (*sorter, error) {
	p, err := output.ParsePath(path)
	if err != nil {
		return nil, cli.WithHint(cli.Usagef("--sort-by: %v", err), "it is a path into the object, such as .metadata.creationTimestamp")
	}
	return &sorter{path: p}, nil
}

func (s *sorter) add(v objectView) error {
	var key []any
	if v.Object.Object != nil {
		var err error
		if key, err = s.path.Find(v.Object.Object); err != nil {
			return err
		}
	}
	s.objects, s.keys = append(s.objects, v), append(s.keys, key)
	return nil
}

// each calls f for the objects in order: first those that have no value, then by
// value; equal ones stay in the order of their keys.
func (s *sorter) each(f func(objectView) error) error {
	order := make([]int, len(s.objects))
	found := false
	for i := range order {
		order[i] = i
		found = found || len(s.keys[i]) > 0
	}
	if !found && len(order) > 0 {
		return cli.Usagef("--sort-by: no object has a field %s", s.path)
	}
	var failure error
	slices.SortStableFunc(order, func(a, b int) int {
		n, err := compareKeys(s.keys[a], s.keys[b])
		if err != nil && failure == nil {
			failure = cli.Usagef("--sort-by %s: %v", s.path, err)
		}
		return n
	})
	if failure != nil {
		return failure
	}
	for _, i := range order {
		if err := f(s.objects[i]); err != nil {
			return err
		}
	}
	return nil
}

// compareKeys compares the first values: numbers, quantities and texts.
func compareKeys(a, b []any) (int, error) {
	if len(a) == 0 || len(b) == 0 || a[0] == nil || b[0] == nil {
		return rank(a) - rank(b), nil
	}
	switch x := a[0].(type) {
	case string:
		if y, ok := b[0].(string); ok {
			return compareTexts(x, y), nil
		}
	case int64, float64, json.Number:
		switch b[0].(type) {
		case int64, float64, json.Number:
			p, err := resource.ParseQuantity(fmt.Sprint(x))
			if err != nil {
				return 0, err
			}
			q, err := resource.ParseQuantity(fmt.Sprint(b[0]))
			return p.Cmp(q), err
		}
	}
	return 0, fmt.Errorf("%v and %v cannot be put in order", a[0], b[0])
}

// rank puts missing values before null ones, and both before the rest.
func rank(key []any) int {
	switch {
	case len(key) == 0:
		return 0
	case key[0] == nil:
		return 1
	}
	return 2
}

// compareTexts compares quantities by what they mean, other texts by their bytes.
func compareTexts(x, y string) int {
	p, err := resource.ParseQuantity(x)
	if err == nil {
		if q, err := resource.ParseQuantity(y); err == nil {
			return p.Cmp(q)
		}
	}
	return strings.Compare(x, y)
}
