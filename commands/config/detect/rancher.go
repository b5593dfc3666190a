package detect

import (
	"fmt"
	"path"
	"strings"

	"go.yaml.in/yaml/v3"
)

// rancher looks for a server of K3s or RKE2, which lay out their files alike.
func (t *tree) rancher(kind string) *Host {
	v, problems := t.rancherSettings(kind)
	data := v.get("data-dir")
	if data == "" {
		data = "/var/lib/rancher/" + kind
	}
	server := path.Join(data, "server")
	store := v.get("datastore-endpoint")
	_, err := t.stat(server)
	switch {
	case gone(err) && store == "" && len(problems) == 0:
		return nil
	case gone(err) && store == "":
		return &Host{Kind: kind, Store: Etcd, Problems: problems} // where the data is could not be read
	}
	h := &Host{Kind: kind, Store: Etcd, Problems: problems}
	db := path.Join(server, "db", "etcd")
	_, err = t.stat(db)
	switch {
	case strings.HasPrefix(store, "http://"), strings.HasPrefix(store, "https://"):
		t.datastore(h, v)
	case store != "":
		t.kine(h, v, server, "", store)
	case err == nil:
		t.embedded(h, server, db)
	case !gone(err):
		h.Problems = append(h.Problems, t.problem(db, err, ""))
		return h
	case v.get("disable-etcd") == "true":
		t.embedded(h, server, "")
		h.note("etcd runs on other servers; %s passes on to them what comes to this endpoint", kind)
	case !t.missing(path.Join(server, "db", "state.db")):
		t.kine(h, v, server, path.Join(server, "db", "state.db"), "")
	default:
		h.Problems = append(h.Problems, Problem{File: t.shown(path.Join(server, "db")), Message: "has neither etcd's data nor an SQLite database", Hint: "has the server ever started?"})
	}
	t.rancherEncryption(h, v, server)
	return h
}

// rancherSettings reads the configuration file, its drop-ins, and the service: its
// arguments win, its variables lose.
func (t *tree) rancherSettings(kind string) (values, []Problem) {
	v := newValues()
	service, prefix := "k3s", "K3S_"
	if kind == RKE2 {
		service, prefix = "rke2-server", "RKE2_"
	}
	conf := "/etc/rancher/" + kind + "/config.yaml"
	u := t.unit(service)
	var flags values
	var problems []Problem
	if u != nil {
		problems = u.denied
		for k, val := range u.env {
			if name, ok := strings.CutPrefix(k, prefix); ok {
				name = strings.ToLower(strings.ReplaceAll(name, "_", "-"))
				v.all[name], v.from[name] = []string{val}, u.envFrom[k]+": "+k
			}
		}
		if args, ok := flagsOf(u.command, kind, u.env); ok {
			flags = parseFlags(args, t.shown(u.file))
			if d := flags.get("d"); d != "" {
				flags.all["data-dir"], flags.from["data-dir"] = []string{d}, flags.from["d"]
			}
		}
	}
	for _, name := range []string{"config", "c"} {
		for _, c := range []string{v.get("config-file"), flags.get(name)} {
			if path.IsAbs(c) {
				conf = c
			}
		}
	}
	files := []string{conf}
	names, err := t.list(conf + ".d")
	if err != nil {
		problems = append(problems, t.problem(conf+".d", err, ""))
	}
	for _, n := range names {
		if l := strings.ToLower(n); strings.HasSuffix(l, ".yaml") || strings.HasSuffix(l, ".yml") {
			files = append(files, path.Join(conf+".d", n))
		}
	}
	for _, f := range files {
		if err := t.rancherFile(f, v); err != nil && !gone(err) {
			problems = append(problems, t.problem(f, err, ""))
		}
	}
	return v.over(flags), problems
}

// rancherFile adds a file of the configuration. A member with a plus behind its name adds
// to what an earlier file said.
func (t *tree) rancherFile(file string, v values) error {
	b, err := t.read(file)
	if err != nil {
		return err
	}
	var m map[string]any
	if err := yaml.Unmarshal(b, &m); err != nil {
		return fmt.Errorf("is no configuration of K3s or RKE2: %w", err)
	}
	for k, x := range m {
		list, ok := x.([]any)
		if !ok {
			list = []any{x}
		}
		name, more := strings.CutSuffix(k, "+")
		if !more {
			v.all[name] = nil
		}
		for _, e := range list {
			if e != nil {
				v.all[name] = append(v.all[name], fmt.Sprint(e))
			}
		}
		v.from[name] = t.shown(file) + ": " + name
	}
	return nil
}

