package transcode

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/corpus"
	table "github.com/etcdctl-plus/etcdctl-plus/registry/schema"
)

// sample is a real protobuf message.
type sample struct {
	name, apiVersion, kind string
	raw                    []byte
}

// golden returns the .pb files of k8s.io/api's testdata, of every version there.
var golden = sync.OnceValues(func() ([]sample, error) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/api").Output()
	if err != nil {
		return nil, fmt.Errorf("find k8s.io/api: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "testdata", "*", "*.pb"))
	if err != nil {
		return nil, err
	}
	var out []sample
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		s, err := unwrap(filepath.Base(filepath.Dir(f))+"/"+filepath.Base(f), b)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
})

func unwrap(name string, b []byte) (sample, error) {
	b, ok := bytes.CutPrefix(b, []byte("k8s\x00"))
	if !ok {
		return sample{}, fmt.Errorf("%s has no envelope", name)
	}
	var u runtime.Unknown
	if err := u.Unmarshal(b); err != nil {
		return sample{}, fmt.Errorf("%s: %w", name, err)
	}
	return sample{name, u.APIVersion, u.Kind, u.Raw}, nil
}

// revisions returns every protobuf value of the whole history of both snapshots.
func revisions(t testing.TB) []sample {
	t.Helper()
	var out []sample
	for _, path := range []string{corpus.Snapshot(t), corpus.Later(t)} {
		db, err := bbolt.Open(path, 0o400, &bbolt.Options{ReadOnly: true, Timeout: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		err = db.View(func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte("key")).ForEach(func(rev, kv []byte) error {
				v := field(kv, 5)
				if !bytes.HasPrefix(v, []byte("k8s\x00")) {
					return nil
				}
				s, err := unwrap(fmt.Sprintf("%s at revision %d", field(kv, 1), binary.BigEndian.Uint64(rev)), bytes.Clone(v))
				out = append(out, s)
				return err
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(out) < 1500 {
		t.Fatalf("the corpus has only %d protobuf values", len(out))
	}
	return out
}

// field returns field n of an etcd mvccpb.KeyValue.
func field(kv []byte, n uint32) (v []byte) {
	_ = Walk(kv, func(_ uint32, b []byte) error { v = b; return nil }, n)
	return v
}

func TestGoldenFilesAsKubernetes(t *testing.T) {
	t.Parallel()
	files, err := golden()
	if err != nil {
		t.Fatal(err)
	}
	var tr Transcoder
	for _, s := range files {
		if diff := compare(&tr, s.apiVersion, s.kind, s.raw); diff != "" {
			t.Errorf("%s: %s", s.name, diff)
		}
	}
	if len(files) < 900 {
		t.Errorf("only %d golden files", len(files))
	}
}

func TestEveryRevisionAsKubernetes(t *testing.T) {
	t.Parallel()
	var tr Transcoder
	for _, s := range revisions(t) {
		if diff := compare(&tr, s.apiVersion, s.kind, s.raw); diff != "" {
			t.Errorf("%s: %s", s.name, diff)
		}
		if _, n := tr.Unknown(); n > 0 {
			t.Errorf("%s: %d unknown fields", s.name, n)
		}
	}
}

// TestKubernetesIsCanonical: what Kubernetes writes is never taken for damaged.
func TestKubernetesIsCanonical(t *testing.T) {
	t.Parallel()
	files, err := golden()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range append(slices.Clone(files), revisions(t)...) {
		k := table.Load().Kind(s.apiVersion, s.kind)
		if k == nil {
			continue
		}
		if err := Canonical(k.Message, s.raw); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
	}
}

func TestNotCanonical(t *testing.T) {
	t.Parallel()
	m := table.Load().Kind("v1", "Secret").Message
	entry := append(wrap(1, []byte("k")), wrap(2, []byte("v"))...)
	for name, raw := range map[string][]byte{
		"byte 3: field 1 comes after field 3":                append(wrap(3, []byte("t")), wrap(1, nil)...),
		"byte 2: field 1 is there twice":                     append(wrap(1, nil), wrap(1, nil)...),
		"byte 0: field 2 is no pair of a key and a value":    wrap(2, append(slices.Clone(entry), entry...)),
		"v1.ObjectMeta, byte 3: field 2 comes after field 3": wrap(1, append(wrap(3, []byte("n")), wrap(2, nil)...)),
		"byte 0: the data ends too early":                    {0x0a, 9},
	} {
		if err := Canonical(m, raw); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v; want %s", err, name)
		}
	}
	if err := Canonical(m, append(wrap(2, entry), wrap(2, entry)...)); err != nil {
		t.Error(err)
	}
}

// TestMutatedAsKubernetes changes real messages in the ways that reach the corners
// of the wire format: the result must be Kubernetes' own, or both must reject.
func TestMutatedAsKubernetes(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	files, err := golden()
	if err != nil {
		t.Fatal(err)
	}
	all := append(slices.Clone(files), revisions(t)...)
	var tr Transcoder
	rounds, accepted := rounds(), 0
	for _, s := range all {
		for range rounds {
			raw := mutate(rnd, s.raw)
			if diff := compare(&tr, s.apiVersion, s.kind, raw); diff != "" {
				t.Errorf("%s (%s %s): %s\nraw %x", s.name, s.apiVersion, s.kind, diff, raw)
			}
			if _, ok, err := kubernetes(s.apiVersion, s.kind, raw); ok && err == nil {
				accepted++
			}
		}
	}
	if accepted < len(all)*rounds/10 {
		t.Errorf("Kubernetes accepted only %d of %d mutations: they test too little", accepted, len(all)*rounds)
	}
}

// rounds is how often each message is mutated; MUTATIONS raises it for a long run.
func rounds() int {
	if n, err := strconv.Atoi(os.Getenv("MUTATIONS")); err == nil {
		return n
	}
	if testing.Short() {
		return 2
	}
	return 12
}

// mutate returns a changed copy of message b.
func mutate(rnd *rand.Rand, b []byte) []byte {
	b = bytes.Clone(b)
	if len(b) == 0 {
		return b
	}
	for range 1 + rnd.IntN(3) {
		switch rnd.IntN(8) {
		case 0: // flip a bit
			b[rnd.IntN(len(b))] ^= 1 << rnd.IntN(8)
		case 1: // change a byte
			b[rnd.IntN(len(b))] = byte(rnd.IntN(256))
		case 2: // cut
			b = b[:rnd.IntN(len(b)+1)]
		case 3: // insert
			i := rnd.IntN(len(b) + 1)
			b = slices.Insert(b, i, byte(rnd.IntN(256)))
		case 4, 5: // repeat a field at any depth, so that messages merge
			b = edit(rnd, b, rnd.IntN(4), func(parts [][]byte) [][]byte {
				return slices.Insert(parts, rnd.IntN(len(parts)+1), parts[rnd.IntN(len(parts))])
			})
		case 6: // drop a field, or swap two
			b = edit(rnd, b, rnd.IntN(4), func(parts [][]byte) [][]byte {
				i, j := rnd.IntN(len(parts)), rnd.IntN(len(parts))
				if rnd.IntN(2) == 0 {
					return slices.Delete(parts, i, i+1)
				}
				parts[i], parts[j] = parts[j], parts[i]
				return parts
			})
		case 7: // add a field of a number that may or may not exist
			b = edit(rnd, b, rnd.IntN(4), func(parts [][]byte) [][]byte {
				return append(parts, oddField(rnd))
			})
		}
		if len(b) == 0 {
			return b
		}
	}
	return b
}

// oddField returns a field of random number and wire type with a small value.
func oddField(rnd *rand.Rand) []byte {
	n := uint64(1 + rnd.IntN(40))
	switch rnd.IntN(7) {
	case 0:
		return binary.AppendUvarint(binary.AppendUvarint(nil, n<<3), rnd.Uint64())
	case 1:
		return append(binary.AppendUvarint(nil, n<<3|1), "12345678"...)
	case 2:
		return append(binary.AppendUvarint(nil, n<<3|5), "1234"...)
	case 3: // a group
		return append(binary.AppendUvarint(binary.AppendUvarint(nil, n<<3|3), 1<<3), 5, byte(n<<3|4))
	case 4: // an empty message or string
		return append(binary.AppendUvarint(nil, n<<3|2), 0)
	case 5: // varints, packed
		return append(binary.AppendUvarint(nil, n<<3|2), 3, 1, 0xff, 0x7f)
	}
	text := []string{"100m", "1.500", "x", "\xff\xfe", "{\"a\":1}", "<b>", "\u2028", "0"}[rnd.IntN(8)]
	return append(binary.AppendUvarint(binary.AppendUvarint(nil, n<<3|2), uint64(len(text))), text...)
}

// edit applies f to the fields of b, or of a message somewhere inside it, and puts
// it together again with the right lengths.
func edit(rnd *rand.Rand, b []byte, depth int, f func([][]byte) [][]byte) []byte {
	var parts [][]byte
	var nested []int
	for i := 0; i < len(b); {
		tok, err := read(b, i)
		if err != nil {
			return b
		}
		if tok.wire == wireBytes && tok.to > tok.from {
			nested = append(nested, len(parts))
		}
		parts = append(parts, b[i:tok.next])
		i = tok.next
	}
	if len(parts) == 0 {
		return b
	}
	if depth > 0 && len(nested) > 0 {
		i := nested[rnd.IntN(len(nested))]
		tok, _ := read(parts[i], 0)
		inner := edit(rnd, parts[i][tok.from:tok.to], depth-1, f)
		p := binary.AppendUvarint(nil, uint64(tok.number)<<3|wireBytes)
		parts[i] = append(binary.AppendUvarint(p, uint64(len(inner))), inner...)
	} else {
		parts = f(parts)
	}
	return bytes.Join(parts, nil)
}
