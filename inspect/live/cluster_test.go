package live_test

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/live"
)

// cluster is some members in this process.
type cluster struct {
	members []*embed.Etcd
}

func free(t *testing.T) url.URL {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return url.URL{Scheme: "http", Host: l.Addr().String()}
}

// startCluster starts n members. A port that somebody else took meanwhile is
// another try.
func startCluster(t *testing.T, n int) *cluster {
	t.Helper()
	var last error
	for range 5 {
		c, err := tryCluster(t, n)
		if err == nil {
			return c
		}
		last = err
	}
	t.Fatal(last)
	return nil
}

func memberConfig(t *testing.T, name string, peer, client url.URL) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir = name, t.TempDir()
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.UnsafeNoFsync = true
	cfg.TickMs, cfg.ElectionMs = 20, 400
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	return cfg
}

func tryCluster(t *testing.T, n int) (*cluster, error) {
	var cfgs []*embed.Config
	var initial []string
	for i := range n {
		name := string(rune('a' + i))
		cfg := memberConfig(t, name, free(t), free(t))
		cfgs = append(cfgs, cfg)
		initial = append(initial, name+"="+cfg.AdvertisePeerUrls[0].String())
	}
	c := &cluster{members: make([]*embed.Etcd, n)}
	started := make(chan error, n)
	for i, cfg := range cfgs {
		cfg.InitialCluster = strings.Join(initial, ",")
		go func() {
			var err error
			if c.members[i], err = embed.StartEtcd(cfg); err == nil {
				select {
				case <-c.members[i].Server.ReadyNotify():
				case <-time.After(30 * time.Second):
					err = errors.New("a member is not ready")
				}
			}
			started <- err
		}()
	}
	var errs []error
	for range n {
		errs = append(errs, <-started)
	}
	t.Cleanup(func() {
		for i := range c.members {
			c.stop(i)
		}
	})
	return c, errors.Join(errs...)
}

func (c *cluster) stop(i int) {
	if c.members[i] != nil {
		c.members[i].Server.HardStop()
		c.members[i].Close()
		c.members[i] = nil
	}
}

func (c *cluster) endpoint(i int) string { return c.members[i].Clients[0].Addr().String() }

func (c *cluster) leader(t *testing.T) int {
	t.Helper()
	for range 500 {
		for i, m := range c.members {
			if m != nil && m.Server.Leader() == m.Server.MemberID() && m.Server.Leader() != 0 {
				return i
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("no leader")
	return 0
}

func (c *cluster) client(t *testing.T, endpoints ...string) *clientv3.Client {
	t.Helper()
	cl, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop(), DialTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cl.Close() })
	return cl
}

// Reads go to a follower whatever the order of endpoints, around members that are
// away, and on at another member when theirs goes away in the middle.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	leader := c.leader(t)
	order := []int{leader, (leader + 1) % 3, (leader + 2) % 3}
	var endpoints []string
	for _, i := range order {
		endpoints = append(endpoints, c.endpoint(i))
	}
	dead := free(t).Host
	all := c.client(t, append([]string{dead}, endpoints...)...)
	fill(t, c.client(t, endpoints...), "k", 2000, 100)

	s := source(t, all, live.Options{NoStream: true, PageBytes: 10_000})
	info, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.Location != endpoints[1] || info.MemberID != uint64(c.members[order[1]].Server.MemberID()) {
		t.Errorf("read from %s, want the first follower, %s", info.Location, endpoints[1])
	}
	// What was acknowledged is seen, also on a follower.
	put, err := all.Put(t.Context(), "k000000", "new")
	if err != nil {
		t.Fatal(err)
	}
	if got := records(t, s, keyspace.One([]byte("k000000"))); len(got) != 1 || got[0].ModRev != put.Header.Revision {
		t.Errorf("after a put at %d: %+v", put.Header.Revision, got)
	}

	for name, o := range map[string]live.Options{"pages": {NoStream: true, PageBytes: 10_000}} {
		s := source(t, all, o)
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		defer cancel()
		n := 0
		var before string
		for r, err := range s.Records(ctx, keyspace.Prefix([]byte("k"))) {
			if err != nil {
				t.Fatalf("%s: after %d records: %v", name, n, err)
			}
			if string(r.Key) <= before || r.ModRev > put.Header.Revision {
				t.Fatalf("%s: %q of revision %d after %q", name, r.Key, r.ModRev, before)
			}
			before = string(r.Key)
			if n++; n == 300 {
				c.stop(order[1])
				// Later than what is being read.
				if _, err := c.client(t, endpoints[0], endpoints[2]).Put(ctx, "k001999", "too late"); err != nil {
					t.Fatal(err)
				}
			}
		}
		if n != 2000 {
			t.Errorf("%s: %d records", name, n)
		}
		if info, err := s.Info(ctx); err != nil || info.Location != endpoints[2] {
			t.Errorf("%s: read from %s in the end (%v), want the other follower, %s", name, info.Location, err, endpoints[2])
		}
	}
}

