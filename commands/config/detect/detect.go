// Package detect finds the etcd of a machine from files alone: of kubeadm, K3s, RKE2, or
// of a systemd unit. It starts nothing, connects to nothing and writes nothing.
//
// Where the files are is what kubeadm (phases/etcd and phases/certs), K3s and RKE2
// (daemons/control, etcd, configfilearg) and etcd's packages do. Folders that their own
// configuration moves are followed.
package detect

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
)

// The kinds of hosts.
const (
	Kubeadm = "kubeadm"
	K3s     = "k3s"
	RKE2    = "rke2"
	Systemd = "systemd"
)

// Kinds lists them in the order they are looked for.
var Kinds = []string{Kubeadm, K3s, RKE2, Systemd}

// The kinds of stores.
const (
	Etcd = "etcd"
	Kine = "kine" // speaks part of etcd's API on top of an SQL database
)

// Options of Run.
type Options struct {
	Root string // "": /
	Now  time.Time
}

// Report is what Run found.
type Report struct {
	Found  []*Host
	Looked []string // every place that was looked at, in order
}

// Host is one etcd, or what stands in its place.
type Host struct {
	Kind         string        `json:"kind"`
	Store        string        `json:"store"`
	Settings     []Setting     `json:"settings"`
	Certificates []Certificate `json:"certificates"`
	Problems     []Problem     `json:"problems"`
	Notes        []string      `json:"notes"`
}

// Setting is something that was found. Its name is that of the flag which takes it, or
// data-dir and wal-dir for folders that --db and --wal-dir read. Paths are as this
// machine sees them, below Options.Root.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	From  string `json:"from"` // a file, and what in it
}

// Problem is what would keep the settings from working; a Warning is what soon or
// otherwise may.
type Problem struct {
	File       string `json:"file"`
	Message    string `json:"message"`
	Hint       string `json:"hint,omitempty"`
	Unreadable bool   `json:"unreadable,omitempty"` // by this user
	Warning    bool   `json:"warning,omitempty"`
}

// Kind names a problem for people.
func (p Problem) Kind() string {
	if p.Warning {
		return "warning"
	}
	return "problem"
}

func (p Problem) String() string {
	s := p.Message
	if p.File != "" && !strings.Contains(s, p.File) {
		s = p.File + ": " + s
	}
	if p.Hint != "" {
		s += " (" + p.Hint + ")"
	}
	return s
}

// Get returns a setting's value, "" for none.
func (h *Host) Get(name string) string {
	for _, s := range h.Settings {
		if s.Name == name {
			return s.Value
		}
	}
	return ""
}

func (h *Host) set(name, value, from string) {
	if value != "" {
		h.Settings = append(h.Settings, Setting{name, value, from})
	}
}

func (h *Host) note(format string, a ...any) { h.Notes = append(h.Notes, fmt.Sprintf(format, a...)) }

// Run looks for every kind of host.
func Run(o Options) *Report {
	t := &tree{root: cmp.Or(o.Root, "/"), now: o.Now}
	r := &Report{}
	for _, find := range []func() *Host{t.kubeadm, func() *Host { return t.rancher(K3s) }, func() *Host { return t.rancher(RKE2) }, t.systemd} {
		if h := find(); h != nil {
			h.Settings, h.Certificates = append([]Setting{}, h.Settings...), append([]Certificate{}, h.Certificates...)
			h.Problems, h.Notes = append([]Problem{}, h.Problems...), append([]string{}, h.Notes...)
			r.Found = append(r.Found, h)
		}
	}
	r.Looked = t.looked
	return r
}

// values are settings with where each comes from. A flag may be given several times.
type values struct {
	all  map[string][]string
	from map[string]string
}

func newValues() values { return values{map[string][]string{}, map[string]string{}} }

func (v values) get(name string) string {
	if l := v.all[name]; len(l) > 0 {
		return l[len(l)-1]
	}
	return ""
}

