package commands_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sandbox"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/certs"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/corpus"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/server"
)

// host is a root folder with a real etcd in it, laid out as its kind does.
type host struct {
	root, kind string
	etcd       *server.Process
}

func (h *host) path(p string) string { return filepath.Join(h.root, p) }

func (h *host) write(t *testing.T, path, text string) {
	t.Helper()
	writeFile(t, h.path(path), text)
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// start starts the etcd with TLS, certificates wanted of clients.
func (h *host) start(t *testing.T, data, ca, cert string) {
	t.Helper()
	h.etcd = server.Start(t, server.Options{DataDir: h.path(data), Scheme: "https",
		Args: []string{"--cert-file", h.path(cert + ".crt"), "--key-file", h.path(cert + ".key"), "--trusted-ca-file", h.path(ca), "--client-cert-auth"}})
	// It listens before it has a database.
	db := filepath.Join(h.path(data), "member", "snap", "db")
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(db); err == nil {
			return
		} else if time.Since(start) > 30*time.Second {
			t.Fatal(err)
		}
	}
}

var local = certs.Leaf{Name: "server", Hosts: []string{"127.0.0.1", "localhost"}, Client: true}

func kubeadmHost(t *testing.T) *host {
	h := &host{root: t.TempDir(), kind: "kubeadm"}
	const pki = "/etc/kubernetes/pki"
	a := certs.New(t, "etcd-ca")
	a.Save(t, h.path(pki+"/etcd/ca.crt"))
	a.Issue(t, h.path(pki+"/etcd/server"), local)
	a.Issue(t, h.path(pki+"/etcd/healthcheck-client"), certs.Leaf{Name: "kube-etcd-healthcheck-client"})
	a.Issue(t, h.path(pki+"/apiserver-etcd-client"), certs.Leaf{Name: "kube-apiserver-etcd-client"})
	h.start(t, "/var/lib/etcd", pki+"/etcd/ca.crt", pki+"/etcd/server")
	h.write(t, "/etc/kubernetes/manifests/etcd.yaml", `apiVersion: v1
kind: Pod
metadata: {name: etcd, namespace: kube-system}
spec:
  containers:
  - command:
    - etcd
    - --advertise-client-urls=https://10.0.0.5:2379
    - --cert-file=/etc/kubernetes/pki/etcd/server.crt
    - --client-cert-auth=true
    - --data-dir=/var/lib/etcd
    - --key-file=/etc/kubernetes/pki/etcd/server.key
    - --listen-client-urls=https://10.0.0.5:2379,https://`+h.etcd.Endpoint+`
    - --trusted-ca-file=/etc/kubernetes/pki/etcd/ca.crt
    image: registry.k8s.io/etcd
    name: etcd
    volumeMounts:
    - {mountPath: /var/lib/etcd, name: etcd-data}
    - {mountPath: /etc/kubernetes/pki/etcd, name: etcd-certs}
  hostNetwork: true
  volumes:
  - {hostPath: {path: /etc/kubernetes/pki/etcd, type: DirectoryOrCreate}, name: etcd-certs}
  - {hostPath: {path: /var/lib/etcd, type: DirectoryOrCreate}, name: etcd-data}
`)
	h.write(t, "/etc/kubernetes/manifests/kube-apiserver.yaml", `apiVersion: v1
kind: Pod
spec:
  containers:
  - command: [kube-apiserver, --etcd-cafile=/etc/kubernetes/pki/etcd/ca.crt, --etcd-certfile=/etc/kubernetes/pki/apiserver-etcd-client.crt,
      --etcd-keyfile=/etc/kubernetes/pki/apiserver-etcd-client.key, "--etcd-servers=https://127.0.0.1:2379", --encryption-provider-config=/etc/enc/config.yaml]
    volumeMounts: [{mountPath: /etc/enc, name: enc}, {mountPath: /etc/kubernetes/pki, name: pki}]
  volumes: [{name: enc, hostPath: {path: /etc/kubernetes/enc}}, {name: pki, hostPath: {path: /etc/kubernetes/pki}}]
`)
	h.write(t, "/etc/kubernetes/enc/config.yaml", encryption(t))
	return h
}

