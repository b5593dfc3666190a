package commands_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/certs"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/server"
)

// kinds are the clusters that a list runs on.
var kinds = map[string]func(t *testing.T, version string) *world{
	"one":   func(t *testing.T, version string) *world { return newWorld(t, 1, version) },
	"three": func(t *testing.T, version string) *world { return newWorld(t, 3, version) },
	"tls":   newTLSWorld,
	"auth":  newAuthWorld,
	// Three members that have seen each other for so long that they let others in.
	"settled": func(t *testing.T, version string) *world {
		w := newWorld(t, 3, version)
		time.Sleep(settle)
		return w
	},
	// One member without space.
	"nospace": func(t *testing.T, version string) *world {
		w := newWorld(t, 1, version)
		raise(t, w.admin, w.members[0], pb.AlarmType_NOSPACE)
		return w
	},
}

// settle is how long members have to be connected before etcd changes who they are, and
// some more.
const settle = 6 * time.Second

// raise raises an alarm of a member.
func raise(t *testing.T, c *clientv3.Client, id uint64, alarm pb.AlarmType) {
	t.Helper()
	if _, err := pb.NewMaintenanceClient(c.ActiveConnection()).Alarm(t.Context(), &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: id, Alarm: alarm}); err != nil {
		t.Fatal(err)
	}
}

// TestEqualsEtcdctl runs the lists in testdata/etcdctl through the real etcdctl and
// through ours under that name, on equal clusters. README there has the grammar.
func TestEqualsEtcdctl(t *testing.T) {
	t.Parallel()
	programs := []string{build(t, "go.etcd.io/etcd/etcdctl/v3"), ours(t, "etcdctl")}
	files, err := filepath.Glob(filepath.Join("..", "testdata", "etcdctl", "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatal(err, files)
	}
	for _, file := range files {
		list := readList(t, file)
		if len(list.lines) == 0 || len(list.on) == 0 {
			t.Fatalf("%s: %d lines for %q", file, len(list.lines), list.on)
		}
		for _, on := range list.on {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".txt")+"/"+on, func(t *testing.T) {
				t.Parallel()
				compare(t, list, programs, on)
			})
		}
	}
}

// lineList is one file of command lines.
type lineList struct {
	on    []string // kinds, "one@3.5" for one of an older server
	masks []*regexp.Regexp
	pass  bool // leases come and go: they are neither named nor counted
	lines []listLine
}

// listLine is one command line.
type listLine struct {
	text     string
	differs  bool
	anyOrder bool     // what is listed comes in any order
	where    []string // that it differs only on these; none: everywhere
	until    string   // run until stdout has it, then interrupt
	env      []string
	args     []string
	stdin    string
}

var (
	assignment = regexp.MustCompile(`^[A-Z_]+=`)
	onlyOn     = regexp.MustCompile(`\[([^\]]+)\]: $`)
	untilText  = regexp.MustCompile(`^until ("(?:[^"\\]|\\.)*") `)
)

func readList(t *testing.T, file string) *lineList {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	l := &lineList{}
	for text := range strings.Lines(string(b)) {
		text = strings.TrimSuffix(text, "\n")
		if on, ok := strings.CutPrefix(text, "@on "); ok {
			l.on = strings.Fields(on)
			for _, o := range l.on {
				if kind, _, _ := strings.Cut(o, "@"); kinds[kind] == nil {
					t.Fatalf("%s: no cluster is called %q", file, o)
				}
			}
			continue
		}
		if mask, ok := strings.CutPrefix(text, "@mask "); ok {
			l.masks = append(l.masks, regexp.MustCompile(mask))
			continue
		}
		if text == "@leases pass" {
			l.pass = true
			continue
		}
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		line := listLine{text: text}
		rest := text
		if reason, ok := strings.CutPrefix(rest, "differs "); ok {
			if _, rest, ok = strings.Cut(reason, ": "); !ok {
				t.Fatalf("%s: %s: no command", file, text)
			}
			line.differs = true
			if m := onlyOn.FindStringSubmatch(reason[:len(reason)-len(rest)]); m != nil {
				line.where = strings.Fields(m[1])
			}
		}
		rest, line.anyOrder = strings.CutPrefix(rest, "anyorder ")
		if m := untilText.FindStringSubmatch(rest); m != nil {
			if line.until, err = strconv.Unquote(m[1]); err != nil {
				t.Fatalf("%s: %s: %v", file, text, err)
			}
			rest = rest[len(m[0]):]
		}
		words, stdin, _ := strings.Cut(rest, " < ")
		line.stdin = unescape(t, stdin)
		line.args = shellWords(strings.TrimSuffix(words, " <"))
		for len(line.args) > 0 && assignment.MatchString(line.args[0]) {
			line.env = append(line.env, line.args[0])
			line.args = line.args[1:]
		}
		l.lines = append(l.lines, line)
	}
	return l
}