// over puts w in front of v: what w has counts.
func (v values) over(w values) values {
	for k, l := range w.all {
		v.all[k], v.from[k] = append(v.all[k], l...), w.from[k]
	}
	return v
}

// pair is a client's certificate and key.
type pair struct{ cert, key, from string }

// client is what is to be settled for a connection to an etcd.
type client struct {
	server  values              // the etcd's own settings, by its flags
	inside  func(string) string // from a path that the etcd sees to one of the host
	cas     []Setting           // files that may be the CA of the server, best first
	clients []pair              // best first
	renew   string              // how to renew a certificate
}

// connect settles endpoint, CA and client certificate of an etcd on this host.
func (t *tree) connect(h *Host, c client) {
	file := func(flag string) string {
		if p := c.server.get(flag); p != "" {
			return c.inside(p)
		}
		return ""
	}
	var server *Certificate
	cert := file("cert-file")
	if cert != "" {
		server, _ = t.load("server", cert) // who only connects does not need it
	}
	urls := c.urls()
	chosen := urls[0]
	secure := strings.HasPrefix(chosen.Value, "https://") || strings.HasPrefix(chosen.Value, "unixs://")
	if server != nil && secure {
		i := slices.IndexFunc(urls, func(u Setting) bool { return server.covers(u.Value) })
		if i >= 0 {
			chosen = urls[i]
		} else {
			h.Problems = append(h.Problems, Problem{File: server.File, Message: fmt.Sprintf("the server's certificate is for %s, not for %s", strings.Join(server.Names, ", "), chosen.Value),
				Hint: "use one of its names in --endpoints"})
		}
	}
	h.set("endpoints", chosen.Value, chosen.From)
	if server != nil && secure {
		h.Certificates = append(h.Certificates, *server)
		h.Problems = append(h.Problems, server.dates(t.now, c.renew)...)
	}
	if secure {
		clientCA := file("trusted-ca-file")
		if ca := c.server.get("trusted-ca-file"); ca != "" {
			c.cas = append([]Setting{{Value: clientCA, From: c.server.from["trusted-ca-file"]}}, c.cas...)
		}
		if server != nil && server.selfSigned() {
			c.cas = append(c.cas, Setting{Value: cert, From: "the server's own certificate, which signs itself"})
		}
		t.authority(h, c.cas, server, c.renew)
		if cert != "" {
			// A server's certificate is often good for a client too.
			c.clients = append(c.clients, pair{cert, file("key-file"), c.server.from["cert-file"]})
		}
		t.identity(h, c.clients, clientCA, c.server.get("client-cert-auth") == "true", c.renew)
	}
	t.folders(h, file("data-dir"), c.server.from["data-dir"], file("wal-dir"), c.server.from["wal-dir"])
}

// urls returns what an etcd listens on that this machine can reach, loopback first, then
// what it advertises; by default etcd's own default.
func (c client) urls() []Setting {
	from := c.server.from["listen-client-urls"]
	var near, far []Setting
	for _, s := range split(c.server.get("listen-client-urls")) {
		u, err := url.Parse(s)
		if err != nil {
			continue
		}
		switch ip := net.ParseIP(u.Hostname()); {
		case ip != nil && ip.IsUnspecified():
			host := "127.0.0.1"
			if ip.To4() == nil {
				host = "::1"
			}
			near = append(near, Setting{Value: u.Scheme + "://" + net.JoinHostPort(host, u.Port()), From: from})
		case ip != nil && ip.IsLoopback(), u.Hostname() == "localhost":
			near = append(near, Setting{Value: s, From: from})
		default:
			far = append(far, Setting{Value: s, From: from})
		}
	}
	all := slices.Concat(near, far)
	for _, s := range split(c.server.get("advertise-client-urls")) {
		all = append(all, Setting{Value: s, From: c.server.from["advertise-client-urls"]})
	}
	if len(all) == 0 {
		return []Setting{{Value: "http://localhost:2379", From: "etcd's default"}}
	}
	return all
}

