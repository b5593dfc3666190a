package registry

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/corpus"
	"github.com/etcdctl-plus/etcdctl-plus/registry/schema"
)

// TestCorpusKeys: every key of both snapshots parses to the resource and name its
// object has, and back.
func TestCorpusKeys(t *testing.T) {
	t.Parallel()
	for path, want := range snapshots(t) {
		m := NewMapper("")
		for key := range live(t, path) {
			if info, ok := m.Parse([]byte(key)); ok && info.Resource.Kind == "CustomResourceDefinition" {
				for _, w := range want {
					if w.Key == key {
						if err := m.AddCRD(w.Object); err != nil {
							t.Error(err)
						}
					}
				}
			}
		}
		for _, w := range want {
			info, ok := m.Parse([]byte(w.Key))
			if !ok || info.Extra != "" {
				t.Errorf("%s is not understood: %+v", w.Key, info)
				continue
			}
			o, err := parse(w.Object)
			if err != nil {
				t.Fatal(err)
			}
			obj := o.(map[string]any)
			meta, _ := obj["metadata"].(map[string]any)
			name, ns := fmt.Sprint(meta["name"]), meta["namespace"]
			r := info.Resource
			if obj["kind"] != r.Kind && !(obj["kind"] == "Event" && r.Kind == "Event") {
				t.Errorf("%s: kind %s, want %s", w.Key, r.Kind, obj["kind"])
			}
			group, version, ok := strings.Cut(fmt.Sprint(obj["apiVersion"]), "/")
			if !ok {
				group, version = "", group
			}
			if !r.inGroup(group) || !slices.Contains(r.Versions, version) && !r.Custom {
				t.Errorf("%s: %s of %q %v, want %s", w.Key, r.Kind, r.Group, r.Versions, obj["apiVersion"])
			}
			if r.Internal {
				continue // their objects have no name, or another one
			}
			if info.Name != name || r.Namespaced != (ns != nil) || ns != nil && info.Namespace != ns {
				t.Errorf("%s: %q in %q, want %s in %v", w.Key, info.Name, info.Namespace, name, ns)
			}
			if got := m.Key(r, info.Namespace, info.Name); string(got) != w.Key {
				t.Errorf("%s became %s", w.Key, got)
			}
			if p := m.KeyPrefix(r, info.Namespace); !strings.HasPrefix(w.Key, string(p)) || !bytes.HasSuffix(p, []byte("/")) {
				t.Errorf("%s: prefix %s", w.Key, p)
			}
		}
	}
}

// TestServedResources: every resource that the apiserver of the corpus served is
// found by its plural, alone and with its group.
func TestServedResources(t *testing.T) {
	t.Parallel()
	m := NewMapper("")
	n := 0
	for line := range bytes.Lines(corpus.Truth(t, "resources.tsv")) {
		cols := strings.Split(strings.TrimSpace(string(line)), "\t")
		group, version, plural := cols[0], cols[1], cols[2]
		if plural == "componentstatuses" || strings.HasSuffix(group, "example.org") {
			continue // never stored; custom
		}
		if group == "core" {
			group = ""
		}
		n++
		names := []string{plural, strings.ToUpper(plural), plural + "." + version + "." + group}
		if group != "" {
			names = append(names, plural+"."+group)
		} else {
			names[2] = plural + "." + version
		}
		for _, name := range names {
			found, err := m.Find(name)
			if err != nil || len(found) != 1 || found[0].Plural != plural || !found[0].inGroup(group) || !slices.Contains(found[0].Versions, version) {
				t.Errorf("%s: %+v, %v", name, found, err)
			}
		}
	}
	if n < 60 {
		t.Errorf("only %d resources", n)
	}
}

