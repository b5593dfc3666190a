// Command gen writes schema.bin, the table of every protobuf message that
// Kubernetes has stored in etcd.
//
// For each version of k8s.io/api in versions it builds a throw-away module that
// registers every API package and describes the Go types by their struct tags
// (package describe), then merges the tables: the newest definition of a message
// wins, kinds and fields that only older versions knew are added and marked with
// the last version that had them. The modules come through the ordinary Go module
// cache and proxy. The result depends on nothing else, so running it twice gives
// the same bytes.
//
//	go run ./registry/schema/gen -out registry/schema/schema.bin
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"

	"github.com/etcdctl-plus/etcdctl-plus/registry/schema/describe"
	"github.com/etcdctl-plus/etcdctl-plus/registry/schema/merge"
)

// versions are newest first. The newest one must be the version in go.mod: a
// test compares the table with the types of that module.
var versions = []string{
	"v0.37.2", "v0.36.6", "v0.35.10", "v0.34.13", "v0.33.13", "v0.32.13", "v0.31.14", "v0.30.14", "v0.29.15", "v0.28.3",
	"v0.27.4", "v0.26.9", "v0.25.9", "v0.24.3", "v0.23.16", "v0.22.5", "v0.21.1", "v0.20.6", "v0.17.5",
}

func main() {
	out := flag.String("out", "schema.bin", "file to write")
	src := flag.String("describe", "", "folder of package describe; empty: found with go list")
	flag.Parse()
	if err := run(*out, *src); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(out, src string) error {
	if src == "" {
		b, err := exec.Command("go", "list", "-f", "{{.Dir}}", "github.com/etcdctl-plus/etcdctl-plus/registry/schema/describe").Output()
		if err != nil {
			return fmt.Errorf("find package describe: %w", err)
		}
		src = strings.TrimSpace(string(b))
	}
	code, err := os.ReadFile(filepath.Join(src, "describe.go"))
	if err != nil {
		return err
	}
	var tables []merge.Versioned
	for i, v := range versions {
		t, err := table(v, i == 0, code)
		if err != nil {
			return fmt.Errorf("k8s.io/api %s: %w", v, err)
		}
		fmt.Fprintf(os.Stderr, "%s: %d kinds, %d messages\n", v, len(t.Kinds), len(t.Messages))
		tables = append(tables, merge.Versioned{Version: v, Table: t})
	}
	m := merge.Tables(tables)
	b, err := merge.Encode(m)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "merged: %s, %d bytes\n", m.Summary(), len(b))
	return os.WriteFile(out, b, 0o644)
}

// table describes one version of k8s.io/api; with extras also apiextensions and
// apiregistration, whose newest versions still hold every old one.
func table(version string, extras bool, code []byte) (*describe.Table, error) {
	dir, err := os.MkdirTemp("", "schema-gen-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	mod := "module gen\n\ngo 1.21\n\nrequire k8s.io/api " + version + "\n"
	modules := []string{"k8s.io/api"}
	if extras {
		for _, m := range []string{"k8s.io/apiextensions-apiserver", "k8s.io/kube-aggregator"} {
			mod += "require " + m + " " + version + "\n"
			modules = append(modules, m)
		}
	}
	// The folder must not look like a part of the package it was copied from.
	if err := os.MkdirAll(filepath.Join(dir, "describe"), 0o755); err != nil {
		return nil, err
	}
	for name, text := range map[string]string{
		"go.mod":               mod,
		"describe/describe.go": string(code),
		"main.go":              "package main\n\nimport _ \"k8s.io/api/core/v1\"\n\nfunc main() {}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	packages, err := apiPackages(dir, modules)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(program(packages)), 0o644); err != nil {
		return nil, err
	}
	b, err := goCommand(dir, "run", "-mod=mod", ".")
	if err != nil {
		return nil, err
	}
	t := new(describe.Table)
	if err := json.Unmarshal(b, t); err != nil {
		return nil, err
	}
	return t, nil
}

// apiPackages lists the packages that register versioned types with a scheme.
func apiPackages(dir string, modules []string) ([]string, error) {
	var found []string
	for _, m := range modules {
		b, err := goCommand(dir, "list", "-mod=mod", "-e", "-f", "{{.ImportPath}}\t{{.Dir}}", m+"/...")
		if err != nil {
			return nil, err
		}
		for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
			path, folder, _ := strings.Cut(line, "\t")
			if m != "k8s.io/api" && !strings.Contains(path, "/pkg/apis/") || !strings.HasPrefix(filepath.Base(path), "v") {
				continue
			}
			text, err := os.ReadFile(filepath.Join(folder, "register.go"))
			if err != nil || !strings.Contains(string(text), "AddToScheme") {
				continue
			}
			found = append(found, path)
		}
	}
	sort.Strings(found)
	return found, nil
}

// program is the source of the describing program.
func program(packages []string) string {
	var b strings.Builder
	b.WriteString("package main\n\nimport (\n\t\"encoding/json\"\n\t\"os\"\n\t\"reflect\"\n\n\t\"gen/describe\"\n\t\"k8s.io/apimachinery/pkg/runtime\"\n")
	for i, p := range packages {
		fmt.Fprintf(&b, "\tp%d %q\n", i, p)
	}
	b.WriteString(")\n\nfunc main() {\n\ts := runtime.NewScheme()\n")
	for i := range packages {
		fmt.Fprintf(&b, "\tcheck(p%d.AddToScheme(s))\n", i)
	}
	b.WriteString(`	kinds := map[string]reflect.Type{}
	for gvk, t := range s.AllKnownTypes() {
		if gvk.Version != runtime.APIVersionInternal {
			kinds[gvk.GroupVersion().String()+"\x00"+gvk.Kind] = t
		}
	}
	t, err := describe.Types(kinds)
	check(err)
	check(json.NewEncoder(os.Stdout).Encode(t))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
`)
	return b.String()
}

func goCommand(dir string, args ...string) ([]byte, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "GOFLAGS=")
	var stderr strings.Builder
	cmd.Stderr = io.Writer(&stderr)
	b, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return b, nil
}