func split(s string) []string {
	var all []string
	for x := range strings.SplitSeq(s, ",") {
		if x = strings.TrimSpace(x); x != "" {
			all = append(all, x)
		}
	}
	return all
}

// authority chooses the CA file that the server's certificate verifies with; where that
// cannot be told, the first that is there.
func (t *tree) authority(h *Host, cas []Setting, server *Certificate, renew string) {
	var first *Certificate
	var firstProblems []Problem
	var firstFrom string
	for _, ca := range cas {
		if ca.Value == "" {
			continue
		}
		c, problems := t.load("cacert", ca.Value)
		if c != nil && (server == nil || server.signedBy(c, t.now, serverAuth) == nil) {
			h.set("cacert", c.File, ca.From)
			h.Certificates = append(h.Certificates, *c)
			h.Problems = append(h.Problems, append(problems, c.dates(t.now, renew)...)...)
			return
		}
		if firstFrom == "" {
			first, firstProblems, firstFrom = c, problems, ca.From
			if c == nil {
				first = &Certificate{File: t.shown(ca.Value)}
			}
		}
	}
	if first == nil {
		h.Problems = append(h.Problems, Problem{Message: "no file with the CA of the server's certificate is named", Hint: "give it with --cacert"})
		return
	}
	h.set("cacert", first.File, firstFrom)
	h.Problems = append(h.Problems, firstProblems...)
	if len(firstProblems) == 0 {
		h.Problems = append(h.Problems, Problem{File: first.File, Message: "did not sign the server's certificate " + server.File, Hint: "give the CA that did with --cacert"})
	}
}

// identity chooses the first client certificate without a problem; where there is none,
// the first that is there, with what is wrong with it.
func (t *tree) identity(h *Host, all []pair, ca string, needed bool, renew string) {
	var bad *pair
	var badCert *Certificate
	var badProblems []Problem
	for _, p := range all {
		if p.cert == "" || t.missing(p.cert) {
			continue
		}
		c, problems := t.checkPair(p, ca, renew)
		serious := slices.ContainsFunc(problems, func(p Problem) bool { return !p.Warning })
		if !serious {
			t.client(h, p, c, problems)
			return
		}
		if bad == nil {
			bad, badCert, badProblems = &p, c, problems
		}
	}
	switch {
	case bad != nil && needed:
		t.client(h, *bad, badCert, badProblems)
	case needed:
		h.Problems = append(h.Problems, Problem{Message: "the server wants a client certificate, and none was found", Hint: "give one with --cert and --key"})
	}
}

func (t *tree) client(h *Host, p pair, c *Certificate, problems []Problem) {
	h.set("cert", t.shown(p.cert), p.from)
	if p.key != "" {
		h.set("key", t.shown(p.key), p.from)
	}
	if c != nil && !slices.ContainsFunc(h.Certificates, func(x Certificate) bool { return x.File == c.File }) {
		h.Certificates = append(h.Certificates, *c)
	}
	for _, q := range problems {
		if !slices.Contains(h.Problems, q) {
			h.Problems = append(h.Problems, q)
		}
	}
}

// folders tells where the data is, and whether it can be read. To connect one needs
// neither.
func (t *tree) folders(h *Host, data, dataFrom, wal, walFrom string) {
	if data == "" {
		h.note("no data folder is named; etcd makes one beside where it is started")
		return
	}
	h.set("data-dir", t.shown(data), dataFrom)
	if wal != "" {
		h.set("wal-dir", t.shown(wal), walFrom)
	}
	db := path.Join(data, "member", "snap", "db")
	f, err := t.open(db)
	if err == nil {
		f.Close()
		return
	}
	p := t.problem(db, err, "")
	p.Warning = true
	h.Problems = append(h.Problems, p)
}
