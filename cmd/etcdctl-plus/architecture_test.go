package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/etcdctl-plus/etcdctl-plus"

// layers, from the ground up; a package belongs to the longest folder that holds
// it. Imports only go down: whoever needs a type of a higher layer has put it one
// layer too high. docs/architecture.md draws the picture.
var layers = map[string]int{
	"inspect/keyspace": 0,

	"inspect/pipeline":            1, // imported by the sources, for faults in mapped files
	"inspect/walfile":             1, // dbfile reads what a member's database lacks
	"inspect/dbfile":              2,
	"inspect/live":                3, // reads history out of a streamed snapshot, with dbfile
	"inspect/sandbox/latemetrics": 0,
	"inspect/sandbox":             3, // boots from what dbfile has looked at
	"inspect/sourcetest":          4, // only tests import it
	"registry":                    2,
	"registry/schema":             0,
	"registry/transcode":          1,
	"registry/seal":               0,
	"registry/cbor":               0, // other encodings, to JSON
	"registry/yaml":               0,
	"registry/kmsclient":          1, // the one package below registry that talks to anything: KMS plugins, for seal

	"backup/place":     0, // names that files get for good
	"backup/store":     0, // where backups are kept; knows nothing of what is in them
	"backup/retention": 0, // which are kept; pure

	"watchtail/mirror": 4,

	"inspect":     4, // analyses over a source; inspect/cluster looks at members
	"backup":      4, // backup/restore verifies with backup before it restores
	"watchtail":   3, // the revision stream of a cluster
	"output":      4,
	"completions": 4,
	"supervise":   4, // locks and what runs under them; over a client alone, knows no command

	"commands/config": 5, // settings; detect finds them on a host, and knows of no command
	"commands/cli":    6, // Env: settings become a client or a source
	"commands":        7, // one folder a noun, and the tree of them
	"cmd":             9,
}

// Within one folder of layers packages may import each other, but a noun never
// imports another noun: what two need goes to commands/cli or down.
const nouns = "commands/"

// owners: who alone may import a dependency, so that it can be replaced and its
// cost at start-up is known.
var owners = map[string][]string{
	"github.com/spf13/viper":              {"commands/config"},
	"github.com/olekukonko/tablewriter":   {"output"},
	"charm.land/lipgloss/v2":              {"output", "commands/cli"},
	"go.etcd.io/etcd/server/v3":           {"inspect/sandbox", "backup/restore", "backup/datadir"}, // a data folder's log, raft snapshot and layout are etcd's to write
	"go.etcd.io/raft/v3":                  {"backup/restore"},
	"github.com/dustin/go-humanize":       {"commands/snapshot", "commands/endpoint"}, // sizes as etcdutl and etcdctl write them
	"go.etcd.io/etcd/etcdutl/v3":          {"inspect/sandbox"},
	"go.etcd.io/bbolt":                    {"inspect/sandbox", "backup", "cmd/bench-peers"}, // it writes, and trusts its files
	"k8s.io/api":                          {"registry/schema/gen", "cmd/bench-peers"},
	"k8s.io/apiserver":                    {"registry/kmsclient/kmstest"}, // which only tests import
	"k8s.io/apiextensions-apiserver":      {"registry/schema/gen"},
	"k8s.io/kube-aggregator":              {"registry/schema/gen"},
	"k8s.io/client-go":                    {"output", "registry/columns"}, // JSONPath
	"k8s.io/apimachinery":                 {"commands/registry", "commands/tail", "cmd/bench-peers"},
	"github.com/fxamacker/cbor":           {"registry/cbor"},
	"github.com/itchyny/gojq":             {"commands/tail"},
	"k8s.io/kms":                          {"registry/kmsclient/kmstest"}, // its generated messages cost every start
	"github.com/klauspost/compress":       {"registry/schema", "inspect/dbfile", "backup"},
	"filippo.io/age":                      {"inspect/dbfile", "backup", "commands/cli"},   // reads, writes, and parses keys
	"github.com/rogpeppe/go-internal":     {"inspect/sourcetest/server"},                  // only tests import it
	"go.yaml.in/yaml/v3":                  {"registry/yaml", "output", "commands/config"}, // its nodes keep comments; values that Kubernetes stored go through registry/yaml
	"sigs.k8s.io/structured-merge-diff":   {},
	"github.com/prometheus/client_golang": {"inspect/sandbox"},
	"github.com/aws/aws-sdk-go-v2":        {"backup/store"},
	"github.com/aws/smithy-go":            {"backup/store"},
	// Four services for signing on, each with its table of regions: 3 ms at every start.
	"github.com/aws/aws-sdk-go-v2/config":               {},
	"github.com/aws/aws-sdk-go-v2/service/sts":          {},
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds": {},
}

type pkg struct {
	ImportPath string
	Imports    []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", module+"/...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var pkgs []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return pkgs
		}
		if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

// room returns the folder of layers that a package belongs to.
func room(t *testing.T, importPath string) string {
	for p := strings.TrimPrefix(strings.TrimPrefix(importPath, module), "/"); p != "." && p != ""; p = path.Dir(p) {
		if _, ok := layers[p]; ok {
			return p
		}
	}
	t.Errorf("%s has no layer: add it to the table and to docs/architecture.md", importPath)
	return ""
}

func noun(importPath string) string {
	rel := strings.TrimPrefix(importPath, module+"/")
	if rest, ok := strings.CutPrefix(rel, nouns); ok && room2(rel) == "commands" {
		name, _, _ := strings.Cut(rest, "/")
		return name
	}
	return ""
}

func room2(rel string) string {
	for p := rel; p != "."; p = path.Dir(p) {
		if _, ok := layers[p]; ok {
			return p
		}
	}
	return ""
}

func TestArchitecture(t *testing.T) {
	t.Parallel()
	pkgs := packages(t)
	if len(pkgs) < 15 {
		t.Fatalf("only %d packages listed", len(pkgs))
	}
	for _, p := range pkgs {
		mine := room(t, p.ImportPath)
		rel := strings.TrimPrefix(p.ImportPath, module+"/")
		if base := path.Base(rel); slices.Contains([]string{"util", "utils", "common", "types", "helpers", "misc"}, base) {
			t.Errorf("%s: a package is named after what it offers", rel)
		}
		for _, i := range p.Imports {
			if strings.HasPrefix(i, module+"/") {
				checkLayer(t, p.ImportPath, i, mine, room(t, i))
			}
			checkOwner(t, rel, i)
		}
	}
}

func checkLayer(t *testing.T, from, to, mine, theirs string) {
	t.Helper()
	if a, b := noun(from), noun(to); a != "" && b != "" && a != b {
		t.Errorf("%s imports %s: a noun never imports another noun", from, to)
	}
	if mine != theirs && layers[theirs] >= layers[mine] {
		t.Errorf("%s (layer %d) imports %s (layer %d): imports only go down", from, layers[mine], to, layers[theirs])
	}
}

func checkOwner(t *testing.T, rel, imported string) {
	t.Helper()
	for dep, who := range owners {
		if imported != dep && !strings.HasPrefix(imported, dep+"/") {
			continue
		}
		if !slices.ContainsFunc(who, func(w string) bool { return rel == w || strings.HasPrefix(rel, w+"/") }) {
			t.Errorf("%s imports %s, which only %v may", rel, imported, who)
		}
	}
}
