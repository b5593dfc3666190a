package transcode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationv1beta1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1beta1"

	table "github.com/etcdctl-plus/etcdctl-plus/registry/schema"
)

// kinds is the scheme of every type of the Kubernetes modules in go.mod.
var kinds = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme, apiextensionsv1.AddToScheme, apiextensionsv1beta1.AddToScheme,
		apiregistrationv1.AddToScheme, apiregistrationv1beta1.AddToScheme,
	} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
})

var errPanic = errors.New("Kubernetes panicked")

// kubernetes decodes raw with Kubernetes' own Unmarshal and json.Marshal. ok is
// false when Kubernetes has no such kind.
func kubernetes(apiVersion, kind string, raw []byte) (out []byte, ok bool, err error) {
	gvk := schema.FromAPIVersionAndKind(apiVersion, kind)
	if !kinds().Recognizes(gvk) { // New knows the kinds without a version under every version
		return nil, false, nil
	}
	o, err := kinds().New(gvk)
	if err != nil {
		return nil, false, nil
	}
	u, ok := o.(interface{ Unmarshal([]byte) error })
	if !ok {
		return nil, false, nil
	}
	defer func() {
		if r := recover(); r != nil {
			out, err = nil, fmt.Errorf("%w: %v", errPanic, r)
		}
	}()
	if err := u.Unmarshal(raw); err != nil {
		return nil, true, err
	}
	out, err = json.Marshal(o)
	return out, true, err
}

// compare decodes raw both ways and describes a difference; "" is none.
func compare(t *Transcoder, apiVersion, kind string, raw []byte) string {
	want, ok, wantErr := kubernetes(apiVersion, kind, raw)
	if !ok {
		return ""
	}
	k := table.Load().Kind(apiVersion, kind)
	if k == nil {
		return "the table lacks " + apiVersion + " " + kind
	}
	got, err := t.Append(nil, k.Message, "", raw)
	switch {
	case err != nil && wantErr != nil:
		return ""
	case err != nil:
		if errors.Is(err, errQuantityHuge) {
			return "" // bounded on purpose
		}
		return fmt.Sprintf("rejected with %v; Kubernetes prints %.300s", err, want)
	case wantErr != nil:
		return fmt.Sprintf("printed %.300s; Kubernetes rejects with %v", got, wantErr)
	case !bytes.Equal(got, want):
		i := 0
		for i < len(got) && i < len(want) && got[i] == want[i] {
			i++
		}
		from := max(i-80, 0)
		return fmt.Sprintf("at byte %d\n got …%.200s\nwant …%.200s", i, got[from:], want[from:])
	}
	return ""
}

// TestEveryZeroValue decodes nothing as every kind: what is printed of an absent
// field, of every field there is.
func TestEveryZeroValue(t *testing.T) {
	t.Parallel()
	var tr Transcoder
	n := 0
	for gvk, typ := range kinds().AllKnownTypes() {
		if gvk.Version == runtime.APIVersionInternal {
			continue
		}
		if _, ok := reflect.New(typ).Interface().(interface{ Unmarshal([]byte) error }); !ok {
			continue
		}
		apiVersion, kind := gvk.ToAPIVersionAndKind()
		n++
		if diff := compare(&tr, apiVersion, kind, nil); diff != "" {
			t.Errorf("%s %s: %s", apiVersion, kind, diff)
		}
	}
	if n < 500 {
		t.Errorf("only %d kinds compared", n)
	}
}