// unescape reads Go's escapes; a quote stands for itself.
func unescape(t *testing.T, s string) string {
	t.Helper()
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s):
			b.WriteString(s[i : i+2])
			i++
		case s[i] == '"':
			b.WriteString(`\"`)
		default:
			b.WriteByte(s[i])
		}
	}
	u, err := strconv.Unquote(`"` + b.String() + `"`)
	if err != nil {
		t.Fatalf("standard input %q: %v", s, err)
	}
	return u
}

func compare(t *testing.T, l *lineList, programs []string, on string) {
	t.Helper()
	kind, version, _ := strings.Cut(on, "@")
	worlds := []*world{kinds[kind](t, version), kinds[kind](t, version)}
	for _, w := range worlds {
		w.masks, w.pass = l.masks, l.pass
		if slices.ContainsFunc(l.lines, func(line listLine) bool { return strings.Contains(line.text, "endpoint status") }) {
			w.awaitStorage(t)
		}
	}
	parted := ""
	for _, line := range l.lines {
		line.differs = line.differs && (len(line.where) == 0 || slices.Contains(line.where, on))
		if parted != "" && !line.differs {
			t.Fatalf("%s stands behind %s, which leaves different clusters", line.text, parted)
		}
		var got, state [2]string
		for i, w := range worlds {
			got[i] = w.execute(t, programs[i], line)
			if line.anyOrder {
				got[i] = pieces(got[i])
			}
			state[i] = w.state(t)
		}
		switch {
		case line.differs && got[0] == got[1] && state[0] == state[1]:
			t.Errorf("%s: no longer differs: %q", line.text, got[0])
		case line.differs:
		case got[0] != got[1]:
			t.Errorf("%s\netcdctl: %q\nours:    %q\nits stderr: %s\nours:       %s", line.text, got[0], got[1], worlds[0].said, worlds[1].said)
		}
		if state[0] != state[1] && line.differs {
			parted = line.text
		} else if state[0] != state[1] {
			t.Fatalf("%s: the clusters are no longer equal\netcdctl: %q\nours:    %q", line.text, state[0], state[1])
		}
	}
}

// pieces sorts what an answer lists, for what has an order by ids that were drawn at random.
func pieces(s string) string {
	code, rest, _ := strings.Cut(s, ": ")
	all := append(between.Split(rest, -1), code)
	slices.Sort(all)
	return strings.Join(all, "\n")
}

var between = regexp.MustCompile(`[\n,\[\]{}"\x12\x1a]+ ?`)

// world is one cluster, with what has to be hidden to compare it with its equal.
type world struct {
	endpoints []string
	env       []string
	dir       string
	admin     *clientv3.Client
	root      *clientv3.Client // nil until it is needed
	tls       *tls.Config
	hidden    []hidden
	masks     []*regexp.Regexp // of the list
	pass      bool             // leases are not looked at
	leases    []clientv3.LeaseID
	members   []uint64
	said      string // by the last command on stderr
}

type hidden struct{ text, name string }

