package schema

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationv1beta1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1beta1"

	"github.com/etcdctl-plus/etcdctl-plus/registry/schema/describe"
	"github.com/etcdctl-plus/etcdctl-plus/registry/schema/merge"
)

// types returns the Go types of every kind of the modules in go.mod.
func types(t *testing.T) map[string]reflect.Type {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme, apiextensionsv1.AddToScheme, apiextensionsv1beta1.AddToScheme,
		apiregistrationv1.AddToScheme, apiregistrationv1beta1.AddToScheme,
	} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	kinds := map[string]reflect.Type{}
	for gvk, typ := range s.AllKnownTypes() {
		if gvk.Version != runtime.APIVersionInternal {
			kinds[gvk.GroupVersion().String()+"\x00"+gvk.Kind] = typ
		}
	}
	return kinds
}

// TestTableIsThatOfTheModules describes the types in go.mod and compares: the
// committed table must say the same of the newest version.
func TestTableIsThatOfTheModules(t *testing.T) {
	t.Parallel()
	fresh, err := describe.Types(types(t))
	if err != nil {
		t.Fatal(err)
	}
	have, err := merge.Decode(file)
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(mod), "k8s.io/api "+have.Versions[0]) {
		t.Errorf("the newest version of the table is %s, go.mod has another one: run go generate ./registry/schema", have.Versions[0])
	}
	kinds := map[describe.Kind]int{}
	for _, k := range have.Kinds {
		kinds[k.Kind] = k.Last
	}
	for _, k := range fresh.Kinds {
		if last, ok := kinds[k]; !ok || last != 0 {
			t.Errorf("%s %s: not in the table as current", k.APIVersion, k.Kind)
		}
	}
	messages := map[string][]describe.Field{}
	for _, m := range have.Messages {
		fields := []describe.Field{}
		for _, f := range m.Fields {
			if !f.Retired {
				fields = append(fields, f.Field)
			}
		}
		messages[m.Name] = fields
	}
	for _, m := range fresh.Messages {
		if got, want := messages[m.Name], m.Fields; !slices.Equal(got, want) {
			t.Errorf("%s:\n got %v\nwant %v", m.Name, got, want)
		}
	}
	if len(fresh.Kinds) < 500 || len(fresh.Messages) < 1000 {
		t.Errorf("only %d kinds and %d messages were described", len(fresh.Kinds), len(fresh.Messages))
	}
}

// TestNoOtherZeroMethod: omitzero asks a type's IsZero method. The transcoder
// knows the three types that have one.
func TestNoOtherZeroMethod(t *testing.T) {
	t.Parallel()
	zeroer := reflect.TypeFor[interface{ IsZero() bool }]()
	known := []Type{Time, MicroTime, Quantity}
	seen := map[reflect.Type]bool{}
	var visit func(reflect.Type)
	visit = func(typ reflect.Type) {
		if seen[typ] {
			return
		}
		seen[typ] = true
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			visit(typ.Elem())
		case reflect.Struct:
			name := typ.PkgPath() + "." + typ.Name()
			if m := Load().Message(name); m != nil && reflect.PointerTo(typ).Implements(zeroer) && !slices.Contains(known, m.Type) {
				t.Errorf("%s has an IsZero method", name)
			}
			for i := range typ.NumField() {
				visit(typ.Field(i).Type)
			}
		}
	}
	for _, typ := range types(t) {
		visit(typ)
	}
	if len(seen) < 1000 {
		t.Errorf("only %d types visited", len(seen))
	}
}

// TestRemovedKinds: the table holds what no current Kubernetes has, and fields too.
func TestRemovedKinds(t *testing.T) {
	t.Parallel()
	table := Load()
	for _, c := range []struct{ apiVersion, kind, last string }{
		{"policy/v1beta1", "PodSecurityPolicy", "v0.28.3"},
		{"autoscaling/v2beta2", "HorizontalPodAutoscaler", "v0.35.10"},
		{"settings.k8s.io/v1alpha1", "PodPreset", "v0.17.5"},
		{"v1", "Pod", table.Versions[0]},
	} {
		k := table.Kind(c.apiVersion, c.kind)
		if k == nil || k.Last != c.last {
			t.Errorf("%s %s: %+v, want one last seen in %s", c.apiVersion, c.kind, k, c.last)
		}
	}
	m := table.Kind("v1", "Pod").Message.Fields
	if len(m) == 0 || m[0].Name != "metadata" || m[0].Message != table.ObjectMeta() {
		t.Errorf("the first field of a Pod is not its metadata")
	}
	spec := table.Message("k8s.io/api/core/v1.PodSpec")
	if j := spec.Field(42); j < 0 || spec.Fields[j].Name != "workloadRef" || !spec.Fields[j].Retired {
		t.Error("PodSpec lacks the retired workloadRef")
	}
	if spec.Field(1<<20) != -1 {
		t.Error("a field that does not exist was found")
	}
}

// TestConcurrentLookups: kinds are built on demand, from many goroutines at once.
func TestConcurrentLookups(t *testing.T) {
	t.Parallel()
	table, err := open(file)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			table.Names(func(apiVersion, kind string) {
				k := table.Kind(apiVersion, kind)
				if k == nil || k.Message == nil || k.APIVersion != apiVersion || k.Kind != kind || !table.Has(apiVersion, kind) {
					t.Errorf("%s %s: %+v", apiVersion, kind, k)
				}
				for _, f := range k.Message.Fields {
					if f.Type.IsMessage() && (f.Message == nil || f.Message.Name == "") {
						t.Errorf("%s %s: field %s leads nowhere", apiVersion, kind, f.Name)
					}
				}
			})
		})
	}
	wg.Wait()
	if table.Kind("v1", "Nothing") != nil || table.Has("v1", "Nothing") || table.Message("x.Y") != nil {
		t.Error("something was found that is not there")
	}
}

// BenchmarkLoad is what a command pays before its first Pod.
func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		t, err := open(file)
		if err != nil {
			b.Fatal(err)
		}
		t.Kind("v1", "Pod")
	}
}
