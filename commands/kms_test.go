package commands_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/sandbox"
	"github.com/etcdctl-plus/etcdctl-plus/registry/kmsclient/kmstest"
)

// TestKMSPlugins: values that a plugin sealed open through its socket; without the
// plugin one line says so, and everything else goes on.
func TestKMSPlugins(t *testing.T) {
	t.Parallel()
	p, wrong := kmstest.Start(t, "right"), kmstest.Start(t, "wrong")
	s, c := startSandbox(t, sandbox.Options{})
	ctx := context.Background()
	put := func(key, value string) {
		if _, err := c.Put(ctx, key, value); err != nil {
			t.Fatal(err)
		}
	}
	object := func(name string) string {
		return `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"` + name + `","namespace":"a"},"data":{"k":"value-of-` + name + `"}}`
	}
	for form, name := range map[string]string{"v1": "one", "v2 seed": "two"} {
		seals := p.APIServer(t, form)
		for i := range 5 {
			n := fmt.Sprintf("%s-%d", name, i)
			put("/registry/configmaps/a/"+n, string(seals(name, "/registry/configmaps/a/"+n, []byte(object(n)))))
		}
	}
	put("/registry/namespaces/default", `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"default"}}`)
	put("/registry/configmaps/a/plain", object("plain"))
	config := func(endpoint string) string {
		path := filepath.Join(t.TempDir(), "enc.yaml")
		text := `{apiVersion: apiserver.config.k8s.io/v1, kind: EncryptionConfiguration, resources: [{resources: [configmaps], providers: [
			{kms: {name: one, endpoint: "` + endpoint + `", timeout: 2s}}, {kms: {apiVersion: v2, name: two, endpoint: "` + endpoint + `", timeout: 2s}}, {identity: {}}]}]}`
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	get := func(conf string, args ...string) result {
		return run(t, nil, append([]string{"registry"}, append(args, "--endpoints", s.Endpoint(), "--encryption-config", conf)...)...)
	}
	right := config(p.Endpoint)
	for _, args := range [][]string{{"get", "cm", "-n", "a", "-o", "yaml"}, {"dump", "cm"}} {
		r := get(right, args...)
		if r.code != 0 || strings.Count(r.stdout, "value-of-") != 11 || r.stderr != "" {
			t.Errorf("%v: exit code %d, %s\n%s", args, r.code, r.stderr, r.stdout)
		}
	}
	for endpoint, say := range map[string]string{"unix:///nowhere/kms.sock": "does not answer: no such file or directory", wrong.Endpoint: "does not open the key"} {
		conf := config(endpoint)
		for _, args := range [][]string{{"get", "cm", "-n", "a", "-o", "yaml"}, {"get", "cm", "-n", "a"}, {"dump", "cm"}} {
			r := get(conf, args...)
			if strings.Count(r.stderr, "at "+endpoint+" "+say) != 2 || strings.Count(r.stderr, "warning:") > 3 { // one line for each of two plugins
				t.Errorf("%s %v:\n%s", endpoint, args, r.stderr)
			}
			if endpoint != wrong.Endpoint && !strings.Contains(r.stderr, "control-plane host") {
				t.Errorf("%v: no hint: %s", args, r.stderr)
			}
			if !strings.Contains(r.stdout, "plain") || strings.Contains(r.stdout, "value-of-one") || !strings.Contains(r.stdout, "two-4") {
				t.Errorf("%s %v: the rest did not go on: %s", endpoint, args, r.stdout)
			}
		}
	}
	one := base64.StdEncoding.EncodeToString(p.APIServer(t, "v2 key")("two", "/registry/configmaps/a/x", []byte(object("x"))))
	file := filepath.Join(t.TempDir(), "value")
	if err := os.WriteFile(file, []byte(one), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := ok(t, nil, "registry", "decode", file, "--etcd-key", "/registry/configmaps/a/x", "--encryption-config", right); !strings.Contains(out, "value-of-x") {
		t.Errorf("%s", out)
	}
	r := run(t, nil, "registry", "decode", file, "--etcd-key", "/registry/configmaps/a/x", "--encryption-config", config("unix:///nowhere/kms.sock"))
	if r.code != 65 || strings.Count(r.stderr, "does not answer") != 1 || !strings.Contains(r.stderr, "control-plane host") {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
}
