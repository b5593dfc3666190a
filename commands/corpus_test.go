package commands_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/sandbox"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/corpus"
	"github.com/etcdctl-plus/etcdctl-plus/watchtail/validate"
)

// stored is a line of stored.jsonl, what Kubernetes' own code decoded.
type stored struct {
	Key         string          `json:"key"`
	CreateRev   int64           `json:"createRevision"`
	ModRev      int64           `json:"modRevision"`
	Form        string          `json:"form"`
	Encryption  string          `json:"encryption"`
	Object      json.RawMessage `json:"object"`
	Encoding    string          `json:"encoding"` // in our own dump instead of form
	Problem     string          `json:"problem"`
	UnknownFlds int             `json:"unknownFields"`
}

func readLines(t *testing.T, b []byte) map[string]stored {
	t.Helper()
	out := map[string]stored{}
	for line := range bytes.Lines(b) {
		var s stored
		if err := json.Unmarshal(line, &s); err != nil {
			t.Fatalf("%v in %.200s", err, line)
		}
		if _, dup := out[s.Key]; dup {
			t.Errorf("%s comes twice", s.Key)
		}
		out[s.Key] = s
	}
	return out
}

func compareDump(t *testing.T, dump string, truth []byte, count int) {
	t.Helper()
	got, want := readLines(t, []byte(dump)), readLines(t, truth)
	if len(want) != count || len(got) != count {
		t.Errorf("%d objects, the truth has %d, want %d", len(got), len(want), count)
	}
	for key, w := range want {
		g, ok := got[key]
		provider, _, _ := strings.Cut(g.Encryption, ":")
		switch {
		case !ok:
			t.Errorf("%s is missing", key)
		case !reflect.DeepEqual(decode(t, string(g.Object)), decode(t, string(w.Object))):
			t.Errorf("%s: got\n%s\nwant\n%s", key, g.Object, w.Object)
		case g.CreateRev != w.CreateRev || g.ModRev != w.ModRev || g.Encoding != w.Form || provider != w.Encryption:
			t.Errorf("%s: revisions %d %d, %s %q, want %d %d, %s %q", key, g.CreateRev, g.ModRev, g.Encoding, g.Encryption, w.CreateRev, w.ModRev, w.Form, w.Encryption)
		case g.Problem != "" || g.UnknownFlds != 0:
			t.Errorf("%s: problem %q, %d unknown fields", key, g.Problem, g.UnknownFlds)
		}
	}
	keys := slices.Collect(func(yield func(string) bool) {
		for line := range strings.Lines(dump) {
			var s stored
			_ = json.Unmarshal([]byte(line), &s) // readLines did it before
			if !yield(s.Key) {
				return
			}
		}
	})
	if !slices.IsSorted(keys) {
		t.Error("the dump is not in key order")
	}
}

var corpora = []struct {
	name  string
	file  func(testing.TB) string
	count int
	rev   int64
}{{"", corpus.Snapshot, 555, 1491}, {"later/", corpus.Later, 566, 1652}}

