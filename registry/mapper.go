package registry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/etcdctl-plus/etcdctl-plus/registry/schema"
)

// DefaultPrefix is where kube-apiserver stores everything unless told otherwise.
const DefaultPrefix = "/registry"

// CompactRevKey is the one key kube-apiserver writes outside its prefix: its value
// is the revision of its last compaction, as a decimal number.
const CompactRevKey = "compact_rev_key"

// ErrNoResource is wrapped by errors of Mapper.Find.
var ErrNoResource = errors.New("no such resource")

// Resource tells how objects of one kind are named and where they are stored.
type Resource struct {
	Group      string // "" for the core group
	Kind       string // "" for a custom resource whose definition is unknown
	Plural     string
	Singular   string
	ShortNames []string
	Namespaced bool
	// Prefix is the path below the registry prefix, such as "services/specs" or
	// "example.org/widgets".
	Prefix string
	Custom bool
	// Internal marks the apiserver's own book-keeping, which no API serves.
	Internal bool
	// Versions are those known, best first: of a built-in resource in the order
	// v2, v1, v1beta2, v1alpha1; of a custom one as in its definition.
	Versions []string
	// OldGroups also served these objects, under the same keys.
	OldGroups []string
}

// String returns the plural with its group: "pods", "deployments.apps".
func (r *Resource) String() string {
	if r.Group == "" {
		return r.Plural
	}
	return r.Plural + "." + r.Group
}

// KeyInfo is what a key says about its object.
type KeyInfo struct {
	Resource  *Resource
	Namespace string // "" for cluster-scoped objects
	Name      string
	// Extra is what follows the name in a key of an unusual shape.
	Extra string
}

// Mapper turns keys into resources and names, and back. Built-in resources are
// known from the start; custom ones come in with AddCRD. Parse and Find may run
// concurrently with each other, not with AddCRD.
type Mapper struct {
	prefix    string // with a slash at the end
	resources []*Resource
	byPrefix  map[string]*Resource
}

// NewMapper returns a Mapper for the registry below prefix; empty means
// DefaultPrefix. A slash at the end of prefix does not matter.
func NewMapper(prefix string) *Mapper {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	m := &Mapper{prefix: strings.TrimRight(prefix, "/") + "/", byPrefix: map[string]*Resource{}}
	served := map[[2]string]*Resource{} // by group, old ones included, and kind
	for _, b := range builtins {
		r := &Resource{
			Group: b.group, Kind: b.kind, Plural: b.plural, Singular: strings.ToLower(b.kind), Prefix: b.prefix,
			ShortNames: list(b.short), OldGroups: list(b.oldGroups), Namespaced: b.scope == namespaced, Internal: b.scope == internal,
		}
		if r.Prefix == "" {
			r.Prefix = b.plural
		}
		if r.Internal {
			r.Singular = b.plural
		}
		if r.Internal {
			r.Versions = []string{"v1"}
		} else {
			served[[2]string{b.group, b.kind}] = r
			for _, g := range r.OldGroups {
				served[[2]string{g, b.kind}] = r
			}
		}
		m.byPrefix[r.Prefix] = r
		m.resources = append(m.resources, r)
	}
	schema.Load().Names(func(apiVersion, kind string) {
		group, version, ok := strings.Cut(apiVersion, "/")
		if !ok {
			group, version = "", apiVersion
		}
		if r := served[[2]string{group, kind}]; r != nil && !slices.Contains(r.Versions, version) {
			r.Versions = append(r.Versions, version)
		}
	})
	for _, r := range m.resources {
		slices.SortFunc(r.Versions, compareVersions)
	}
	return m
}

