package registry

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// FuzzEnvelope compares with runtime.Unknown: the same fields, or both reject.
func FuzzEnvelope(f *testing.F) {
	f.Add([]byte{})
	f.Add(wrapped("v1", "Pod", meta("n"))[len(magic):])
	f.Add(wrapped("v1", "Pod", nil, pb(3, []byte("gzip")), pb(4, []byte("application/json")), pb(9, nil))[len(magic):])
	f.Add(join(pb(1, pb(1, []byte("v1"))), pb(1, pb(2, []byte("Pod"))), []byte{0x0b, 0x08, 0x01, 0x0c}))
	f.Add([]byte{0x10, 0x01})
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := parseEnvelope(append([]byte(magic), b...), &typeNames{})
		var u runtime.Unknown
		wantErr := u.Unmarshal(b)
		if !isTypeName(u.Kind) || !isTypeName(u.APIVersion) {
			if err == nil || e.kind != "" || e.apiVersion != "" {
				t.Errorf("%q %q was taken for a type", u.APIVersion, u.Kind)
			}
			return
		}
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%v; Kubernetes: %v", err, wantErr)
		}
		if err == nil && (e.kind != u.Kind || e.apiVersion != u.APIVersion || string(e.raw) != string(u.Raw) || e.contentEncoding != u.ContentEncoding || e.contentType != u.ContentType) {
			t.Errorf("%+v, want %+v", e, u)
		}
	})
}