func TestDumpEqualsStored(t *testing.T) {
	t.Parallel()
	for _, c := range corpora {
		t.Run("file "+c.name, func(t *testing.T) {
			t.Parallel()
			db := c.file(t)
			sourcetest.Untouched(t, db)
			dump := ok(t, nil, "registry", "dump", "--db", db, "--encryption-config", corpus.EncryptionConfig(), "--show-secrets")
			compareDump(t, dump, corpus.Truth(t, c.name+"stored.jsonl"), c.count)
		})
		t.Run("live "+c.name, func(t *testing.T) {
			t.Parallel()
			s, err := sandbox.Start(context.Background(), sandbox.Options{From: c.file(t)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			env := map[string]string{"ETCDCTL_ENDPOINTS": s.Endpoint()}
			for _, rev := range []int64{c.rev, 0} {
				dump := ok(t, env, "registry", "dump", "--rev", fmt.Sprint(rev), "--encryption-config", corpus.EncryptionConfig(), "--show-secrets")
				compareDump(t, dump, corpus.Truth(t, c.name+"stored.jsonl"), c.count)
			}
		})
	}
}

// list is a file of truth/: what the API server answered.
type list struct {
	Items []map[string]any `json:"items"`
}

// TestGetEqualsTruth compares every list of the API server with ours. The
// differences that the corpus names come from the API server's reading, which
// fills in defaults and converts versions, not from what is stored.
func TestGetEqualsTruth(t *testing.T) {
	t.Parallel()
	for _, c := range corpora {
		t.Run("corpus "+c.name, func(t *testing.T) {
			t.Parallel()
			db := c.file(t)
			lists, objects := 0, 0
			for name, b := range corpus.Truths(t) {
				file, ok := strings.CutPrefix(name, c.name+"truth/")
				if !ok {
					continue
				}
				gvr := strings.Split(strings.TrimSuffix(file, ".json"), ".")
				resource, version, group := gvr[len(gvr)-1], gvr[len(gvr)-2], strings.Join(gvr[:len(gvr)-2], ".")
				if resource == "componentstatuses" {
					continue // the API server makes them up, they are not stored
				}
				var truth list
				d := json.NewDecoder(bytes.NewReader(b))
				d.UseNumber()
				if err := d.Decode(&truth); err != nil {
					t.Fatal(err)
				}
				lists++
				objects += compareList(t, db, group, version, resource, truth)
			}
			if lists < 50 || objects < 400 {
				t.Errorf("compared only %d objects of %d lists", objects, lists)
			}
		})
	}
}

// compareList compares what is stored in the listed version and returns how many
// objects that were.
func compareList(t *testing.T, db, group, version, resource string, truth list) int {
	t.Helper()
	kind := resource
	if group != "" {
		kind += "." + group
	}
	out := decode(t, ok(t, nil, "registry", "get", kind, "-A", "-o", "json", "--show-secrets", "--encryption-config", corpus.EncryptionConfig(), "--db", db))
	items, _ := out.(map[string]any)["items"].([]any)
	byName := map[string]map[string]any{}
	for _, it := range items {
		o := it.(map[string]any)
		byName[nameOf(o)] = o
	}
	if len(byName) != len(truth.Items) {
		t.Errorf("%s: %d objects, the API server lists %d", kind, len(byName), len(truth.Items))
	}
	apiVersion := version
	if group != "" {
		apiVersion = group + "/" + version
	}
	n := 0
	for _, want := range truth.Items {
		got, ok := byName[nameOf(want)]
		switch {
		case !ok:
			t.Errorf("%s %s is missing", kind, nameOf(want))
		case got["apiVersion"] != apiVersion:
			// Stored in another version: ORIGIN.md names the kinds.
			if !slices.Contains([]string{"customresourcedefinitions", "clustertrustbundles", "events", "horizontalpodautoscalers", "widgets"}, resource) {
				t.Errorf("%s %s is stored as %v", kind, nameOf(want), got["apiVersion"])
			}
		default:
			n++
			delete(want, "apiVersion") // items of a list do not repeat them
			delete(want, "kind")
			delete(got, "apiVersion")
			delete(got, "kind")
			undefault(resource, want, got)
			if !reflect.DeepEqual(got, want) {
				g, _ := json.Marshal(got)
				w, _ := json.Marshal(want)
				t.Errorf("%s %s:\ngot  %s\nwant %s", kind, nameOf(want), g, w)
			}
		}
	}
	return n
}

func nameOf(o map[string]any) string {
	m, _ := o["metadata"].(map[string]any)
	return fmt.Sprint(m["namespace"], "/", m["name"])
}

// undefault takes the API server's read-time defaults off: status.phase of claims,
// also inside a StatefulSet, and the default in the schema of widgets.
func undefault(resource string, want, got map[string]any) {
	phase := func(w, g map[string]any) {
		ws, _ := w["status"].(map[string]any)
		gs, _ := g["status"].(map[string]any)
		if gs != nil && gs["phase"] == nil {
			delete(ws, "phase")
		}
	}
	switch resource {
	case "persistentvolumeclaims":
		phase(want, got)
	case "statefulsets":
		ws, gs := claims(want), claims(got)
		for i := range min(len(ws), len(gs)) {
			w, g := ws[i].(map[string]any), gs[i].(map[string]any)
			phase(w, g)
			if g["kind"] == nil { // protobuf has no place for the type of an embedded object
				delete(w, "kind")
				delete(w, "apiVersion")
			}
		}
	case "widgets":
		ws, _ := want["spec"].(map[string]any)
		gs, _ := got["spec"].(map[string]any)
		for k := range ws {
			if _, ok := gs[k]; !ok && gs != nil {
				delete(ws, k)
			}
		}
	}
}

func claims(o map[string]any) []any {
	spec, _ := o["spec"].(map[string]any)
	c, _ := spec["volumeClaimTemplates"].([]any)
	return c
}

// TestHistoryEqualsTruth compares `inspect history` with what a watch on the
// restored snapshot gave.
func TestHistoryEqualsTruth(t *testing.T) {
	t.Parallel()
	for _, c := range corpora {
		t.Run("corpus "+c.name, func(t *testing.T) {
			t.Parallel()
			db := c.file(t)
			sourcetest.Untouched(t, db)
			from := "0"
			if c.name != "" {
				from = "1591" // a watch cannot go further back than the compaction at 1590
			}
			var got []string
			for line := range strings.Lines(ok(t, nil, "inspect", "history", "--prefix", "--from-rev", from, "--db", db, "-w", "jsonl")) {
				var e struct {
					Revision, CreateRevision, Version int64
					ValueBytes                        int
					Type, Key                         string
				}
				if err := json.Unmarshal([]byte(line), &e); err != nil {
					t.Fatal(err)
				}
				got = append(got, fmt.Sprintf("%d\t%s\t%s\t%d\t%d\t%d", e.Revision, e.Type, e.Key, e.CreateRevision, e.Version, e.ValueBytes))
			}
			want := trueHistory(t, c.name)
			if !slices.Equal(got, want) {
				t.Errorf("%d events, want %d", len(got), len(want))
				for i := range min(len(got), len(want)) {
					if got[i] != want[i] {
						t.Fatalf("event %d: %s, want %s", i, got[i], want[i])
					}
				}
			}
		})
	}
}

// trueHistory is every event of a corpus: revision, type, key, create revision, version, bytes.
func trueHistory(t *testing.T, name string) (want []string) {
	t.Helper()
	for i, line := range strings.Split(strings.TrimSpace(string(corpus.Truth(t, name+"history.tsv"))), "\n") {
		if f := strings.Split(line, "\t"); i > 0 {
			want = append(want, strings.Join([]string{f[0], f[1], f[2], f[3], f[4], f[6]}, "\t"))
		}
	}
	return want
}

// A tail from the oldest revision gives that history too: of the file, and of an etcd that
// was made of it, where what is read from a snapshot and what is watched meet anywhere.
func TestTailEqualsTruth(t *testing.T) {
	t.Parallel()
	for _, c := range corpora {
		t.Run("corpus "+c.name, func(t *testing.T) {
			t.Parallel()
			db := c.file(t)
			sourcetest.Untouched(t, db)
			want := trueHistory(t, c.name)
			check := func(what, out string) {
				t.Helper()
				got, err := validate.Read(strings.NewReader(out))
				if err != nil {
					t.Fatal(what, err)
				}
				var lines []string
				for _, e := range got {
					n := len(e.ValueBase64)
					if e.Value != nil {
						n = len(*e.Value)
					}
					lines = append(lines, fmt.Sprintf("%d\t%s\t%s\t%d\t%d\t%d", e.Revision, e.Type, e.Key, e.CreateRev, e.Version, n))
				}
				if !slices.Equal(lines, want) {
					t.Errorf("%s: %d events, want %d", what, len(lines), len(want))
				}
			}
			check("file", ok(t, nil, "tail", "--all", "--from", "oldest", "--db", db, "-w", "jsonl"))
			last, _, _ := strings.Cut(want[len(want)-1], "\t")
			first, _, _ := strings.Cut(want[0], "\t")
			box := exec.CommandContext(t.Context(), ours(t, "etcdctl-plus"), "sandbox", "--from", db, "--", "sh", "-c",
				`P="$0"; $P tail --all --from oldest --until-rev `+last+` -w jsonl; echo ===; $P tail --all --from `+first+` --until-rev `+last+` -w jsonl`, ours(t, "etcdctl-plus"))
			var errs bytes.Buffer
			box.Stderr = &errs
			out, err := box.Output()
			if err != nil {
				t.Fatalf("%v: %s", err, &errs)
			}
			fromSnapshot, watched, _ := strings.Cut(string(out), "===\n")
			check("streamed", fromSnapshot)
			check("watched", watched)
		})
	}
}