// A learner is not read from, and a cluster without quorum only when asked to be.
func TestLearnerAndQuorum(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	ep := c.endpoint(0)
	cl := c.client(t, ep)
	peer := free(t)
	if _, err := cl.MemberAddAsLearner(t.Context(), []string{peer.String()}); err != nil {
		t.Fatal(err)
	}
	cfg := memberConfig(t, "learner", peer, free(t))
	cfg.InitialCluster = "a=" + c.members[0].Config().AdvertisePeerUrls[0].String() + ",learner=" + peer.String()
	cfg.ClusterState = embed.ClusterStateFlagExisting
	l, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Skipf("the learner's port was taken: %v", err)
	}
	c.members = append(c.members, l)
	t.Cleanup(func() { c.stop(1) })
	select {
	case <-l.Server.ReadyNotify():
	case <-time.After(30 * time.Second):
		t.Fatal("the learner is not ready")
	}
	fill(t, cl, "k", 10, 10)
	s := source(t, c.client(t, c.endpoint(1), ep), live.Options{})
	if info, err := s.Info(t.Context()); err != nil || info.Location != ep {
		t.Errorf("read from %s (%v), want %s", info.Location, err, ep)
	}
	// A second voter that never starts: no quorum.
	if _, err := cl.MemberAdd(t.Context(), []string{"http://127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for _, err := range live.New(cl, live.Options{}).Records(ctx, keyspace.All()) {
		if err == nil {
			t.Error("a record although no quorum vouches for it")
		}
	}
	stale := source(t, cl, live.Options{Serializable: true})
	if n := len(records(t, stale, keyspace.All())); n != 10 {
		t.Errorf("%d records from the member alone", n)
	}
}

// Of three members one is left: what needs the quorum ends in time and says what is
// the matter; the member's own word is still to be had.
func TestLostQuorum(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	leader := c.leader(t)
	var endpoints []string
	for i := range c.members {
		endpoints = append(endpoints, c.endpoint(i))
	}
	fill(t, c.client(t, endpoints...), "k", 10, 10)
	left := (leader + 1) % 3
	newest := c.members[leader].Server.KV().Rev()
	for c.members[left].Server.KV().Rev() < newest {
		time.Sleep(10 * time.Millisecond)
	}
	c.stop(leader)
	c.stop((leader + 2) % 3)
	for name, eps := range map[string][]string{"one endpoint": {endpoints[left]}, "all endpoints": endpoints} {
		const timeout = time.Second
		s := source(t, c.client(t, eps...), live.Options{RequestTimeout: timeout})
		for what, read := range map[string]func() error{
			"info": func() error { _, err := s.Info(t.Context()); return err },
			"records": func() error {
				for _, err := range s.Records(t.Context(), keyspace.All()) {
					return err
				}
				return nil
			},
			"events": func() error {
				for _, err := range s.Events(t.Context(), everything) {
					return err
				}
				return nil
			},
		} {
			begin := time.Now()
			err := read()
			var lost *live.NoLeaderError
			if !errors.As(err, &lost) {
				t.Errorf("%s: %s: %v", name, what, err)
			}
			if took := time.Since(begin); took > timeout+3*time.Second {
				t.Errorf("%s: %s took %v", name, what, took)
			}
		}
		stale := source(t, c.client(t, eps...), live.Options{Serializable: true, RequestTimeout: timeout})
		if n := len(records(t, stale, keyspace.All())); n != 10 {
			t.Errorf("%s: %d records from the member alone", name, n)
		}
		if info, err := stale.Info(t.Context()); err != nil || info.Revision != newest {
			t.Errorf("%s: revision %d of %d, %v", name, info.Revision, newest, err)
		}
	}
}