// TestTableHasEveryStoredKind: a kind with a list and metadata is a resource, so it
// must be in the table of resources, but for those that are answers only.
func TestTableHasEveryStoredKind(t *testing.T) {
	t.Parallel()
	answers := []string{"APIGroup", "APIResource", "ComponentStatus", "APIGroupDiscovery"}
	m := NewMapper("")
	table := schema.Load()
	table.Names(func(apiVersion, kind string) {
		if !table.Has(apiVersion, kind+"List") || slices.Contains(answers, kind) {
			return
		}
		group, version, ok := strings.Cut(apiVersion, "/")
		if !ok {
			group, version = "", group
		}
		name := kind
		if group != "" {
			name += "." + group
		}
		found, err := m.Find(name)
		if err != nil || len(found) != 1 || !slices.Contains(found[0].Versions, version) {
			t.Errorf("%s %s: %+v, %v", apiVersion, kind, found, err)
		}
	})
	for _, r := range m.Resources() {
		if r.Kind != "InitializerConfiguration" && len(r.Versions) == 0 {
			t.Errorf("%s has no version in the schema table", &r)
		}
		if got, _ := m.Parse(m.Key(&r, "ns", "name")); got.Resource == nil || got.Resource.String() != r.String() || got.Name != "name" {
			t.Errorf("the key of %s parses as %+v", &r, got)
		}
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	m := NewMapper("")
	for _, crd := range []string{
		`{"spec":{"group":"example.org","scope":"Namespaced","names":{"plural":"widgets","kind":"Widget","shortNames":["wd"]},"versions":[{"name":"v1alpha1"},{"name":"v1"}]}}`,
		`{"spec":{"group":"other.org","scope":"Cluster","version":"v1beta1","names":{"plural":"widgets","singular":"widget","kind":"Widget"}}}`,
		`{"spec":{"group":"serving.knative.dev","scope":"Namespaced","names":{"plural":"services","kind":"Service"},"versions":[{"name":"v1"}]}}`,
		`{"spec":{"group":"gateway.networking.k8s.io","scope":"Namespaced","names":{"plural":"gateways","kind":"Gateway"},"versions":[{"name":"v1"}]}}`,
	} {
		if err := m.AddCRD([]byte(crd)); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"pod": "pods", "PO": "pods", "Pods": "pods", "svc": "services", "service": "services", "services.serving.knative.dev": "services.serving.knative.dev",
		"service.v1.serving.knative.dev": "services.serving.knative.dev", "Deployment.apps": "deployments.apps", "deployments.extensions": "deployments.apps",
		"deployments.v1.apps": "deployments.apps", "ing": "ingresses.networking.k8s.io", "ingress.v1beta1.extensions": "ingresses.networking.k8s.io",
		"hpa": "horizontalpodautoscalers.autoscaling", "crds": "customresourcedefinitions.apiextensions.k8s.io", "psp": "podsecuritypolicies.policy",
		"ep": "endpoints", "endpoints": "endpoints", "masterleases": "masterleases", "ranges": "ranges", "wd": "widgets.example.org",
		"widgets": "widgets.example.org widgets.other.org", "widget.other.org": "widgets.other.org", "widgets.v1.example.org": "widgets.example.org",
		"events": "events", "events.events.k8s.io": "events", "ev.v1": "events", "gateway": "gateways.gateway.networking.k8s.io",
	} {
		found, err := m.Find(name)
		var got []string
		for _, r := range found {
			got = append(got, r.String())
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %v, %v; want %s", name, got, err, want)
		}
	}
	for name, hint := range map[string]string{"podz": "pods", "deploymnt": "deployments.apps", "widgets.v9.example.org": "widgets.example.org", "zzzzzz": "", "": "", "pods.v7": "pods"} {
		if found, err := m.Find(name); !errors.Is(err, ErrNoResource) || !strings.Contains(err.Error(), hint) {
			t.Errorf("%q: %v, %v", name, found, err)
		}
	}
}

func TestParseKeys(t *testing.T) {
	t.Parallel()
	m := NewMapper("/kubernetes.io/")
	if m.Prefix() != "/kubernetes.io" {
		t.Errorf("prefix %s", m.Prefix())
	}
	if err := m.AddCRD([]byte(`{"spec":{"group":"x.k8s.io","scope":"Cluster","names":{"plural":"things","kind":"Thing"},"versions":[{"name":"v1"}]}}`)); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"/kubernetes.io/pods/a/b":                               "Pod pods a b ",
		"/kubernetes.io/minions/n":                              "Node nodes  n ",
		"/kubernetes.io/services/specs/a/b":                     "Service services a b ",
		"/kubernetes.io/services/endpoints/a/b":                 "Endpoints endpoints a b ",
		"/kubernetes.io/ingress/a/b":                            "Ingress ingresses.networking.k8s.io a b ",
		"/kubernetes.io/podsecuritypolicy/p":                    "PodSecurityPolicy podsecuritypolicies.policy  p ",
		"/kubernetes.io/ranges/serviceips":                      "RangeAllocation ranges  serviceips ",
		"/kubernetes.io/masterleases/10.0.0.1":                  "Endpoints masterleases  10.0.0.1 ",
		"/kubernetes.io/x.k8s.io/things/t":                      "Thing things.x.k8s.io  t ",
		"/kubernetes.io/y.org/unknowns/n":                       " unknowns.y.org  n ",
		"/kubernetes.io/y.org/unknowns/ns/n":                    " unknowns.y.org ns n ",
		"/kubernetes.io/minions/n/more/parts":                   "Node nodes  n more/parts",
		"/kubernetes.io/apiregistration.k8s.io/apiservices/v1.": "APIService apiservices.apiregistration.k8s.io  v1. ",
	} {
		i, ok := m.Parse([]byte(key))
		if !ok {
			t.Errorf("%s: not parsed", key)
			continue
		}
		if got := fmt.Sprintf("%s %s %s %s %s", i.Resource.Kind, i.Resource, i.Namespace, i.Name, i.Extra); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
	for _, key := range []string{"", "/", "/kubernetes.io", "/kubernetes.io/", "/kubernetes.io/pods", "/kubernetes.io/pods/a", "/kubernetes.io/pods/a/", "/registry/pods/a/b", "compact_rev_key", "/kubernetes.io/nothing/a/b", "/kubernetes.io/y.org/unknowns"} {
		if i, ok := m.Parse([]byte(key)); ok {
			t.Errorf("%q parsed as %+v", key, i)
		}
	}
}

// TestVersionOrder is the order of Kubernetes' documentation of CRD versions.
func TestVersionOrder(t *testing.T) {
	t.Parallel()
	want := []string{"v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "foo1", "foo10", "v", "v1gamma1"}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, compareVersions)
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func BenchmarkNewMapper(b *testing.B) {
	for b.Loop() {
		NewMapper("")
	}
}

func TestAddCRDErrors(t *testing.T) {
	t.Parallel()
	m := NewMapper("")
	for in, want := range map[string]string{
		`{`:                           "read CustomResourceDefinition",
		`{"metadata":{"name":"a.b"}}`: `"a.b": spec.group`,
		`{"metadata":{"name":"c"},"spec":{"group":"apiregistration.k8s.io","names":{"plural":"apiservices","kind":"X"}}}`: "built-in",
	} {
		if err := m.AddCRD([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", in, err)
		}
	}
}

func TestDetectPrefix(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		keys  []string
		want  string
		reads int
	}{
		{[]string{"/registry/namespaces/kube-system", "compact_rev_key"}, "/registry", 1},
		{[]string{"/registry/ranges/serviceips"}, "/registry", 4},
		{[]string{"/kubernetes.io/namespaces/kube-system", "/openshift.io/oauth/clients/x"}, "/kubernetes.io", 7},
		{[]string{"/a/b", "/cluster-7/namespaces/default", "/z"}, "/cluster-7", 40},
		{[]string{"/site/k8s/pods/a/b", "/site/k8s/services/specs/default/kubernetes", "x"}, "/site/k8s", 40},
		{[]string{"a", "b/c"}, "", 60},
		{nil, "", 20},
	} {
		slices.Sort(c.keys)
		reads := 0
		first := func(from, end []byte) ([]byte, error) {
			reads++
			for _, k := range c.keys {
				if k >= string(from) && (len(end) == 0 || k < string(end)) {
					return []byte(k), nil
				}
			}
			return nil, nil
		}
		got, err := DetectPrefix(first)
		if err != nil || got != c.want || reads > c.reads {
			t.Errorf("%v: %q with %d reads, %v; want %q with %d", c.keys, got, reads, err, c.want, c.reads)
		}
	}
	broken := errors.New("broken")
	if _, err := DetectPrefix(func(_, _ []byte) ([]byte, error) { return nil, broken }); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	// A keyspace of many folders ends within the bound.
	reads := 0
	if p, err := DetectPrefix(func(from, end []byte) ([]byte, error) {
		reads++
		if len(end) > 0 {
			return nil, nil
		}
		return append(bytes.Clone(from), "/x/y/z"...), nil
	}); p != "" || err != nil || reads > maxProbes {
		t.Errorf("%q, %v after %d reads", p, err, reads)
	}
}

func TestDetectPrefixOf(t *testing.T) {
	t.Parallel()
	var keys [][]byte
	for key := range live(t, corpus.Snapshot(t)) {
		keys = append(keys, []byte(key))
	}
	if got := DetectPrefixOf(keys); got != "/registry" {
		t.Errorf("%q", got)
	}
	for i := range keys {
		keys[i] = []byte("/my/cluster" + strings.TrimPrefix(string(keys[i]), "/registry"))
	}
	if got := DetectPrefixOf(keys); got != "/my/cluster" {
		t.Errorf("%q", got)
	}
	if got := DetectPrefixOf([][]byte{[]byte("/a/b/c"), []byte("x")}); got != "" {
		t.Errorf("%q", got)
	}
}