func encryption(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(corpus.EncryptionConfig())
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// rancherHost is a server of K3s or RKE2. Its data folder may have been moved.
func rancherHost(t *testing.T, kind, data string) *host {
	h := &host{root: t.TempDir(), kind: kind}
	srv := data + "/server"
	a := certs.New(t, "etcd-server-ca")
	a.Save(t, h.path(srv+"/tls/etcd/server-ca.crt"))
	a.Issue(t, h.path(srv+"/tls/etcd/server-client"), local)
	a.Issue(t, h.path(srv+"/tls/etcd/client"), certs.Leaf{Name: "etcd-client"})
	h.start(t, srv+"/db/etcd", srv+"/tls/etcd/server-ca.crt", srv+"/tls/etcd/server-client")
	h.write(t, srv+"/db/etcd/config", fmt.Sprintf(`advertise-client-urls: https://10.0.0.5:2379
client-transport-security:
  cert-file: %[1]s/tls/etcd/server-client.crt
  client-cert-auth: true
  key-file: %[1]s/tls/etcd/server-client.key
  trusted-ca-file: %[1]s/tls/etcd/server-ca.crt
data-dir: %[1]s/db/etcd
listen-client-urls: https://%[2]s,https://10.0.0.5:2379
`, srv, h.etcd.Endpoint))
	h.write(t, srv+"/cred/encryption-config.json", encryption(t))
	return h
}

func k3sHost(t *testing.T) *host {
	h := rancherHost(t, "k3s", "/srv/k3s")
	h.write(t, "/etc/rancher/k3s/config.yaml", "cluster-init: true\ndata-dir: /srv/elsewhere\n")
	h.write(t, "/etc/rancher/k3s/config.yaml.d/10-data.yaml", "data-dir: /srv/k3s\n")
	return h
}

func rke2Host(t *testing.T) *host { return rancherHost(t, "rke2", "/var/lib/rancher/rke2") }

func systemdHost(t *testing.T) *host {
	h := &host{root: t.TempDir(), kind: "systemd"}
	a := certs.New(t, "ca")
	a.Save(t, h.path("/etc/etcd/pki/ca.crt"))
	a.Issue(t, h.path("/etc/etcd/pki/member"), local)
	h.start(t, "/var/lib/etcd/default", "/etc/etcd/pki/ca.crt", "/etc/etcd/pki/member")
	h.write(t, "/lib/systemd/system/etcd.service", `[Unit]
Description=etcd
[Service]
Environment=ETCD_DATA_DIR=/var/lib/etcd/default "ETCD_NAME=%H"
EnvironmentFile=-/etc/default/%p
ExecStart=/usr/bin/etcd $DAEMON_ARGS \
  --key-file ${PKI}/member.key
`)
	h.write(t, "/etc/default/etcd", `# of this host
PKI=/etc/etcd/pki
ETCD_LISTEN_CLIENT_URLS="https://`+h.etcd.Endpoint+`"
DAEMON_ARGS="--cert-file=/etc/etcd/pki/member.crt --client-cert-auth --trusted-ca-file=/etc/etcd/pki/ca.crt"
`)
	return h
}

// TestContextDetect: what is found connects, and its data folder is read.
func TestContextDetect(t *testing.T) {
	t.Parallel()
	for name, lay := range map[string]func(*testing.T) *host{"kubeadm": kubeadmHost, "k3s": k3sHost, "rke2": rke2Host, "systemd": systemdHost} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := lay(t)
			env := map[string]string{"XDG_CONFIG_HOME": t.TempDir()}
			var v struct {
				Found []struct {
					Kind, Store string
					Settings    []struct{ Name, Value, From string }
					Problems    []struct{ Message string }
				}
			}
			if err := json.Unmarshal([]byte(ok(t, env, "context", "detect", "--root", h.root, "-w", "json")), &v); err != nil {
				t.Fatal(err)
			}
			if len(v.Found) != 1 || v.Found[0].Kind != h.kind || v.Found[0].Store != "etcd" || len(v.Found[0].Problems) != 0 {
				t.Fatalf("found %+v", v.Found)
			}
			got := map[string]string{}
			for _, s := range v.Found[0].Settings {
				got[s.Name] = s.Value
				if s.From == "" {
					t.Errorf("%s comes from nowhere", s.Name)
				}
			}
			if got["endpoints"] != "https://"+h.etcd.Endpoint {
				t.Errorf("endpoint %q", got["endpoints"])
			}
			if got["data-dir"] != h.etcd.DataDir {
				t.Errorf("data folder %q, it is %q", got["data-dir"], h.etcd.DataDir)
			}
			if client := map[string]string{"kubeadm": "healthcheck-client.crt", "systemd": "member.crt"}[h.kind]; client != "" && filepath.Base(got["cert"]) != client {
				t.Errorf("client certificate %q", got["cert"])
			}

			r := run(t, env, "context", "detect", "--root", h.root, "--save", "here")
			if r.code != 0 || !strings.Contains(r.stderr, "saved as context here in ") {
				t.Fatalf("save: %d, %s", r.code, r.stderr)
			}
			ok(t, env, "put", "app/a", "from "+h.kind, "--context", "here")
			if got := ok(t, env, "get", "app/a", "--context", "here"); !strings.Contains(got, "from "+h.kind) {
				t.Errorf("get: %q", got)
			}
			if got := ok(t, env, "get", "app/a", "--db", got["data-dir"], "--db-copy"); !strings.Contains(got, "from "+h.kind) {
				t.Errorf("get --db: %q", got)
			}
			// It is there now, and another one is not replaced without being told.
			if r := run(t, env, "context", "detect", "--root", h.root, "--save", "here"); r.code != 0 || !strings.Contains(r.stderr, "nothing was changed") {
				t.Errorf("save again: %d, %s", r.code, r.stderr)
			}
			ok(t, env, "context", "set", "here", "--endpoints", "http://127.0.0.1:1")
			if r := run(t, env, "context", "detect", "--root", h.root, "--save", "here"); r.code != int(cli.CantCreate) {
				t.Errorf("save over another: %d, %s", r.code, r.stderr)
			}
			ok(t, env, "context", "detect", "--root", h.root, "--save", "HERE", "--force", "--use")
			ok(t, env, "get", "app/a")
			if got := ok(t, env, "context", "list", "-w", "jsonpath={.contexts[*].name} {.current}"); strings.TrimSpace(got) != "here here" {
				t.Errorf("list: %q", got)
			}
			if show := ok(t, env, "context", "show"); !strings.Contains(show, "valid until") || !strings.Contains(show, h.etcd.Endpoint) {
				t.Errorf("show: %s", show)
			}
		})
	}
}