func newWorld(t *testing.T, n int, version string, args ...string) *world {
	t.Helper()
	members := server.Cluster(t, n, server.Options{Version: version, Args: append(args, fast(version)...)})
	w := worldOf(t, members, members[0].Client(t))
	if leader := server.Leader(t, members); leader != 0 { // the first one leads in both
		if _, err := members[leader].Client(t).MoveLeader(t.Context(), w.members[0]); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// fast leaves out what only costs time in a test.
func fast(version string) []string {
	if version == "3.4" {
		return nil
	}
	return []string{"--unsafe-no-fsync"}
}

func newTLSWorld(t *testing.T, version string) *world {
	t.Helper()
	dir := t.TempDir()
	ca := certs.New(t, "test authority")
	at := func(name string) string { return filepath.Join(dir, name) }
	ca.Save(t, at("ca.crt"))
	ca.Issue(t, at("server"), certs.Leaf{Name: "server", Hosts: []string{"127.0.0.1", "localhost"}, Client: true})
	ca.Issue(t, at("client"), certs.Leaf{Name: "client"})
	p := server.Start(t, server.Options{Version: version, Name: "m0", Scheme: "https", Args: append(fast(version),
		"--cert-file", at("server.crt"), "--key-file", at("server.key"), "--trusted-ca-file", at("ca.crt"), "--client-cert-auth")})
	conf := tlsConfig(t, at("ca.crt"), at("client.crt"), at("client.key"))
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"https://" + p.Endpoint}, TLS: conf, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	awaitMembers(t, c, 1)
	w := worldOf(t, []*server.Process{p}, c)
	w.endpoints, w.tls = []string{"https://" + p.Endpoint}, conf
	w.env = []string{"ETCDCTL_ENDPOINTS=" + w.endpoints[0], "ETCDCTL_CACERT=" + at("ca.crt"), "ETCDCTL_CERT=" + at("client.crt"), "ETCDCTL_KEY=" + at("client.key")}
	return w
}

// newAuthWorld has authentication on, and is entered as root.
func newAuthWorld(t *testing.T, version string) *world {
	t.Helper()
	p := server.Start(t, server.Options{Version: version, Name: "m0", Args: append(fast(version), "--bcrypt-cost=4")})
	c := p.Client(t)
	ctx := t.Context()
	for _, err := range []error{
		second(c.UserAdd(ctx, "root", "rootpw")), second(c.UserGrantRole(ctx, "root", "root")), second(c.AuthEnable(ctx)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	root, err := clientv3.New(clientv3.Config{Endpoints: []string{p.Endpoint}, Username: "root", Password: "rootpw", Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	w := worldOf(t, []*server.Process{p}, root)
	w.env = append(w.env, "ETCDCTL_USER=root:rootpw")
	return w
}

func second(_ any, err error) error { return err }

func worldOf(t *testing.T, members []*server.Process, admin *clientv3.Client) *world {
	t.Helper()
	w := &world{admin: admin, dir: t.TempDir()}
	for i, m := range members {
		w.endpoints = append(w.endpoints, m.Endpoint)
		w.hide(m.Endpoint, fmt.Sprintf("EP%d", i))
		w.hide(strings.TrimPrefix(m.Peer, "http://"), fmt.Sprintf("PEER%d", i))
	}
	r := awaitMembers(t, admin, len(members))
	w.hideID(r.Header.GetClusterId(), "CLUSTER")
	byName := slices.Clone(r.Members)
	slices.SortFunc(byName, func(a, b *pb.Member) int { return strings.Compare(a.Name, b.Name) })
	for i, m := range byName {
		w.hideID(m.ID, fmt.Sprintf("MEMBER%d", i))
		w.members = append(w.members, m.ID)
	}
	w.hide(w.dir, "DIR")
	w.env = []string{"ETCDCTL_ENDPOINTS=" + w.endpoints[0]}
	return w
}

// awaitMembers waits until all n members have told their names.
func awaitMembers(t *testing.T, c *clientv3.Client, n int) *clientv3.MemberListResponse {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		r, err := c.MemberList(ctx)
		if err == nil && len(r.Members) == n && !slices.ContainsFunc(r.Members, func(m *pb.Member) bool { return m.Name == "" }) {
			return r
		}
		if ctx.Err() != nil {
			t.Fatalf("%d members: %v, %v", n, r, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// awaitStorage waits until every member shows the version of its storage, which it finds
// some seconds after its start; before 3.6 none is shown.
func (w *world) awaitStorage(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	for _, ep := range w.admin.Endpoints() {
		for {
			s, err := w.admin.Status(ctx, ep)
			if err == nil && (strings.HasPrefix(s.Version, "3.5.") || majorMinor(s.StorageVersion) == majorMinor(s.Version)) {
				break
			}
			if ctx.Err() != nil {
				t.Fatalf("%s: %v, %v", ep, s, err)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
}

func majorMinor(version string) string { return version[:max(0, strings.LastIndexByte(version, '.'))] }

func (w *world) hide(text, name string) { w.hidden = append(w.hidden, hidden{text, "<" + name + ">"}) }

// hideID hides an id in every form: hexadecimal, decimal, and as protobuf has it.
func (w *world) hideID(id uint64, name string) {
	for _, before := range []string{"Member ", "cluster "} { // filled up with blanks
		w.hidden = append(w.hidden, hidden{before + fmt.Sprintf("%16x", id), before + "<" + name + ">"})
	}
	w.hide(fmt.Sprintf("%016x", id), name)
	w.hide(fmt.Sprintf("%x", id), name)
	w.hide(fmt.Sprint(id), name)
	w.hide(string(binary.AppendUvarint(nil, id)), name)
}

// varies are times, terms and places in the log, which no two clusters share.
var varies = []*regexp.Regexp{
	regexp.MustCompile(`()[\x08-\x7f]\x08<(?:CLUSTER|MEMBER|LEASE)`), // a length before an id, in protobuf
	regexp.MustCompile(`(remaining\(|"ttl":|"TTL" : )9[0-9][0-9]`),   // seconds left of 1000
	regexp.MustCompile(`()\b[0-9]+\.[0-9]+(?:µs|ms|s)\b`),
	regexp.MustCompile(`()[0-9.]+ k?B[, │]+[0-9.]+ k?B[, │]+[0-9]+%`),                              // sizes of a status
	regexp.MustCompile(`((?:true|false)[, │]+(?:true|false)[, │]+)[0-9]+[, │]+[0-9]+[, │]+[0-9]+`), // term and places in the log
	regexp.MustCompile(`(<MEMBER[0-9]>(?:\x18[^ ]{1,3})? )[\x02-\x0f]`),                            // the term, in protobuf
	regexp.MustCompile(`(memberID:[^ ]+) +`),                                                       // protobuf's text has one blank or two, by program
	regexp.MustCompile(`(Approximate system memory used : )-?[0-9.]+`),                             // of the server
	regexp.MustCompile(`(Downgrade cancel success, cluster version )3.[0-9]`),                      // the servers may have begun or not
	regexp.MustCompile(`(took[ =":]+)[0-9.]+(?:ns|µs|ms|s)`),
	regexp.MustCompile(`("(?:raft_term|raftTerm|raftIndex|raftAppliedIndex|dbSize|dbSizeInUse|RaftTerm|RaftIndex|RaftAppliedIndex|DBSize|DBSizeInUse)"\s*:\s*)[0-9]+`),
}

// widths are what only fills up the cells of a table.
var widths = regexp.MustCompile(`( |─)+`)

// mask replaces what differs between equal clusters.
func (w *world) mask(s string) string {
	for _, m := range w.masks {
		s = m.ReplaceAllString(s, "${1}<VARIES>")
	}
	for _, h := range w.hidden {
		s = strings.ReplaceAll(s, h.text, h.name)
	}
	if strings.Contains(s, "┌") { // columns are as wide as what is in them
		s = widths.ReplaceAllString(s, "$1")
	}
	for _, v := range varies {
		s = v.ReplaceAllString(s, "${1}<VARIES>")
	}
	return s
}

// expand fills in $LEASE1, $MEMBER0, $ENDPOINT0, $ENDPOINTS and $DIR.
func (w *world) expand(s string) string {
	return os.Expand(s, func(name string) string {
		kind := strings.TrimRight(name, "0123456789")
		n, _ := strconv.Atoi(name[len(kind):])
		switch {
		case kind == "LEASE" && n >= 1 && n <= len(w.leases):
			return fmt.Sprintf("%x", int64(w.leases[n-1]))
		case kind == "MEMBER" && n < len(w.members):
			return fmt.Sprintf("%x", w.members[n])
		case kind == "ENDPOINT" && n < len(w.endpoints):
			return w.endpoints[n]
		case name == "ENDPOINTS":
			return strings.Join(w.endpoints, ",")
		case name == "DIR":
			return w.dir
		}
		return "$" + name
	})
}

// execute returns stdout and exit code, masked.
func (w *world) execute(t *testing.T, program string, line listLine) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var args []string
	for _, a := range line.args {
		args = append(args, w.expand(a))
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append([]string{"HOME=" + w.dir, "PATH=" + os.Getenv("PATH")}, w.env...)
	for _, e := range line.env {
		cmd.Env = append(cmd.Env, w.expand(e))
	}
	cmd.Dir = w.dir
	in := w.expand(line.stdin)
	if line.until == "" {
		cmd.Stdin = strings.NewReader(in)
	} else { // it stays open
		r, held, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		defer held.Close()
		if _, err := held.WriteString(in); err != nil {
			t.Fatal(err)
		}
		cmd.Stdin = r
	}
	out := &watched{text: line.until, seen: make(chan struct{})}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = out, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line.until != "" {
		select {
		case <-out.seen:
			_ = cmd.Process.Signal(syscall.SIGINT) // it may have ended by itself
		case <-time.After(20 * time.Second):
			t.Errorf("%s: no %q from %s: %q", line.text, line.until, filepath.Base(program), out.b.String())
			cancel()
		}
	}
	err := cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", line.text, err)
	}
	w.said = said.String()
	w.learnLeases(t)
	w.learnMembers(t)
	code := strconv.Itoa(cmd.ProcessState.ExitCode())
	if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		code = s.Signal().String()
	}
	return w.mask(fmt.Sprintf("exit %s: %s", code, out.b.String()))
}

// watched tells when a text has come.
type watched struct {
	b    bytes.Buffer
	text string
	seen chan struct{}
}

func (w *watched) Write(p []byte) (int, error) {
	had := w.text != "" && bytes.Contains(w.b.Bytes(), []byte(w.text))
	w.b.Write(p)
	if !had && w.text != "" && bytes.Contains(w.b.Bytes(), []byte(w.text)) {
		close(w.seen)
	}
	return len(p), nil
}

// client is admin or, when a command line has enabled authentication, root.
func (w *world) client(t *testing.T) *clientv3.Client {
	t.Helper()
	if w.admin.Username != "" {
		return w.admin
	}
	// A server before 3.7 does not even tell the status without a user.
	st, err := w.admin.AuthStatus(t.Context())
	if err != nil && !errors.Is(err, rpctypes.ErrUserEmpty) {
		t.Fatal(err)
	}
	if err == nil && !st.Enabled {
		return w.admin
	}
	if w.root == nil {
		if w.root, err = clientv3.New(clientv3.Config{Endpoints: w.admin.Endpoints(), TLS: w.tls, Username: "root", Password: "rootpw", Logger: zap.NewNop()}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { w.root.Close() })
	}
	return w.root
}

// learnLeases gives leases that are new their names.
func (w *world) learnLeases(t *testing.T) {
	t.Helper()
	if w.pass {
		return
	}
	r, err := w.client(t).Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range r.Leases {
		if !slices.Contains(w.leases, l.ID) {
			w.leases = append(w.leases, l.ID)
			w.hideID(uint64(l.ID), fmt.Sprintf("LEASE%d", len(w.leases)))
		}
	}
}

// learnMembers gives members that are new their names.
func (w *world) learnMembers(t *testing.T) {
	t.Helper()
	r, err := w.client(t).MemberList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range r.Members {
		if !slices.Contains(w.members, m.ID) {
			w.members = append(w.members, m.ID)
			w.hideID(m.ID, fmt.Sprintf("MEMBER%d", len(w.members)-1))
		}
	}
}

// state is everything a command line can have changed: keys, leases, members, alarms, users and roles.
func (w *world) state(t *testing.T) string {
	t.Helper()
	ctx := t.Context()
	c := w.client(t)
	var b strings.Builder
	get, err := c.Get(ctx, "", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	header := (*pb.RangeResponse)(get).GetHeader()
	fmt.Fprintf(&b, "revision %d\n", header.GetRevision())
	for _, kv := range get.Kvs {
		fmt.Fprintf(&b, "%q=%q %d %d %d lease %x\n", kv.GetKey(), kv.GetValue(), kv.GetCreateRevision(), kv.GetModRevision(), kv.GetVersion(), kv.GetLease())
	}
	leases, err := c.Leases(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if !w.pass {
		fmt.Fprintf(&b, "%d leases\n", len(leases.Leases))
	}
	members, err := c.MemberList(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	for _, m := range members.Members {
		known = append(known, w.mask(fmt.Sprintf("member %x %q at %q, learner %t\n", m.ID, m.Name, m.PeerURLs, m.IsLearner)))
	}
	slices.Sort(known) // etcd sorts by id
	b.WriteString(strings.Join(known, ""))
	alarms, err := c.AlarmList(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range alarms.Alarms {
		fmt.Fprintf(&b, "alarm %s of %x\n", a.Alarm, a.MemberID)
	}
	users, err := c.UserList(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range users.Users {
		r, err := c.UserGet(ctx, u)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "user %s has %q\n", u, r.Roles)
	}
	roles, err := c.RoleList(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range roles.Roles {
		r, err := c.RoleGet(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "role %s may %q\n", name, fmt.Sprint(r.Perm))
	}
	return w.mask(b.String())
}

func tlsConfig(t *testing.T, ca, cert, key string) *tls.Config {
	t.Helper()
	c, err := transport.TLSInfo{TrustedCAFile: ca, CertFile: cert, KeyFile: key}.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	return c
}
