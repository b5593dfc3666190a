package detect

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/certs"
)

// lay makes a root of an archive.
func lay(t *testing.T, archive string) string {
	t.Helper()
	root := t.TempDir()
	for _, f := range txtar.Parse([]byte(archive)).Files {
		path := filepath.Join(root, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// told is all that was found, a line each, with root left out.
func told(root string, r *Report) string {
	var b strings.Builder
	for _, h := range r.Found {
		fmt.Fprintf(&b, "%s %s\n", h.Kind, h.Store)
		for _, s := range h.Settings {
			fmt.Fprintf(&b, "  %s=%s < %s\n", s.Name, s.Value, s.From)
		}
		for _, p := range h.Problems {
			fmt.Fprintf(&b, "  %s %s: %s\n", p.Kind(), p.File, p.Message)
		}
		for _, n := range h.Notes {
			fmt.Fprintf(&b, "  note %s\n", n)
		}
	}
	return strings.ReplaceAll(b.String(), root, "")
}

func TestFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, archive, want string }{
		{"nothing", "", ""},
		{"an agent of K3s has no etcd", "-- etc/rancher/k3s/config.yaml --\nserver: https://x:6443\n-- var/lib/rancher/k3s/agent/x --\n", ""},
		{"an API server alone", "-- etc/kubernetes/manifests/kube-apiserver.yaml --\nspec: {containers: [{command: [kube-apiserver]}]}\n", ""},
		{"kubeadm, folders that are elsewhere", `
-- var/lib/kubelet/config.yaml --
staticPodPath: /etc/pods
-- etc/pods/etcd.yaml --
spec:
  containers:
  - command: [sleep, "1"]
  - command: [sh, -c, "exec /usr/local/bin/etcd --data-dir \"/data\" --listen-client-urls=http://0.0.0.0:2379"]
    args: [--wal-dir=/wal/here]
    volumeMounts: [{name: d, mountPath: /data}, {name: w, mountPath: /wal, subPath: sub}]
  volumes: [{name: d, hostPath: {path: /mnt/ssd/etcd}}, {name: w, hostPath: {path: /mnt/log}}]
-- mnt/ssd/etcd/member/snap/db --
`, `kubeadm etcd
  endpoints=http://127.0.0.1:2379 < /etc/pods/etcd.yaml: --listen-client-urls
  data-dir=/mnt/ssd/etcd < /etc/pods/etcd.yaml: --data-dir
`},
		{"flags in args, variables, a configuration file", `
-- etc/kubernetes/manifests/etcd.yaml --
spec:
  containers:
  - command: [etcd]
    args: [--config-file=$(CONF), --data-dir=/ignored]
    env: [{name: CONF, value: /c/etcd.yml}, {name: ETCD_WAL_DIR, value: /ignored}]
    volumeMounts: [{name: c, mountPath: /c}]
  volumes: [{name: c, hostPath: {path: /etc/etcd-conf}}]
-- etc/etcd-conf/etcd.yml --
data-dir: /var/lib/etcd
advertise-client-urls: http://10.0.0.7:2379
-- var/lib/etcd/member/snap/db --
`, `kubeadm etcd
  endpoints=http://10.0.0.7:2379 < /etc/etcd-conf/etcd.yml: advertise-client-urls
  data-dir=/var/lib/etcd < /etc/etcd-conf/etcd.yml: data-dir
`},
		{"variables alone", `
-- etc/kubernetes/manifests/etcd.yaml --
spec:
  containers:
  - command: [etcd]
    env: [{name: ETCD_DATA_DIR, value: /d}, {name: ETCD_LISTEN_CLIENT_URLS, value: "http://[::]:2399"}]
-- d/member/snap/db --
`, `kubeadm etcd
  endpoints=http://[::1]:2399 < /etc/kubernetes/manifests/etcd.yaml: ETCD_LISTEN_CLIENT_URLS
  data-dir=/d < /etc/kubernetes/manifests/etcd.yaml: ETCD_DATA_DIR
`},
		{"kubeadm with an external etcd", `
-- etc/kubernetes/manifests/kube-apiserver.yaml --
spec: {containers: [{command: [kube-apiserver, "--etcd-servers=http://10.0.0.1:2379, http://10.0.0.2:2379", --encryption-provider-config=/e]}]}
-- e --
`, `kubeadm etcd
  endpoints=http://10.0.0.1:2379,http://10.0.0.2:2379 < /etc/kubernetes/manifests/kube-apiserver.yaml: --etcd-servers
  encryption-config=/e < /etc/kubernetes/manifests/kube-apiserver.yaml: --encryption-provider-config
  note an external etcd: what the API server is told of it; its data is where it runs
`},
		{"manifests that are none", `
-- etc/kubernetes/manifests/etcd.yaml --
spec: [
-- etc/kubernetes/manifests/kube-apiserver.yaml --
spec: {containers: [{command: [sleep]}]}
`, `kubeadm etcd
  problem /etc/kubernetes/manifests/etcd.yaml: is no Pod: yaml: line 1: did not find expected node content
  problem /etc/kubernetes/manifests/kube-apiserver.yaml: has no container that runs kube-apiserver
`},
		{"K3s on SQLite", "-- var/lib/rancher/k3s/server/db/state.db --\n", `k3s kine
  note this is no etcd: k3s keeps its data in SQLite (/var/lib/rancher/k3s/server/db/state.db) and speaks a part of etcd's API, by Kine
  note get, put, registry, inspect keys and inspect usage work through its socket; del, history, leases and snapshots do not, and --db cannot read its database
  note its socket /var/lib/rancher/k3s/server/kine.sock is not there, or not for this user: the server does not run, or run as root
`},
		{"K3s on MySQL, said to the service; its password is nobody's", `
-- etc/systemd/system/k3s.service --
[Service]
EnvironmentFile=-/etc/default/%N
EnvironmentFile=-/etc/systemd/system/k3s.service.env
ExecStart=/usr/local/bin/k3s \
    server \
	'--data-dir' \
	'/srv/k3s' \

-- etc/systemd/system/k3s.service.env --
K3S_DATASTORE_ENDPOINT='mysql://root:p@ss:word@tcp(db:3306)/k3s?tls=true'
-- srv/k3s/server/cred/encryption-config.json --
-- srv/k3s/server/db/state.db --
`, `k3s kine
  encryption-config=/srv/k3s/server/cred/encryption-config.json < where the server keeps it
  note this is no etcd: k3s keeps its data in an SQL database (mysql://tcp(db:3306)/k3s) and speaks a part of etcd's API, by Kine
  note get, put, registry, inspect keys and inspect usage work through its socket; del, history, leases and snapshots do not, and --db cannot read its database
  note its socket /srv/k3s/server/kine.sock is not there, or not for this user: the server does not run, or run as root
`},
		{"K3s with an external etcd, arguments over the file, drop-ins in order, lists that grow", `
-- etc/systemd/system/k3s.service --
[Service]
ExecStart=/usr/local/bin/k3s server --datastore-endpoint=http://10.0.0.1:2379,http://10.0.0.2:2379 --kube-apiserver-arg audit-log-path=/x
-- etc/rancher/k3s/config.yaml --
datastore-endpoint: http://ignored:2379
kube-apiserver-arg: [encryption-provider-config=/old]
-- etc/rancher/k3s/config.yaml.d/20.yml --
kube-apiserver-arg+: encryption-provider-config=/not-first
-- etc/rancher/k3s/config.yaml.d/10.YAML --
kube-apiserver-arg: encryption-provider-config=/enc
-- etc/rancher/k3s/config.yaml.d/30.txt --
data-dir: /ignored
-- enc --
`, `k3s etcd
  endpoints=http://10.0.0.1:2379,http://10.0.0.2:2379 < /etc/systemd/system/k3s.service: --datastore-endpoint
  encryption-config=/enc < /etc/systemd/system/k3s.service: --kube-apiserver-arg
  note an external etcd; its data is where it runs
`},
		{"a server that never started", "-- var/lib/rancher/rke2/server/token --\n", `rke2 etcd
  problem /var/lib/rancher/rke2/server/db: has neither etcd's data nor an SQLite database
`},
		{"a service of etcd's with drop-ins and a configuration file", `
-- usr/lib/systemd/system/etcd.service --
[Service]
ExecStart=/usr/bin/etcd --data-dir /ignored
-- etc/systemd/system/etcd.service.d/90.conf --
[Service]
Environment=CONF=e.yml
-- etc/systemd/system/etcd.service.d/10.conf --
[Service]
Environment=CONF=wrong.yml
-- run/systemd/system/etcd.service.d/90.conf --
[Service]
Environment=CONF=weaker.yml
-- etc/systemd/system/etcd.service.d/50.conf --
[Service]
ExecStart=
ExecStart=/bin/bash -c "GOMAXPROCS=$(nproc) /usr/bin/etcd --config-file=/etc/etcd/${CONF}"
-- etc/etcd/e.yml --
data-dir: /var/lib/e
listen-client-urls: http://10.1.1.1:2379,http://localhost:2379
-- var/lib/e/member/snap/db --
`, `systemd etcd
  endpoints=http://localhost:2379 < /etc/etcd/e.yml: listen-client-urls
  data-dir=/var/lib/e < /etc/etcd/e.yml: data-dir
`},
		{"Debian's package as it comes", `
-- lib/systemd/system/etcd.service --
[Service]
Environment=DAEMON_ARGS=
Environment=ETCD_NAME=%H
Environment=ETCD_DATA_DIR=/var/lib/etcd/default
EnvironmentFile=-/etc/default/%p
ExecStart=/usr/bin/etcd $DAEMON_ARGS
-- etc/default/etcd --
## ETCD_DATA_DIR=/no
`, `systemd etcd
  endpoints=http://localhost:2379 < etcd's default
  data-dir=/var/lib/etcd/default < /lib/systemd/system/etcd.service: ETCD_DATA_DIR
  warning /var/lib/etcd/default/member/snap/db: is not there
`},
		{"files of an etcd without a unit", `
-- etc/etcd/etcd.conf --
#[Member]
ETCD_DATA_DIR="default.etcd"
ETCD_LISTEN_CLIENT_URLS="unix:///run/etcd.sock"
`, `systemd etcd
  endpoints=unix:///run/etcd.sock < /etc/etcd/etcd.conf: ETCD_LISTEN_CLIENT_URLS
  note data-dir is default.etcd, which is relative to where etcd is started
  note no data folder is named; etcd makes one beside where it is started
`},
		{"a configuration file without a unit", "-- etc/etcd/etcd.conf.yml --\ndata-dir: /d\n-- d/member/snap/db --\n", `systemd etcd
  endpoints=http://localhost:2379 < etcd's default
  data-dir=/d < /etc/etcd/etcd.conf.yml: data-dir
`},
		{"a configuration file that is none", "-- etc/etcd/etcd.conf.yml --\n- a\n", `systemd etcd
  problem /etc/etcd/etcd.conf.yml: /etc/etcd/etcd.conf.yml is no configuration file of etcd: yaml: unmarshal errors:
  line 1: cannot unmarshal !!seq into map[string]interface {}
`},
	} {
		root := lay(t, c.archive)
		r := Run(Options{Root: root, Now: time.Now()})
		if got := told(root, r); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
		if len(r.Looked) < 10 || !strings.HasPrefix(r.Looked[0], root) {
			t.Errorf("%s: looked at %v", c.name, r.Looked)
		}
	}
}

// A socket of Kine's is an endpoint.
func TestKineSocket(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("K3s' servers run on Linux")
	}
	root, err := os.MkdirTemp("", "k") // a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	server := filepath.Join(root, "var/lib/rancher/k3s/server")
	if err := os.MkdirAll(filepath.Join(server, "db"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(server, "db/state.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(server, "kine.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := Run(Options{Root: root, Now: time.Now()})
	if len(r.Found) != 1 || r.Found[0].Store != Kine || r.Found[0].Get("endpoints") != "unix://"+filepath.Join(server, "kine.sock") {
		t.Errorf("found %s", told(root, r))
	}
}

// A mounted disk's absolute links point into the disk, and none out of it.
func TestLinksBelowARoot(t *testing.T) {
	t.Parallel()
	root := lay(t, `
-- lib/systemd/system/etcd3.service --
[Service]
ExecStart=/usr/bin/etcd --data-dir /var/lib/etcd
-- mnt/disk/etcd/member/snap/db --
`)
	for from, to := range map[string]string{
		"etc/systemd/system/etcd.service": "/lib/systemd/system/etcd3.service",
		"var/lib/etcd":                    "../../../../../../mnt/disk/etcd", // .. of the root is the root
		"etc/default":                     "loop", "etc/loop": "default",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, from)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, filepath.Join(root, from)); err != nil {
			t.Fatal(err)
		}
	}
	want := "systemd etcd\n  endpoints=http://localhost:2379 < etcd's default\n  data-dir=/mnt/disk/etcd < /lib/systemd/system/etcd3.service: --data-dir\n"
	if got := told(root, Run(Options{Root: root, Now: time.Now()})); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// TestCertificates: each thing that can be wrong is found, and a good certificate is
// taken where there is one.
func TestCertificates(t *testing.T) {
	t.Parallel()
	ca, other := certs.New(t, "ca"), certs.New(t, "other")
	now := time.Now()
	local := certs.Leaf{Name: "server", Hosts: []string{"127.0.0.1"}}
	good := certs.Leaf{Name: "client"}
	expired := certs.Leaf{Name: "client", From: now.AddDate(-1, 0, 0), Until: now.AddDate(0, 0, -1)}
	for _, c := range []struct {
		name   string
		server certs.Leaf
		issue  func(dir string) // tls/etcd of K3s, in which ca, server-client and client are good
		want   []string         // parts of problems, one each; none: no problem
	}{
		{"all is well", local, func(string) {}, nil},
		{"expired", local, func(d string) { ca.Issue(t, d+"/client", expired) }, []string{"client.crt: expired on "}},
		{"soon", local, func(d string) {
			ca.Issue(t, d+"/client", certs.Leaf{Name: "c", Until: now.AddDate(0, 0, 5).Add(time.Hour)})
		}, []string{"warning client.crt: expires on "}},
		{"not yet", local, func(d string) {
			ca.Issue(t, d+"/client", certs.Leaf{Name: "c", From: now.AddDate(0, 0, 1)})
		}, []string{"client.crt: is not valid before "}},
		{"of another CA", local, func(d string) { other.Issue(t, d+"/client", good) }, []string{"client.crt: is not signed by "}},
		{"for servers alone", local, func(d string) { ca.Issue(t, d+"/client", local) }, []string{"client.crt: is not made for client authentication"}},
		{"another key", local, func(d string) {
			ca.Issue(t, d+"/x", good)
			rename(t, d+"/x.key", d+"/client.key")
		}, []string{"client.key: the key does not belong to "}},
		{"no key", local, func(d string) { remove(t, d+"/client.key") }, []string{"client.key: is not there"}},
		{"a key that is none", local, func(d string) { put(t, d+"/client.key", "hello") }, []string{"client.key: failed to find any PEM data in key input"}},
		{"a certificate that is none", local, func(d string) { put(t, d+"/client.crt", "hello") }, []string{"client.crt: holds no PEM certificate"}},
		{"a certificate that is broken", local, func(d string) {
			put(t, d+"/client.crt", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
		}, []string{"client.crt: holds a certificate that cannot be read"}},
		{"none at all", local, func(d string) { remove(t, d+"/client.crt") }, []string{"server-client.crt: is not made for client authentication"}},
		{"no CA", local, func(d string) { remove(t, d+"/server-ca.crt") }, []string{"server-ca.crt: is not there"}},
		{"not the server's CA", local, func(d string) {
			other.Save(t, d+"/server-ca.crt")
			other.Issue(t, d+"/client", good)
		}, []string{"server-ca.crt: did not sign the server's certificate "}},
		{"the server's expired", certs.Leaf{Name: "s", Hosts: []string{"127.0.0.1"}, From: now.AddDate(-1, 0, 0), Until: now.AddDate(0, 0, -1)}, func(string) {}, []string{"server-client.crt: expired on "}},
		{"another server's", certs.Leaf{Name: "s", Hosts: []string{"10.9.9.9"}}, func(string) {}, []string{"server-client.crt: the server's certificate is for 10.9.9.9, not for https://127.0.0.1:2379"}},
		{"a folder in its place", local, func(d string) {
			remove(t, d+"/client.crt")
			if err := os.Mkdir(d+"/client.crt", 0o700); err != nil {
				t.Fatal(err)
			}
		}, []string{"client.crt is not a file"}},
	} {
		root := t.TempDir()
		server := filepath.Join(root, "var/lib/rancher/k3s/server")
		dir := filepath.Join(server, "tls/etcd")
		ca.Save(t, dir+"/server-ca.crt")
		ca.Issue(t, dir+"/server-client", c.server)
		ca.Issue(t, dir+"/client", good)
		put(t, server+"/db/etcd/member/snap/db", "")
		c.issue(dir)
		r := Run(Options{Root: root, Now: now})
		var got []string
		for _, p := range r.Found[0].Problems {
			line := filepath.Base(p.File) + ": " + p.Message
			if p.Warning {
				line = "warning " + line
			}
			got = append(got, line)
		}
		ok := len(got) == len(c.want)
		for _, w := range c.want {
			ok = ok && slices.ContainsFunc(got, func(g string) bool { return strings.Contains(g, w) })
		}
		if !ok {
			t.Errorf("%s: problems %q, want %q", c.name, got, c.want)
		}
		for _, p := range r.Found[0].Problems {
			if strings.Contains(p.Message, "expire") && !strings.Contains(p.Hint, "k3s certificate rotate") {
				t.Errorf("%s: hint %q", c.name, p.Hint)
			}
		}
	}
}

// Of kubeadm's certificates the first that works is taken, and an endpoint that the
// server's certificate is for.
func TestKubeadmChoice(t *testing.T) {
	t.Parallel()
	root := lay(t, `
-- etc/kubernetes/manifests/etcd.yaml --
spec:
  containers:
  - command: [etcd, --data-dir=/d, "--listen-client-urls=https://127.0.0.1:2379,https://10.0.0.5:2379", --client-cert-auth=true,
      --cert-file=/etc/kubernetes/pki/etcd/server.crt, --key-file=/etc/kubernetes/pki/etcd/server.key, --trusted-ca-file=/etc/kubernetes/pki/etcd/ca.crt]
-- etc/kubernetes/manifests/kube-apiserver.yaml --
spec: {containers: [{command: [kube-apiserver, --etcd-cafile=/etc/kubernetes/pki/etcd/ca.crt, --etcd-certfile=/etc/kubernetes/pki/api.crt, --etcd-keyfile=/etc/kubernetes/pki/api.key]}]}
-- d/member/snap/db --
`)
	pki := filepath.Join(root, "etc/kubernetes/pki")
	a := certs.New(t, "etcd-ca")
	a.Save(t, pki+"/etcd/ca.crt")
	a.Issue(t, pki+"/etcd/server", certs.Leaf{Name: "s", Hosts: []string{"10.0.0.5"}, Client: true})
	a.Issue(t, pki+"/api", certs.Leaf{Name: "api"})
	past := certs.Leaf{Name: "h", From: time.Now().AddDate(-1, 0, 0), Until: time.Now().AddDate(0, 0, -1)}
	a.Issue(t, pki+"/etcd/healthcheck-client", past)
	for _, want := range []string{"api.crt", "server.crt", "healthcheck-client.crt"} {
		h := Run(Options{Root: root, Now: time.Now()}).Found[0]
		if h.Get("endpoints") != "https://10.0.0.5:2379" || filepath.Base(h.Get("cert")) != want || strings.TrimSuffix(h.Get("cert"), ".crt") != strings.TrimSuffix(h.Get("key"), ".key") {
			t.Errorf("want %s: %+v", want, h.Settings)
		}
		if serious := slices.ContainsFunc(h.Problems, func(p Problem) bool { return !p.Warning }); serious != (want == "healthcheck-client.crt") {
			t.Errorf("%s: problems %+v", want, h.Problems)
		}
		switch want {
		case "api.crt":
			remove(t, pki+"/api.key")
		case "server.crt":
			remove(t, pki+"/etcd/server.key")
		}
	}
}

// A server that leaves etcd to others passes on what comes to its port.
func TestDisabledEtcd(t *testing.T) {
	t.Parallel()
	root := lay(t, "-- etc/rancher/rke2/config.yaml --\ndisable-etcd: true\n-- var/lib/rancher/rke2/server/token --\n")
	dir := filepath.Join(root, "var/lib/rancher/rke2/server/tls/etcd")
	a := certs.New(t, "ca")
	a.Save(t, dir+"/server-ca.crt")
	a.Issue(t, dir+"/client", certs.Leaf{Name: "c"})
	h := Run(Options{Root: root, Now: time.Now()}).Found[0]
	if h.Get("endpoints") != "https://127.0.0.1:2379" || h.Get("cert") != dir+"/client.crt" || h.Get("data-dir") != "" || len(h.Problems) > 0 || len(h.Notes) != 1 {
		t.Errorf("%+v", h)
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := cmp.Or(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// FuzzFiles: whatever stands in the files, the search ends and names what it read.
func FuzzFiles(f *testing.F) {
	f.Add("[Service]\nExecStart=/usr/bin/etcd --data-dir \"/a b\" $X ${Y} \\\n --k\nEnvironment='X=a b' Y=c\n", "X=\"1\"\n", "data-dir: /x\n")
	f.Add("[Service]\nExecStart=sh -c 'sh -c \"etcd -c sh -c\"'", "", "spec: {containers: [{command: [etcd, sh, -c]}]}")
	f.Add("", "ETCD_CONFIG_FILE=/etc/rancher/k3s/config.yaml", "a+: [1, {b: c}]\ndatastore-endpoint: a://b@c@d?e")
	f.Fuzz(func(t *testing.T, service, env, doc string) {
		root := t.TempDir()
		put(t, root+"/etc/systemd/system/etcd.service", service)
		put(t, root+"/etc/systemd/system/k3s.service", service)
		put(t, root+"/etc/default/etcd", env)
		put(t, root+"/etc/rancher/k3s/config.yaml", doc)
		put(t, root+"/etc/kubernetes/manifests/etcd.yaml", doc)
		for _, h := range Run(Options{Root: root, Now: time.Now()}).Found {
			if len(h.Settings)+len(h.Problems)+len(h.Notes) == 0 {
				t.Errorf("%s was found, and nothing is said of it", h.Kind)
			}
			for _, s := range h.Settings {
				if s.Value == "" || s.From == "" {
					t.Errorf("%+v", s)
				}
			}
		}
	})
}
