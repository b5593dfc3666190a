package detect

import (
	"path"
	"strings"
)

// Files that etcd's packages and installers leave its settings in, looked at when no unit
// names them.
var (
	etcdEnvFiles    = []string{"/etc/default/etcd", "/etc/etcd/etcd.conf", "/etc/sysconfig/etcd", "/etc/etcd.env"}
	etcdConfigFiles = []string{"/etc/etcd/etcd.conf.yml", "/etc/etcd/etcd.conf.yaml"}
)

// systemd looks for a service of etcd's own.
func (t *tree) systemd() *Host {
	h := &Host{Kind: Systemd, Store: Etcd}
	v := newValues()
	env, from := map[string]string{}, map[string]string{}
	u := t.unit("etcd")
	var flags values
	if u != nil {
		h.Problems = append(h.Problems, u.denied...)
		env, from = u.env, u.envFrom
		args, ok := flagsOf(u.command, "etcd", u.env)
		if ok {
			flags = parseFlags(args, t.shown(u.file))
		}
	} else {
		for _, f := range etcdEnvFiles {
			h.Problems = append(h.Problems, t.envFile(f, env, from)...)
		}
	}
	for k, val := range env {
		if name, ok := etcdVariable(k); ok {
			v.all[name], v.from[name] = []string{val}, from[k]+": "+k
		}
	}
	v.over(flags)
	conf := v.get("config-file")
	if u == nil && conf == "" {
		for _, f := range etcdConfigFiles {
			if !t.missing(f) {
				conf = f
				break
			}
		}
	}
	if conf != "" {
		if err := t.configFile(conf, &v); err != nil {
			h.Problems = append(h.Problems, t.problem(conf, err, ""))
			return h
		}
	}
	if u == nil && len(v.all) == 0 {
		if len(h.Problems) == 0 {
			return nil
		}
		return h
	}
	c := client{server: v, inside: func(p string) string { return p }, renew: "renew it where it was made"}
	c.clients = append(c.clients, pair{v.get("client-cert-file"), v.get("client-key-file"), v.from["client-cert-file"]})
	if api, err := t.pod(path.Join(t.manifests(), "kube-apiserver.yaml"), "kube-apiserver"); err == nil {
		c.clients = append(c.clients, t.apiClient(api)...)
		if ca := api.flags.get("etcd-cafile"); ca != "" {
			c.cas = append(c.cas, Setting{Value: api.host(ca), From: api.flags.from["etcd-cafile"]})
		}
	}
	for _, name := range []string{"data-dir", "wal-dir"} {
		if p := v.get(name); p != "" && !strings.HasPrefix(p, "/") {
			h.note("%s is %s, which is relative to where etcd is started", name, p)
			delete(v.all, name)
		}
	}
	t.connect(h, c)
	return h
}
