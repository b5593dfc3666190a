//go:build linux

package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

var started = time.Now()

func now() time.Duration { return time.Since(started) }

// group is a set of rows of the table.
type group struct {
	name string
	run  func(ctx context.Context, b *bencher) error
}

var groups = []group{
	{"start", benchStart}, {"keys", benchKeys}, {"dump", benchDump}, {"transcode", benchTranscode}, {"get", benchGet}, {"history", benchHistory},
	{"load", benchLoad}, {"watch", benchWatch}, {"tail", benchTail}, {"hash", benchHash}, {"restore", benchRestore}, {"save", benchSave}, {"verify", benchVerify},
}

// row is one line of the table; p99 holds idle, ours, peer.
func row(what string, ours, peer sample, p99 ...time.Duration) {
	load := ""
	if len(p99) == 3 {
		load = fmt.Sprintf("%s / %s / %s", ms(p99[0]), ms(p99[1]), ms(p99[2]))
	}
	fmt.Printf("| %s | %s | %s | %.2f | %s / %s | %s / %s | %s |\n", what, ms(ours.wall), ms(peer.wall), float64(ours.wall)/float64(peer.wall),
		mb(ours.peak), mb(ours.anon), mb(peer.peak), mb(peer.anon), load)
}

func ms(d time.Duration) string {
	if d < 10*time.Millisecond {
		return fmt.Sprintf("%.1f ms", float64(d)/1e6)
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}

func mb(n int64) string { return fmt.Sprintf("%d MB", n>>20) }

func benchStart(ctx context.Context, b *bencher) error {
	srv, err := b.serve(ctx, b.large)
	if err != nil {
		return err
	}
	defer srv.close()
	runs := b.runs
	b.runs = max(runs, 40)
	defer func() { b.runs = runs }()
	for _, args := range [][]string{{"version"}, {"put", "/bench/one", "v"}, {"get", "/bench/one"}} {
		s, err := b.compare(ctx, nil, command{args: append([]string{b.ours}, args...), endpoint: srv.endpoint}, command{args: append([]string{b.etcdctl}, args...), endpoint: srv.endpoint})
		if err != nil {
			return err
		}
		row("`"+args[0]+"`; peer: etcdctl", s[0], s[1])
	}
	b.runs = runs
	one := command{args: []string{b.ours, "registry", "get", "pod", podName(7), "-n", "team-007", "-o", "json", "--db", b.large}}
	s, err := b.compare(ctx, nil, one, command{args: []string{b.etcdutl, "snapshot", "status", b.large}}, one.unchecked())
	if err != nil {
		return err
	}
	row("one object from the file, warm; peer: etcdutl snapshot status", s[0], s[1])
	row("the same without the checksum", s[2], s[1])
	return nil
}

func benchKeys(ctx context.Context, b *bencher) error {
	ours, walk := command{args: []string{b.ours, "inspect", "keys", "--db", b.large}}, command{args: []string{b.self, "peer", "bbolt-walk", b.large}}
	s, err := b.compare(ctx, nil, ours, walk)
	if err != nil {
		return err
	}
	row("`inspect keys --db`, warm; peer: bbolt walk into a map", s[0], s[1])
	s, err = b.compare(ctx, nil, ours.unchecked(), walk)
	if err != nil {
		return err
	}
	row("the same without the checksum, as bbolt reads", s[0], s[1])
	runs := b.runs
	b.runs = min(runs, 3)
	defer func() { b.runs = runs }()
	s, err = b.compare(ctx, func() error { return forget(b.large) }, ours, walk)
	if err != nil {
		return err
	}
	row("the same, cold", s[0], s[1])
	return nil
}

func benchDump(ctx context.Context, b *bencher) error {
	ours := command{args: []string{b.ours, "registry", "dump", "--db", b.large}}
	s, err := b.compare(ctx, nil, ours, ours.unchecked())
	if err != nil {
		return err
	}
	p := s[0]
	p.wall, err = b.loopTime(ctx, "marshal")
	if err != nil {
		return err
	}
	p.peak, p.anon = 0, 0
	row("`registry dump --db`, the whole command; peer: Unmarshal + json.Marshal of the same values alone, two workers", s[0], p)
	row("the same without the checksum", s[1], p)
	return nil
}

func benchTranscode(ctx context.Context, b *bencher) error {
	ours, err := b.loopTime(ctx, "transcode-one")
	if err != nil {
		return err
	}
	peer, err := b.loopTime(ctx, "marshal-one")
	if err != nil {
		return err
	}
	row("decoding alone, one core; peer: Unmarshal + json.Marshal", sample{wall: ours}, sample{wall: peer})
	return nil
}

// loopTime is the median of what a bare loop says it took.
func (b *bencher) loopTime(ctx context.Context, name string) (time.Duration, error) {
	var rs []sample
	for range b.runs {
		out, err := exec.CommandContext(ctx, b.self, "peer", name, b.large).Output()
		if err != nil {
			return 0, err
		}
		f := strings.Fields(string(out))
		d, err := time.ParseDuration(f[len(f)-1])
		if err != nil {
			return 0, err
		}
		rs = append(rs, sample{wall: d})
	}
	return median(rs, func(s sample) int64 { return int64(s.wall) }), nil
}

// underLoad measures a command while another client puts.
func (b *bencher) underLoad(ctx context.Context, srv *server, c command) (sample, time.Duration, error) {
	p := srv.putting(ctx)
	s, err := b.compare(ctx, nil, c)
	p99 := p.p99()
	if err != nil {
		return sample{}, 0, err
	}
	return s[0], p99, nil
}

func benchGet(ctx context.Context, b *bencher) error {
	srv, err := b.serve(ctx, b.large)
	if err != nil {
		return err
	}
	defer srv.close()
	idle := srv.idleP99(ctx)
	everything := []string{"get", "", "--prefix", "-w", "json"}
	ours, oursP, err := b.underLoad(ctx, srv, command{args: append([]string{b.ours}, everything...), endpoint: srv.endpoint})
	if err != nil {
		return err
	}
	for name, peer := range map[string]command{
		"a bare RangeStream that prints nothing": {args: []string{b.self, "peer", "rangestream", srv.endpoint}},
		"etcdctl":                                {args: append([]string{b.etcdctl, "--command-timeout", "5m"}, everything...), endpoint: srv.endpoint},
		"a bare loop of pages of 50 k keys":      {args: []string{b.self, "peer", "pages", srv.endpoint}},
	} {
		s, p, err := b.underLoad(ctx, srv, peer)
		if err != nil {
			return err
		}
		row("`get \"\" --prefix -w json` live; peer: "+name, ours, s, idle, oursP, p)
	}
	first, err := b.compare(ctx, nil, command{args: []string{b.ours, "registry", "get", "pods", "-A", "-o", "jsonl"}, endpoint: srv.endpoint}, command{args: []string{b.self, "peer", "rangestream", srv.endpoint}})
	if err != nil {
		return err
	}
	first[0].wall, first[1].wall = first[0].first, first[1].first
	row("`registry get pods -A` live, until the first row; peer: until the first chunk", first[0], first[1])
	return nil
}

func benchHistory(ctx context.Context, b *bencher) error {
	srv, err := b.serve(ctx, b.revisions)
	if err != nil {
		return err
	}
	defer srv.close()
	idle := srv.idleP99(ctx)
	ours, oursP, err := b.underLoad(ctx, srv, command{args: []string{b.ours, "inspect", "history", "/app/", "--prefix", "-w", "jsonl"}, endpoint: srv.endpoint})
	if err != nil {
		return err
	}
	p := srv.putting(ctx)
	peer, err := b.watchFromStart(ctx, srv)
	if err != nil {
		return err
	}
	row("`inspect history` live, every revision; peer: etcdctl watch --rev 2", ours, peer, idle, oursP, p.p99())
	return nil
}

// watchFromStart times etcdctl until it has printed the history; a watch has no
// end of its own.
func (b *bencher) watchFromStart(ctx context.Context, srv *server) (sample, error) {
	r, err := srv.client.Get(ctx, "/app/", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortDescend), clientv3.WithLimit(1))
	if err != nil {
		return sample{}, err
	}
	last := fmt.Sprintf(`"mod_revision":%d,`, r.Kvs[0].ModRevision)
	return b.compareOnce(ctx, command{args: []string{b.etcdctl, "watch", "/app/", "--prefix", "--rev", "2", "-w", "json"}, endpoint: srv.endpoint, until: last})
}

