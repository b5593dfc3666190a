package watchtail_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/server"
	"github.com/etcdctl-plus/etcdctl-plus/watchtail"
)

func dial(_ context.Context, endpoint string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 2 * time.Second, Logger: zap.NewNop()})
}

func prefix(p string) []keyspace.Range { return []keyspace.Range{keyspace.Prefix([]byte(p))} }

// Every revision comes once and in order while the server is killed and comes back, several
// ranges as one stream, and progress never runs ahead of what came.
func TestFollow(t *testing.T) {
	t.Parallel()
	p := server.Start(t, server.Options{Args: []string{"--unsafe-no-fsync"}})
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	const n = 600
	var writing sync.WaitGroup
	c, options := p.Client(t), p.Options
	writing.Go(func() {
		for i := 0; i < n && ctx.Err() == nil; {
			rctx, stop := context.WithTimeout(ctx, time.Second)
			_, err := c.Txn(rctx).If(clientv3.Compare(clientv3.Version(fmt.Sprintf("a/%d", i)), "=", 0)).
				Then(clientv3.OpPut(fmt.Sprintf("a/%d", i), "v"), clientv3.OpPut("b/x", fmt.Sprint(i)), clientv3.OpPut("c/x", "not asked for")).Commit()
			stop()
			if err == nil {
				i++
			}
		}
	})
	writing.Go(func() {
		for range 2 {
			time.Sleep(300 * time.Millisecond)
			p.Kill()
			p = server.Start(t, options)
		}
	})
	defer writing.Wait()
	s := watchtail.Follow(watchtail.Options{Endpoints: []string{c.Endpoints()[0]}, Dial: dial, Ranges: append(prefix("b/"), prefix("a/")...), From: 1, PrevKV: true, Progress: 50 * time.Millisecond})
	last, seen := int64(1), 0
	for step, err := range s.Steps(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if h := s.History(); h.Rev != step.Rev {
			t.Fatalf("the history is at %d, the step at %d", h.Rev, step.Rev)
		}
		if step.Idle {
			continue
		}
		if step.Rev <= last || len(step.Events) > 0 && step.Rev != last+1 {
			t.Fatalf("%d follows %d", step.Rev, last)
		}
		last = step.Rev
		if len(step.Events) == 0 {
			continue
		}
		if len(step.Events) != 2 || string(step.Events[0].Record.Key) != fmt.Sprintf("a/%d", seen) || string(step.Events[1].Record.Value) != fmt.Sprint(seen) {
			t.Fatalf("%d: %v", seen, step.Events)
		}
		if prev := step.Events[1].Prev; seen > 0 && string(prev.Value) != fmt.Sprint(seen-1) {
			t.Fatalf("before %d was %q", seen, prev.Value)
		}
		if seen++; seen == n {
			break
		}
	}
	if seen != n {
		t.Errorf("%d revisions came", seen)
	}
}

// Nobody who answers: at first that is an error at once, later one of silence.
func TestFollowNobody(t *testing.T) {
	t.Parallel()
	s := watchtail.Follow(watchtail.Options{Endpoints: []string{"127.0.0.1:1"}, Dial: dial, Ranges: prefix("a")})
	for _, err := range s.Steps(t.Context()) {
		if err == nil {
			t.Fatal("a step")
		}
	}
	p := server.Start(t, server.Options{})
	p.Client(t)
	s = watchtail.Follow(watchtail.Options{Endpoints: []string{p.Endpoint}, Dial: dial, Ranges: prefix("a"), MaxSilence: time.Second, Progress: 100 * time.Millisecond})
	var silence *watchtail.SilenceError
	for _, err := range s.Steps(t.Context()) {
		if err == nil {
			p.Kill()
			continue
		}
		if !errors.As(err, &silence) || !strings.Contains(err.Error(), "nothing was heard") {
			t.Fatal(err)
		}
	}
	if silence == nil {
		t.Error("it ended without an error")
	}
}

// proxy forwards to a server until it is frozen: then nothing goes through, and nothing is
// closed, as behind a firewall that has forgotten a connection.
type proxy struct {
	addr   string
	frozen chan struct{}
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: l.Addr().String(), frozen: make(chan struct{})}
	t.Cleanup(func() { l.Close() })
	forward := func(from, to net.Conn) {
		b := make([]byte, 32<<10)
		for {
			n, err := from.Read(b)
			select {
			case <-p.frozen:
				<-t.Context().Done()
				from.Close()
				to.Close()
				return
			default:
			}
			if n > 0 {
				if _, err := to.Write(b[:n]); err != nil {
					return
				}
			}
			if err != nil {
				to.Close()
				return
			}
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", to)
			if err != nil {
				c.Close()
				continue
			}
			go forward(c, up)
			go forward(up, c)
		}
	}()
	return p
}

// F32: a connection over which nothing comes any more is noticed, without its end, and the
// stream goes on elsewhere.
func TestFollowSilentConnection(t *testing.T) {
	t.Parallel()
	p := server.Start(t, server.Options{})
	c := p.Client(t)
	px := newProxy(t, p.Endpoint)
	var told []string
	s := watchtail.Follow(watchtail.Options{
		Endpoints: []string{px.addr, p.Endpoint}, Dial: dial, Ranges: prefix("k"), From: 1, Progress: 100 * time.Millisecond,
		Trouble: func(ep string, err error) { told = append(told, fmt.Sprint(ep, " ", err)) },
	})
	put := func(v string) {
		t.Helper()
		if _, err := c.Put(t.Context(), "k", v); err != nil {
			t.Fatal(err)
		}
	}
	put("before")
	var got []string
	for step, err := range s.Steps(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range step.Events {
			if got = append(got, string(e.Record.Value)); len(got) == 1 {
				close(px.frozen)
				put("meanwhile")
			}
		}
		if len(got) == 2 {
			break
		}
	}
	if strings.Join(got, " ") != "before meanwhile" || len(told) != 2 || !strings.HasPrefix(told[0], px.addr) || told[1] != p.Endpoint+" <nil>" {
		t.Errorf("%q, %q", got, told)
	}
}
