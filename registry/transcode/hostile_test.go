package transcode

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/etcdctl-plus/etcdctl-plus/registry/schema"
)

// wrap puts b into length-delimited field n.
func wrap(n uint64, b []byte) []byte {
	return append(binary.AppendUvarint(binary.AppendUvarint(nil, n<<3|2), uint64(len(b))), b...)
}

// bounded fails when f takes long or allocates much.
func bounded(t *testing.T, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	f()
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	if took > 20*time.Second { // with the race detector on a busy machine; else well below one
		t.Errorf("took %v", took)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<30 {
		t.Errorf("allocated %d MB", n>>20)
	}
}

// TestHostileMessages feeds messages that are cheap to write and dear to decode.
// It does not run in parallel because it measures what is allocated.
func TestHostileMessages(t *testing.T) {
	crd := schema.Load().Kind("apiextensions.k8s.io/v1", "CustomResourceDefinition").Message
	nodes := schema.Load().Kind("v1", "NodeList").Message
	props := schema.Load().Message("k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaProps")
	not := uint64(props.Fields[index(t, props, "not")].Number)

	deep := []byte{}
	for range 20000 {
		deep = wrap(not, deep)
	}
	// At every level the message comes twice, so that both have to be merged.
	twice := []byte{}
	for range 400 {
		twice = append(wrap(not, twice), wrap(not, nil)...)
	}
	twice = append(twice, wrap(1, make([]byte, 1<<20))...)
	many := []byte(strings.Repeat("\x12\x00", 1<<18))
	groups := []byte(strings.Repeat("\xfb\x3f", 1<<20)) // start of group 1023, never ended
	for _, c := range []struct {
		name string
		m    *schema.Message
		raw  []byte
		want error // nil: it may decode
	}{
		{"deep", props, deep, errDepth},
		{"merged at every level", props, twice, nil},
		{"two bytes a Node", nodes, many, errSize},
		{"open groups", crd, groups, errShort},
	} {
		t.Run(c.name, func(t *testing.T) {
			bounded(t, func() {
				var tr Transcoder
				out, err := tr.Append(nil, c.m, "", c.raw)
				if c.want != nil && !errors.Is(err, c.want) {
					t.Errorf("got %v, want %v", err, c.want)
				}
				if len(out) > DefaultMaxJSON+1<<20 {
					t.Errorf("%d MB of JSON", len(out)>>20)
				}
				if err != nil && len(err.Error()) > 4096 {
					t.Errorf("an error of %d bytes", len(err.Error()))
				}
			})
			bounded(t, func() {
				var tr Transcoder
				if out := tr.AppendDump(nil, "", c.raw, false); !json.Valid(out) {
					t.Error("the dump is no JSON")
				}
			})
		})
	}
}

func index(t *testing.T, m *schema.Message, name string) int {
	t.Helper()
	for i, f := range m.Fields {
		if f.Name == name {
			return i
		}
	}
	t.Fatalf("%s has no field %s", m.Name, name)
	return 0
}

// TestErrorTellsThePlace damages a Pod inside a container.
func TestErrorTellsThePlace(t *testing.T) {
	t.Parallel()
	pod := schema.Load().Kind("v1", "Pod").Message
	bad := []byte{0x12, 0x7f, 'x'} // image: longer than what is left
	spec := append(wrap(2, wrap(1, []byte("good"))), wrap(2, bad)...)
	var tr Transcoder
	out, err := tr.Append([]byte("kept"), pod, "", wrap(2, spec))
	if want := "decode spec.containers[1] (byte 0 of v1.Container): the data ends too early"; err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
	if string(out) != "kept" {
		t.Errorf("half a result was left behind: %s", out)
	}
}

// TestUnknownFields: what the types do not know is kept with its place, and Secret
// values are not.
func TestUnknownFields(t *testing.T) {
	t.Parallel()
	pod := schema.Load().Kind("v1", "Pod").Message
	container := append(wrap(1, []byte("c")), wrap(999, []byte("new"))...)
	spec := append(wrap(2, container), wrap(42, wrap(1, []byte("w")))...) // 42: workloadRef of 1.35
	raw := append(wrap(2, spec), 0xc8, 0x3e, 7)                           // 1001: varint 7
	var tr Transcoder
	out, err := tr.Append(nil, pod, "", raw)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(out), "new") {
		t.Errorf("an unknown field is in the object: %s", out)
	}
	got, n := tr.Unknown()
	if n != 3 || len(got) != 3 {
		t.Fatalf("%d unknown fields, kept %d", n, len(got))
	}
	for _, want := range []UnknownField{
		{Path: "", Number: 1001, Value: []byte("7")},
		{Path: "spec", Number: 42, Name: "workloadRef", Last: "v0.35.10", Value: []byte(`{"name":"w","podGroup":""}`)},
		{Path: "spec.containers[0]", Number: 999, Value: []byte(`"new"`)},
	} {
		found := false
		for _, g := range got {
			found = found || g.Path == want.Path && g.Number == want.Number && g.Name == want.Name && g.Last == want.Last && string(g.Value) == string(want.Value)
		}
		if !found {
			t.Errorf("missing %s %d %s %s", want.Path, want.Number, want.Name, want.Value)
		}
	}
	tr = Transcoder{HideUnknown: func([]byte) string { return "hidden" }}
	if _, err := tr.Append(nil, pod, "", raw); err != nil {
		t.Fatal(err)
	}
	for _, u := range first(tr.Unknown()) {
		if string(u.Value) != `"hidden"` {
			t.Errorf("field %d shows %s", u.Number, u.Value)
		}
	}
	tr = Transcoder{RetiredInPlace: true}
	out, err = tr.Append(nil, pod, "", raw)
	if err != nil || !strings.Contains(string(out), `"workloadRef":{"name":"w","podGroup":""}`) {
		t.Errorf("not in place: %s, %v", out, err)
	}
}

func first(u []UnknownField, _ int) []UnknownField { return u }

func TestDump(t *testing.T) {
	t.Parallel()
	raw := wrap(1, append(wrap(1, []byte("name")), wrap(3, []byte("ns"))...))
	raw = append(raw, wrap(2, append([]byte{0x08, 0x05}, wrap(2, []byte("text"))...))...)
	raw = append(raw, wrap(3, []byte("a"))...)
	raw = append(raw, wrap(3, []byte{0xff, 0xfe})...)
	raw = append(raw, 0x21, 1, 0, 0, 0, 0, 0, 0, 0x80) // 4: fixed64
	raw = append(raw, 0x2b, 0x08, 0x01, 0x2c)          // 5: group {1: 1}
	raw = append(raw, 0x32, 0x7f)                      // 6: cut
	var tr Transcoder
	tr.ResourceVersion = "77"
	got := string(tr.AppendDump(nil, `"kind":"Odd"`, raw, false))
	want := `{"kind":"Odd","metadata":{"name":"name","namespace":"ns","resourceVersion":"77"},"fields":{"2":{"1":5,"2":"text"},"3":["a",{"bytes":"//4="}],"4":{"fixed64":"0x8000000000000001"},"5":{"group":{"1":1}}},"undecoded":"Mn8=","problem":"byte 42: the data ends too early"}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