// TestContextDetectKine: K3s on SQLite is no etcd; what there is of one is reached by the
// server's socket.
func TestContextDetectKine(t *testing.T) {
	t.Parallel()
	kine := server.Binary(t, "kine")
	root := public(t) // a socket's path has to be short
	dir := filepath.Join(root, "var/lib/rancher/k3s/server")
	if err := os.MkdirAll(filepath.Join(dir, "db"), 0o700); err != nil {
		t.Fatal(err)
	}
	metrics := fmt.Sprintf("127.0.0.1:%d", server.Ports(t, 1)[0])
	server.Run(t, kine, metrics, "--listen-address", "unix://"+dir+"/kine.sock", "--metrics-bind-address", metrics, "--endpoint", "sqlite://"+dir+"/db/state.db?_journal=WAL")
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(dir + "/kine.sock"); err == nil {
			break
		} else if time.Since(start) > 30*time.Second {
			t.Fatal(err)
		}
	}
	env := map[string]string{"XDG_CONFIG_HOME": t.TempDir()}
	if r := run(t, env, "context", "detect", "--root", root); r.code != int(cli.Negative) || !strings.Contains(r.stdout, "SQLite ("+dir+"/db/state.db)") {
		t.Errorf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	if r := run(t, env, "context", "detect", "--root", root, "--save", "k", "--use"); r.code != 0 || !strings.Contains(r.stderr, "warning: this is no etcd") {
		t.Fatalf("save: %d, %s", r.code, r.stderr)
	}
	// What the note says.
	expect(t, env, []expectation{
		{"put app/a 1", 0, "OK"},
		{"get app/a", 0, "1"},
		{"inspect keys", 0, "app/a"},
		{"inspect usage", 0, "total"},
		{"registry ls", 0, ""},
		{"del app/a", cli.Failure, "Kine"},
		{"inspect history app/a", cli.Failure, "Kine"},
		{"inspect leases", cli.Failure, "Kine"},
		{"snapshot save " + filepath.Join(t.TempDir(), "s.db"), cli.Failure, "Kine"},
		{"inspect keys --db " + dir + "/db/state.db", cli.Usage, "not an etcd database"},
	})
}