// embedded is the etcd inside of the server; db is its folder, "" where this server has
// none.
func (t *tree) embedded(h *Host, server, db string) {
	tls := path.Join(server, "tls", "etcd")
	c := client{server: newValues(), inside: func(p string) string { return p }, renew: fmt.Sprintf("`%s certificate rotate` renews it while the server stands still", h.Kind)}
	conf := path.Join(db, "config")
	if db != "" {
		// The server writes its etcd's configuration there at every start.
		if err := t.configFile(conf, &c.server); err != nil && !gone(err) {
			h.Problems = append(h.Problems, t.problem(conf, err, ""))
		}
	}
	put := func(name, val, from string) {
		if c.server.get(name) == "" {
			c.server.all[name], c.server.from[name] = []string{val}, from
		}
	}
	put("listen-client-urls", "https://127.0.0.1:2379", h.Kind+"'s default")
	put("trusted-ca-file", path.Join(tls, "server-ca.crt"), t.shown(tls))
	put("cert-file", path.Join(tls, "server-client.crt"), t.shown(tls))
	put("key-file", path.Join(tls, "server-client.key"), t.shown(tls))
	put("client-cert-auth", "true", h.Kind+"'s default")
	if db == "" {
		// The certificate here is of a server that does not run.
		delete(c.server.all, "cert-file")
	}
	c.clients = []pair{{path.Join(tls, "client.crt"), path.Join(tls, "client.key"), t.shown(tls)}}
	if db != "" {
		put("data-dir", db, "where the server keeps it")
		t.connect(h, c)
		return
	}
	h.set("endpoints", c.server.get("listen-client-urls"), c.server.from["listen-client-urls"])
	ca := c.server.get("trusted-ca-file")
	t.authority(h, []Setting{{Value: ca, From: t.shown(tls)}}, nil, c.renew)
	t.identity(h, c.clients, ca, true, c.renew)
}

// datastore is an etcd that the server is told of.
func (t *tree) datastore(h *Host, v values) {
	h.set("endpoints", strings.Join(split(v.get("datastore-endpoint")), ","), v.from["datastore-endpoint"])
	h.note("an external etcd; its data is where it runs")
	if ca := v.get("datastore-cafile"); ca != "" {
		t.authority(h, []Setting{{Value: ca, From: v.from["datastore-cafile"]}}, nil, "")
	}
	cert := v.get("datastore-certfile")
	t.identity(h, []pair{{cert, v.get("datastore-keyfile"), v.from["datastore-certfile"]}}, "", cert != "", "")
}

// kine is an SQL database behind a part of etcd's API, on a socket of the server.
func (t *tree) kine(h *Host, v values, server, sqlite, endpoint string) {
	h.Store = Kine
	what := "an SQL database (" + withoutPassword(endpoint) + ")"
	if sqlite != "" {
		what = "SQLite (" + t.shown(sqlite) + ")"
	}
	h.note("this is no etcd: %s keeps its data in %s and speaks a part of etcd's API, by Kine", h.Kind, what)
	h.note("get, put, registry, inspect keys and inspect usage work through its socket; del, history, leases and snapshots do not, and --db cannot read its database")
	sock := path.Join(server, "kine.sock")
	switch {
	case v.get("kine-tls") == "true":
		h.note("its socket speaks TLS (kine-tls) and is not looked into")
	case t.socket(sock):
		h.set("endpoints", "unix://"+t.shown(sock), "where the server listens")
	default:
		h.note("its socket %s is not there, or not for this user: the server does not run, or run as root", t.shown(sock))
	}
}

// withoutPassword leaves of a database's address where it is, and nothing that opens it.
func withoutPassword(endpoint string) string {
	scheme, rest, ok := strings.Cut(endpoint, "://")
	if !ok {
		return "address not shown"
	}
	rest, _, _ = strings.Cut(rest, "?")
	if i := strings.LastIndex(rest, "@"); i >= 0 {
		rest = rest[i+1:]
	}
	return scheme + "://" + rest
}

// rancherEncryption finds the API server's EncryptionConfiguration: the server's own, or
// one that the API server is told of.
func (t *tree) rancherEncryption(h *Host, v values, server string) {
	for _, arg := range v.all["kube-apiserver-arg"] {
		if file, ok := strings.CutPrefix(strings.TrimLeft(arg, "-"), "encryption-provider-config="); ok {
			t.encryption(h, file, v.from["kube-apiserver-arg"])
			return
		}
	}
	file := path.Join(server, "cred", "encryption-config.json")
	if _, err := t.stat(file); !gone(err) {
		t.encryption(h, file, "where the server keeps it")
	}
}
