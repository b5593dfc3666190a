package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/watchtail"
)

// benchTail reads a backlog with tail and with etcdctl watch; then the engine alone, which is
// made to watch, beside a client that only counts the events of a watch.
func benchTail(ctx context.Context, b *bencher) error {
	for _, c := range []struct {
		events, each int
	}{{b.events(1_000_000), 100}, {b.events(100_000), 1}} {
		if err := b.tailed(ctx, c.events, c.each); err != nil {
			return err
		}
	}
	return nil
}

func (b *bencher) tailed(ctx context.Context, events, each int) error {
	srv, err := b.serve(ctx, "")
	if err != nil {
		return err
	}
	defer srv.close()
	const end = "the last event"
	last, err := fill(ctx, srv, events, each, end)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%d events, %d to a revision", events, each)
	s, err := b.compare(ctx, nil,
		command{args: []string{b.ours, "tail", "bench/", "--from", "2", "--until-rev", strconv.FormatInt(last, 10)}, endpoint: srv.endpoint},
		command{args: []string{b.ours, "tail", "bench/", "--from", "2", "--until-rev", strconv.FormatInt(last, 10), "-w", "jsonl"}, endpoint: srv.endpoint},
		command{args: []string{b.etcdctl, "watch", "bench/", "--prefix", "--rev", "2"}, endpoint: srv.endpoint, until: end})
	if err != nil {
		return err
	}
	row("`tail`, "+what+"; peer: etcdctl watch", s[0], s[2])
	row("`tail -w jsonl`, "+what+"; peer: etcdctl watch", s[1], s[2])
	var engine, bare []time.Duration
	for range b.runs {
		d, err := followed(ctx, srv, last)
		if err != nil {
			return err
		}
		engine = append(engine, d)
		if d, err = counted(ctx, srv, last); err != nil {
			return err
		}
		bare = append(bare, d)
	}
	fmt.Printf("| the engine, watching %s; peer: a client that counts | %s | %s | %.2f | | | |\n", what, ms(middle(engine)), ms(middle(bare)), float64(middle(engine))/float64(middle(bare)))
	return nil
}

func middle(all []time.Duration) time.Duration {
	rs := make([]sample, len(all))
	for i, d := range all {
		rs[i].wall = d
	}
	return median(rs, func(s sample) int64 { return int64(s.wall) })
}

// followed is how long the engine takes to a revision, by a watch alone.
func followed(ctx context.Context, srv *server, last int64) (time.Duration, error) {
	begin := time.Now()
	s := watchtail.Follow(watchtail.Options{
		Endpoints: []string{srv.endpoint}, Ranges: []keyspace.Range{keyspace.Prefix([]byte("bench/"))}, From: 2,
		Dial: func(_ context.Context, ep string) (*clientv3.Client, error) {
			return clientv3.New(clientv3.Config{Endpoints: []string{ep}})
		},
	})
	for step, err := range s.Steps(ctx) {
		if err != nil {
			return 0, err
		}
		if step.Rev >= last {
			break
		}
	}
	return time.Since(begin), nil
}

// counted is how long a client takes that decodes as clients do, and only counts.
func counted(ctx context.Context, srv *server, last int64) (time.Duration, error) {
	begin := time.Now()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{srv.endpoint}})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := pb.NewWatchClient(c.ActiveConnection()).Watch(ctx, grpc.MaxCallRecvMsgSize(math.MaxInt32))
	if err != nil {
		return 0, err
	}
	create := &pb.WatchCreateRequest{Key: []byte("bench/"), RangeEnd: []byte("bench0"), StartRevision: 2}
	if err := w.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}}); err != nil {
		return 0, err
	}
	for {
		m, err := w.Recv()
		if err != nil {
			return 0, err
		}
		if n := len(m.GetEvents()); n > 0 && m.GetEvents()[n-1].GetKv().GetModRevision() >= last {
			return time.Since(begin), nil
		}
	}
}