func (b *bencher) compareOnce(ctx context.Context, c command) (sample, error) {
	runs := b.runs
	b.runs = 1
	defer func() { b.runs = runs }()
	s, err := b.compare(ctx, nil, c)
	if err != nil {
		return sample{}, err
	}
	return s[0], nil
}

// events is how many events there are, fewer for a smoke test.
func (b *bencher) events(n int) int {
	if b.small {
		return n / 50
	}
	return n
}

// fill writes so many keys, so many to a revision, and then one with the value end. It
// returns the last revision.
func fill(ctx context.Context, srv *server, events, each int, end string) (int64, error) {
	value := strings.Repeat("v", 100)
	for i := 0; i < events; i += each {
		var ops []clientv3.Op
		for j := range each {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("bench/%07d", i+j), value))
		}
		if _, err := srv.client.Txn(ctx).Then(ops...).Commit(); err != nil {
			return 0, err
		}
	}
	r, err := srv.client.Put(ctx, "bench/x", end)
	if err != nil {
		return 0, err
	}
	return r.Header.GetRevision(), nil
}

// benchWatch reads a backlog of a million events, a hundred to a revision, through a watch,
// and tells what the server's part of it was.
func benchWatch(ctx context.Context, b *bencher) error {
	srv, err := b.serve(ctx, "")
	if err != nil {
		return err
	}
	defer srv.close()
	events := b.events(1_000_000)
	const end = "the last event"
	if _, err := fill(ctx, srv, events, 100, end); err != nil {
		return err
	}
	idle := srv.idleP99(ctx)
	watch := func(program string) command {
		return command{args: []string{program, "watch", "bench/", "--prefix", "--rev", "1"}, endpoint: srv.endpoint, until: end}
	}
	s, err := b.compare(ctx, nil, watch(b.ours), watch(b.etcdctl))
	if err != nil {
		return err
	}
	row(fmt.Sprintf("`watch --rev 1` of %d events; peer: etcdctl", events), s[0], s[1])
	fmt.Printf("put p99 idle %s\n\n| command | server's CPU, ours / etcdctl |\n|---|---|\n", ms(idle))
	for _, args := range [][]string{
		{"watch", "bench/", "--prefix", "--rev", "1"}, {"get", "bench/", "--prefix", "--limit", "1000"}, {"get", "bench/0000001"}, {"put", "bench/one", "1"}, {"lease", "list"},
		{"del", "bench/00000", "--prefix"}, {"endpoint", "status"}, {"get", "bench/", "--prefix", "--count-only", "-w", "fields"},
	} {
		var used [2]time.Duration
		for i, program := range []string{b.ours, b.etcdctl} {
			for range 5 {
				c := command{args: append([]string{program}, args...), endpoint: srv.endpoint}
				if args[0] == "watch" {
					c.until = end
				}
				before, err := srv.cpu()
				if err != nil {
					return err
				}
				if _, err := c.run(ctx); err != nil {
					return err
				}
				after, err := srv.cpu()
				if err != nil {
					return err
				}
				used[i] += after - before
			}
		}
		fmt.Printf("| `%s` | %s / %s |\n", strings.Join(args, " "), ms(used[0]/5), ms(used[1]/5))
	}
	return nil
}

