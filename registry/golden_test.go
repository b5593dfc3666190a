package registry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
)

// goldenDir is the testdata folder of the k8s.io/api module.
var goldenDir = sync.OnceValues(func() (string, error) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/api").Output()
	if err != nil {
		return "", fmt.Errorf("find k8s.io/api: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(dir)), "testdata"), nil
})

// noTwin lists the golden files that have no JSON twin, with the reason.
var noTwin = map[string]string{
	"v1.33.0/core.v1.ListOptions.after_roundtrip.pb": "query parameters: JSON is as in core.v1.ListOptions.json, only the protobuf of the round trip is kept",
	"v1.34.0/core.v1.ListOptions.after_roundtrip.pb": "as in v1.33.0",
	"v1.35.0/core.v1.ListOptions.after_roundtrip.pb": "as in v1.33.0",
}

// TestGoldenFilesAsTheirTwins decodes every protobuf file of k8s.io/api's testdata,
// of HEAD and of older versions, and compares with the JSON beside it: the one
// after a round trip where there is one, since today's types lack some fields of
// the older versions. Those must be among the unknown fields then, and with
// RetiredInPlace the object must be that of the older version.
func TestGoldenFilesAsTheirTwins(t *testing.T) {
	t.Parallel()
	dir, err := goldenDir()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*", "*.pb"))
	if err != nil {
		t.Fatal(err)
	}
	d := NewDecoder(Options{ShowSecrets: true, SeparateUnknown: true})
	inPlace := NewDecoder(Options{ShowSecrets: true, SeparateUnknown: true, RetiredInPlace: true})
	equal, retired, without := 0, 0, 0
	for _, f := range files {
		name := filepath.Base(filepath.Dir(f)) + "/" + filepath.Base(f)
		base := strings.TrimSuffix(strings.TrimSuffix(f, ".pb"), ".after_roundtrip")
		value := read(t, f)
		r := d.DecodeValue(nil, value)
		if r.Err != nil || r.Encoding != Protobuf || r.Object == nil {
			t.Errorf("%s: %s, %v", name, r.Encoding, r.Err)
			continue
		}
		twin := base + ".after_roundtrip.json"
		old, err := os.ReadFile(twin)
		if err != nil {
			twin = base + ".json"
			if old, err = os.ReadFile(twin); err != nil || noTwin[name] != "" {
				if noTwin[name] == "" {
					t.Errorf("%s has no twin and is not in the list", name)
				}
				without++
				continue
			}
			if r.UnknownFields > 0 {
				t.Errorf("%s: unknown fields %s", name, r.Unknown)
			}
		} else if !strings.HasSuffix(f, ".after_roundtrip.pb") {
			retired++
			p := inPlace.DecodeValue(nil, value)
			if lost := lacks(p.Object, read(t, base+".json")); lost != "" && p.UnknownFields == 0 {
				t.Errorf("%s in place: %s is lost", name, lost)
			}
		}
		if diff := differ(r.Object, old); diff != "" {
			t.Errorf("%s: %s (unknown: %s)", name, diff, r.Unknown)
			continue
		}
		equal++
	}
	t.Logf("%d equal, %d of them with retired fields, %d without a twin", equal, retired, without)
	if equal < 940 || retired < 30 || without != len(noTwin) {
		t.Errorf("%d of %d files compared, %d with retired fields, %d without a twin", equal, len(files), retired, without)
	}
}

// lacks returns the path of the first value in want that got does not have. What
// got has besides does not matter: today's types print some empty members more.
func lacks(got, want []byte) string {
	a, err := parse(got)
	if err != nil {
		return err.Error()
	}
	b, err := parse(want)
	if err != nil {
		return err.Error()
	}
	return lacksAt("", a, b)
}

func lacksAt(path string, a, b any) string {
	switch y := b.(type) {
	case map[string]any:
		x, _ := a.(map[string]any)
		for k, v := range y {
			if lost := lacksAt(path+"."+k, x[k], v); lost != "" {
				return lost
			}
		}
		return ""
	case []any:
		x, _ := a.([]any)
		for i, v := range y {
			if i >= len(x) {
				return fmt.Sprintf("%s[%d]", path, i)
			}
			if lost := lacksAt(fmt.Sprintf("%s[%d]", path, i), x[i], v); lost != "" {
				return lost
			}
		}
		return ""
	}
	if !reflect.DeepEqual(a, b) {
		return path
	}
	return ""
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// differ compares two JSON objects as such, to the last digit, and describes the
// first difference.
func differ(got, want []byte) string {
	a, err := parse(got)
	if err != nil {
		return fmt.Sprintf("not JSON: %v: %.200s", err, got)
	}
	b, err := parse(want)
	if err != nil {
		return fmt.Sprintf("the twin is not JSON: %v", err)
	}
	return differAt("", a, b)
}

func differAt(path string, a, b any) string {
	x, ok1 := a.(map[string]any)
	y, ok2 := b.(map[string]any)
	if ok1 && ok2 {
		for k := range x {
			if _, ok := y[k]; !ok {
				return fmt.Sprintf("%s.%s: got %v, want nothing", path, k, x[k])
			}
		}
		for k := range y {
			if _, ok := x[k]; !ok {
				return fmt.Sprintf("%s.%s: got nothing, want %v", path, k, y[k])
			}
			if d := differAt(path+"."+k, x[k], y[k]); d != "" {
				return d
			}
		}
		return ""
	}
	p, ok1 := a.([]any)
	q, ok2 := b.([]any)
	if ok1 && ok2 && len(p) == len(q) {
		for i := range p {
			if d := differAt(fmt.Sprintf("%s[%d]", path, i), p[i], q[i]); d != "" {
				return d
			}
		}
		return ""
	}
	if !reflect.DeepEqual(a, b) {
		return fmt.Sprintf("%s: got %v, want %v", path, a, b)
	}
	return ""
}

func parse(b []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	return v, d.Decode(&v)
}