// TestContextEncryption: the context's EncryptionConfiguration opens sealed values; one
// that cannot be read leaves them sealed and costs nothing else.
func TestContextEncryption(t *testing.T) {
	t.Parallel()
	s, _ := startSandbox(t, sandbox.Options{From: corpus.Snapshot(t)})
	env := map[string]string{"XDG_CONFIG_HOME": t.TempDir()}
	get := []string{"registry", "get", "secret", "web-tls", "-n", "shop", "-o", "yaml", "--show-secrets"}
	want := ok(t, nil, append(get, "--endpoints", s.Endpoint(), "--encryption-config", corpus.EncryptionConfig())...)
	ok(t, env, "context", "set", "c", "--endpoints", s.Endpoint(), "--encryption-config", corpus.EncryptionConfig(), "--use")
	if got := ok(t, env, get...); got != want || !strings.Contains(got, "tls.crt") {
		t.Errorf("by the context:\n%s\nby the flag:\n%s", got, want)
	}
	ok(t, env, "context", "set", "c", "--encryption-config", filepath.Join(t.TempDir(), "gone"))
	if r := run(t, env, get...); r.code != int(cli.Partial) || !strings.Contains(r.stderr, "from context c") {
		t.Errorf("without the file: %d, %s", r.code, r.stderr)
	}
	if got := ok(t, env, "registry", "get", "ns", "shop", "-o", "name"); !strings.Contains(got, "shop") {
		t.Errorf("what is not sealed: %s", got)
	}
	env["ETCDCTL_PLUS_ENCRYPTION_CONFIG"] = corpus.EncryptionConfig()
	if got := ok(t, env, get...); got != want {
		t.Errorf("by the variable:\n%s", got)
	}
}

// TestContextDetectAsSomebody: a user who may not read root's files is told so, by code.
func TestContextDetectAsSomebody(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("setpriv is Linux's")
	}
	setpriv, err := exec.LookPath("setpriv")
	if os.Getuid() == 0 && err != nil {
		t.Skip("no setpriv to become somebody else with")
	}
	bin := ours(t, "etcdctl-plus")
	if os.Getuid() == 0 { // the test's folders are root's own
		b, err := os.ReadFile(bin)
		if err != nil {
			t.Fatal(err)
		}
		dir := public(t)
		bin = filepath.Join(dir, "etcdctl-plus")
		if err := os.WriteFile(bin, b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	somebody := func(args ...string) (string, string, int) {
		line := append([]string{bin}, args...)
		if os.Getuid() == 0 {
			line = append([]string{setpriv, "--reuid", "65534", "--regid", "65534", "--clear-groups", "--"}, line...)
		}
		cmd := exec.Command(line[0], line[1:]...)
		cmd.Env = []string{"HOME=/nonexistent", "TMPDIR=/tmp"}
		var out, errs strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &errs
		_ = cmd.Run() // the code tells
		return out.String(), errs.String(), cmd.ProcessState.ExitCode()
	}
	for kind, files := range map[string]map[string]fs.FileMode{
		"kubeadm": {"etc/kubernetes/manifests/etcd.yaml": 0},
		"k3s":     {"var/lib/rancher/k3s/server/db/etcd/config": 0},
		"rke2":    {"var/lib/rancher/rke2/server/db/etcd/config": 0},
	} {
		root := public(t)
		for f, mode := range files {
			path := filepath.Join(root, f)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte("x: y\n"), mode); err != nil {
				t.Fatal(err)
			}
		}
		if kind != "kubeadm" {
			dir := filepath.Join(root, "var/lib/rancher", kind, "server")
			if err := os.Chmod(dir, 0); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
		}
		out, errs, code := somebody("context", "detect", "--root", root)
		if code != int(cli.Permission) || !strings.Contains(errs, "Hint: run as root") || !strings.Contains(out, kind) {
			t.Errorf("%s: exit code %d\n%s%s", kind, code, out, errs)
		}
		if _, errs, code := somebody("context", "detect", "--root", root, "--save", "x", "--force", "--config", filepath.Join(root, "c.yaml")); code != int(cli.Permission) {
			t.Errorf("%s --save: exit code %d, %s", kind, code, errs)
		}
	}
}

// public is a folder that everybody may look into.
func public(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "etcdctl-plus-test-*")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
