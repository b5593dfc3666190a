// Package perf loads a cluster with writes, and measures how it takes them.
package perf

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Load is a pattern of writes.
type Load struct {
	Keys      int           // how many to write; 0: as many as fit into Duration
	Rate      int           // writes a second; 0: as fast as they are taken
	Duration  time.Duration // how long; 0: until Keys are written
	KeyBytes  int           // behind the prefix
	ValBytes  int
	Timeout   time.Duration // of one write; 0: no bound
	WriteDone func()        // called after each write, from several goroutines; nil: nobody is
}

// Stats are what was measured.
type Stats struct {
	Writes  int // that succeeded
	Total   time.Duration
	Slowest time.Duration
	Stddev  time.Duration
	Errors  map[string]int // how often each came
}

// Rate is the writes a second.
func (s *Stats) Rate() float64 {
	if s.Total <= 0 {
		return 0
	}
	return float64(s.Writes) / s.Total.Seconds()
}

// Run writes keys with random names below prefix, over all clients at once. It ends early
// when ctx does; what was written by then is measured. It keeps one number a write.
func Run(ctx context.Context, clients []*clientv3.Client, prefix string, l Load) Stats {
	pace := ctx
	if l.Duration > 0 {
		var cancel context.CancelFunc
		pace, cancel = context.WithTimeout(ctx, l.Duration)
		defer cancel()
	}
	keys := make(chan string, len(clients))
	go func() {
		defer close(keys)
		send(pace, keys, prefix, l)
	}()
	var m meter
	start := time.Now()
	var wg sync.WaitGroup
	for _, c := range clients {
		wg.Go(func() {
			for k := range keys {
				m.write(ctx, c, k, string(make([]byte, l.ValBytes)), l)
			}
		})
	}
	wg.Wait()
	return m.stats(time.Since(start))
}

// send hands keys out at the rate of the load, one at a time.
func send(ctx context.Context, keys chan<- string, prefix string, l Load) {
	start := time.Now()
	for i := 0; l.Keys == 0 || i < l.Keys; i++ {
		if l.Rate > 0 {
			due := start.Add(time.Duration(i) * time.Second / time.Duration(l.Rate))
			if l.Duration > 0 && due.Sub(start) >= l.Duration {
				return // a machine that is busy may tell late that the time is over
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Until(due)):
			}
		}
		name := make([]byte, max(l.KeyBytes, 8))
		binary.BigEndian.PutUint64(name, rand.Uint64()) //nolint:gosec // names, not secrets
		select {
		case <-ctx.Done():
			return
		case keys <- prefix + string(name):
		}
	}
}

// meter collects from several goroutines.
type meter struct {
	mu     sync.Mutex
	took   []time.Duration
	errors map[string]int
}

func (m *meter) write(ctx context.Context, c *clientv3.Client, key, value string, l Load) {
	if l.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, l.Timeout)
		defer cancel()
	}
	start := time.Now()
	_, err := c.Put(ctx, key, value)
	took := time.Since(start)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case errors.Is(context.Cause(ctx), context.Canceled): // somebody ended it, which is no failure of the cluster
	case err != nil:
		if m.errors == nil {
			m.errors = map[string]int{}
		}
		m.errors[err.Error()]++
	default:
		m.took = append(m.took, took)
	}
	if l.WriteDone != nil {
		l.WriteDone()
	}
}

func (m *meter) stats(total time.Duration) Stats {
	s := Stats{Writes: len(m.took), Total: total, Errors: m.errors}
	if s.Writes == 0 {
		return s
	}
	var sum float64
	for _, t := range m.took {
		s.Slowest = max(s.Slowest, t)
		sum += float64(t)
	}
	mean := sum / float64(s.Writes)
	var squares float64
	for _, t := range m.took {
		squares += (float64(t) - mean) * (float64(t) - mean)
	}
	s.Stddev = time.Duration(math.Sqrt(squares / float64(s.Writes)))
	return s
}

// ErrNotEmpty says that there are keys where a load would write, and delete afterwards.
var ErrNotEmpty = errors.New("there are keys below the prefix")

// Empty makes sure that no key begins with prefix.
func Empty(ctx context.Context, c *clientv3.Client, prefix string) error {
	r, err := c.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly())
	switch {
	case err != nil:
		return fmt.Errorf("look for keys below %q: %w", prefix, err)
	case len(r.Kvs) > 0:
		return ErrNotEmpty
	}
	return nil
}
