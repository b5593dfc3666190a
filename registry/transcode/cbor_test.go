package transcode

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
)

// TestCBORInside: managed fields and raw extensions that are CBOR, right and
// damaged, are printed as Kubernetes prints them.
func TestCBORInside(t *testing.T) {
	t.Parallel()
	inner, err := direct.Marshal(map[string]any{"f:spec": map[string]any{"<é": int64(1) << 60, "x": 1.5}, "b": []byte("hi")})
	if err != nil {
		t.Fatal(err)
	}
	tagged := append([]byte{0xd9, 0xd9, 0xf7}, inner...)
	for name, raw := range map[string][]byte{
		"plain": inner, "self-described": tagged, "null": {0xf6}, "a list": {0xd9, 0xd9, 0xf7, 0x80}, "a tag": append([]byte{0xd9, 0xd9, 0xf7}, tagged...),
		"cut": tagged[:len(tagged)-1], "the tag alone": tagged[:3], "more behind": append(tagged[:len(tagged):len(tagged)], 0), "text": {0x61, 'a'},
	} {
		fields := new(metav1.FieldsV1)
		fields.SetRawBytes(raw)
		for where, o := range map[string]*appsv1.ControllerRevision{
			"managed fields": {ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{FieldsType: "FieldsV1", FieldsV1: fields}}}},
			"data":           {Data: runtime.RawExtension{Raw: raw}},
		} {
			b, err := o.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			if diff := compare(new(Transcoder), "apps/v1", "ControllerRevision", b); diff != "" {
				t.Errorf("%s in %s: %s", name, where, diff)
			}
		}
	}
	o := appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: tagged}}
	b, err := o.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := kubernetes("apps/v1", "ControllerRevision", b); err != nil || !ok {
		t.Errorf("Kubernetes itself does not print it: %v", err)
	}
}