// benchLoad runs every command that scans a live cluster while another client puts.
func benchLoad(ctx context.Context, b *bencher) error {
	srv, err := b.serve(ctx, b.large)
	if err != nil {
		return err
	}
	defer srv.close()
	half, err := srv.client.Get(ctx, "x", clientv3.WithCountOnly())
	if err != nil {
		return err
	}
	rev := fmt.Sprint(half.Header.Revision)
	idle := srv.idleP99(ctx)
	fmt.Printf("\n| live command | time | peak / anonymous | put p99 idle / meanwhile |\n|---|---|---|---|\n")
	for _, args := range [][]string{
		{"get", "", "--prefix", "--count-only"},
		{"get", "", "--prefix", "--count-only", "--server-count"},
		{"get", "", "--prefix", "--keys-only"},
		{"get", "", "--prefix", "-w", "json"},
		{"inspect", "keys"},
		{"inspect", "usage"},
		{"inspect", "usage", "--history"},
		{"inspect", "churn"},
		{"inspect", "leases"},
		{"inspect", "space"},
		{"inspect", "history", "/registry/", "--prefix", "-w", "jsonl"},
		{"inspect", "diff", "live@" + rev, "live"},
		{"registry", "ls"},
		{"registry", "get", "pods", "-A"},
		{"registry", "dump"},
	} {
		s, p, err := b.underLoad(ctx, srv, command{args: append([]string{b.ours}, args...), endpoint: srv.endpoint})
		if err != nil {
			return err
		}
		fmt.Printf("| `%s` | %s | %s / %s | %s / %s |\n", strings.Join(args, " "), ms(s.wall), mb(s.peak), mb(s.anon), ms(idle), ms(p))
	}
	return nil
}