func list(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

// compareVersions orders API versions as Kubernetes prefers them: v2, v1, v1beta2,
// v1beta1, v1alpha1, then what has another form.
func compareVersions(a, b string) int {
	ra, rb := versionRank(a), versionRank(b)
	if c := slices.Compare(rb[:], ra[:]); c != 0 {
		return c
	}
	return strings.Compare(a, b)
}

// versionRank is stability, major and minor number of an API version; all 0 for
// what is none.
func versionRank(v string) (r [3]int) {
	rest, ok := strings.CutPrefix(v, "v")
	if !ok {
		return r
	}
	major, rest := leadingNumber(rest)
	if major == 0 {
		return r
	}
	if rest == "" {
		return [3]int{3, major, 0}
	}
	for i, name := range []string{"alpha", "beta"} {
		if tail, ok := strings.CutPrefix(rest, name); ok {
			if minor, end := leadingNumber(tail); minor > 0 && end == "" {
				return [3]int{i + 1, major, minor}
			}
		}
	}
	return r
}

// leadingNumber returns the number s begins with, 0 for none, and the rest.
func leadingNumber(s string) (n int, rest string) {
	i := 0
	for i < len(s) && i < 9 && s[i] >= '0' && s[i] <= '9' {
		n = 10*n + int(s[i]-'0')
		i++
	}
	return n, s[i:]
}

func (m *Mapper) add(r *Resource) {
	if old := m.byPrefix[r.Prefix]; old != nil {
		m.resources = slices.DeleteFunc(m.resources, func(x *Resource) bool { return x == old })
	}
	m.byPrefix[r.Prefix] = r
	m.resources = append(m.resources, r)
}

// Prefix returns the registry prefix without a slash at the end.
func (m *Mapper) Prefix() string { return strings.TrimSuffix(m.prefix, "/") }

// Resources returns all resources ordered by group and plural, the core group
// first.
func (m *Mapper) Resources() []Resource {
	out := make([]Resource, len(m.resources))
	for i, r := range m.resources {
		out[i] = *r
	}
	slices.SortFunc(out, func(a, b Resource) int {
		if c := strings.Compare(a.Group, b.Group); c != 0 {
			return c
		}
		return strings.Compare(a.Plural, b.Plural)
	})
	return out
}

// AddCRD adds the resource that a CustomResourceDefinition (the JSON of v1 or
// v1beta1) defines. A built-in resource is never replaced.
func (m *Mapper) AddCRD(object []byte) error {
	var crd struct {
		Metadata struct{ Name string }
		Spec     struct {
			Group   string
			Scope   string
			Version string
			Names   struct {
				Plural, Singular, Kind string
				ShortNames             []string
			}
			Versions []struct {
				Name    string
				Storage bool
			}
		}
	}
	if err := json.Unmarshal(object, &crd); err != nil {
		return fmt.Errorf("read CustomResourceDefinition: %w", err)
	}
	s := crd.Spec
	if s.Group == "" || s.Names.Plural == "" || s.Names.Kind == "" {
		return fmt.Errorf("read CustomResourceDefinition %q: spec.group, spec.names.plural or spec.names.kind is missing", crd.Metadata.Name)
	}
	r := &Resource{
		Group: s.Group, Kind: s.Names.Kind, Plural: s.Names.Plural, Singular: s.Names.Singular, ShortNames: s.Names.ShortNames,
		Namespaced: s.Scope == "Namespaced", Prefix: s.Group + "/" + s.Names.Plural, Custom: true,
	}
	if r.Singular == "" {
		r.Singular = strings.ToLower(r.Kind)
	}
	for _, v := range s.Versions {
		r.Versions = append(r.Versions, v.Name)
	}
	if len(r.Versions) == 0 && s.Version != "" {
		r.Versions = []string{s.Version}
	}
	slices.SortFunc(r.Versions, compareVersions)
	if old := m.byPrefix[r.Prefix]; old != nil && !old.Custom {
		return fmt.Errorf("read CustomResourceDefinition %q: %s is a built-in resource", crd.Metadata.Name, old)
	}
	m.add(r)
	return nil
}

// Parse takes a key apart. ok is false when the key is not below the prefix or
// names no object. A custom resource without a known definition is recognised by
// the dot in its group; its Kind stays empty, and whether it has a namespace is
// told by the number of parts.
func (m *Mapper) Parse(key []byte) (info KeyInfo, ok bool) {
	r, tail := m.split(key)
	if r == nil {
		return info, false
	}
	info.Resource = r
	rest := string(tail)
	if r.Namespaced {
		info.Namespace, rest, _ = strings.Cut(rest, "/")
	}
	info.Name, info.Extra, _ = strings.Cut(rest, "/")
	return info, info.Name != ""
}

// resource is Parse for who wants only the resource: it makes no strings. It is nil
// when Parse is not ok.
func (m *Mapper) resource(key []byte) *Resource {
	r, tail := m.split(key)
	if r != nil && r.Namespaced {
		_, tail, _ = bytes.Cut(tail, []byte{'/'})
	}
	if len(tail) == 0 || tail[0] == '/' {
		return nil
	}
	return r
}

// split finds the resource of a key, nil for none, and what follows it in the key.
func (m *Mapper) split(key []byte) (r *Resource, tail []byte) {
	if len(key) < len(m.prefix) || string(key[:len(m.prefix)]) != m.prefix {
		return nil, nil
	}
	rest := key[len(m.prefix):]
	one, tail, _ := bytes.Cut(rest, []byte{'/'})
	two, tail2, deeper := bytes.Cut(tail, []byte{'/'})
	if deeper {
		if r = m.byPrefix[string(rest[:len(one)+1+len(two)])]; r != nil {
			return r, tail2
		}
	}
	if r = m.byPrefix[string(one)]; r != nil {
		return r, tail
	}
	if !deeper || bytes.IndexByte(one, '.') < 0 || len(two) == 0 {
		return nil, nil
	}
	return &Resource{
		Group: string(one), Plural: string(two), Prefix: string(one) + "/" + string(two), Custom: true, Namespaced: bytes.IndexByte(tail2, '/') >= 0,
	}, tail2
}

// Key returns the key of an object. ns is ignored for cluster-scoped resources.
func (m *Mapper) Key(r *Resource, ns, name string) []byte {
	return append(m.KeyPrefix(r, ns), name...)
}

// KeyPrefix returns the prefix of the keys of all objects of r in namespace ns, or
// of all its objects if ns is empty or r cluster-scoped. It ends with a slash.
func (m *Mapper) KeyPrefix(r *Resource, ns string) []byte {
	p := m.prefix + r.Prefix + "/"
	if r.Namespaced && ns != "" {
		p += ns + "/"
	}
	return []byte(p)
}

// Find returns the resources a person may mean by name: a kind, plural, singular
// or short name in any case, alone or as KIND.GROUP, PLURAL.GROUP,
// PLURAL.VERSION.GROUP. Several custom resources can share a name; a built-in one
// comes first and alone unless the group says otherwise. The error wraps
// ErrNoResource and offers similar names.
func (m *Mapper) Find(name string) ([]Resource, error) {
	low := strings.ToLower(strings.TrimSpace(name))
	base, group, qualified := strings.Cut(low, ".")
	_, afterVersion, hasVersion := strings.Cut(group, ".")
	var found []Resource
	for _, r := range m.resources {
		if !r.called(base) {
			continue
		}
		version, _, _ := strings.Cut(group, ".")
		switch {
		case !qualified, r.inGroup(group):
		case hasVersion && r.inGroup(afterVersion) && slices.Contains(r.Versions, version):
		case slices.Contains(r.Versions, group) && r.Group == "": // pods.v1
		default:
			continue
		}
		found = append(found, *r)
	}
	if len(found) == 0 {
		return nil, m.notFound(name, base)
	}
	slices.SortStableFunc(found, func(a, b Resource) int { return rank(&a) - rank(&b) })
	for i := range found {
		if !qualified && rank(&found[i]) != rank(&found[0]) {
			return found[:i], nil
		}
	}
	return found, nil
}

// rank puts what an API serves before book-keeping and built-in before custom.
func rank(r *Resource) int {
	switch {
	case r.Custom:
		return 1
	case r.Internal:
		return 2
	}
	return 0
}

// called tells whether low is one of the names of r.
func (r *Resource) called(low string) bool {
	return low == r.Plural || low == r.Singular || low == strings.ToLower(r.Kind) && !r.Internal || slices.Contains(r.ShortNames, low)
}

func (r *Resource) inGroup(group string) bool {
	return strings.EqualFold(group, r.Group) || slices.Contains(r.OldGroups, group)
}

func (m *Mapper) notFound(name, base string) error {
	var near []string
	for _, r := range m.resources {
		if base != "" && (strings.HasPrefix(r.Plural, base) || strings.Contains(r.Plural, base) && len(base) > 3 || distance(r.Singular, base) <= 2 && len(base) > 3 || distance(r.Plural, base) <= 2 && len(base) > 3) {
			near = append(near, r.String())
		}
	}
	slices.Sort(near)
	if len(near) == 0 {
		return fmt.Errorf("%w: %q", ErrNoResource, name)
	}
	return fmt.Errorf("%w: %q; did you mean %s?", ErrNoResource, name, strings.Join(near[:min(len(near), 5)], ", "))
}

// distance is the number of letters to add, drop or change to get from a to b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := last
			if a[i] != b[j] {
				cost++
			}
			last = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
