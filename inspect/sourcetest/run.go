package sourcetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sandbox"
)

// SeedVariable is the environment variable that repeats a run: every failure
// prints the seed it was found with.
const SeedVariable = "ETCDCTL_PLUS_TEST_SEED"

// Options of Run. The zero value makes 50 histories on two servers.
type Options struct {
	Servers   int
	Histories int // on each server
	Steps     int // random changes a history; 0: 40
	// Start starts a server and returns a client of it; both are ended with the
	// test. nil: the etcd that this module links, in a sandbox.
	Start func(testing.TB) *clientv3.Client
	// BeforeCompaction is called when all changes of a history were made, for
	// sources that have to learn of them before some are gone.
	BeforeCompaction func(testing.TB, *clientv3.Client)
}

// Open returns a source of what the cluster behind c holds at this moment. The
// suite closes it.
type Open func(tb testing.TB, c *clientv3.Client) keyspace.Source

// Run holds a kind of source against etcd. Random histories of puts, deletions,
// transactions, leases and compactions run on real servers; after each of them the
// source that open gives must answer as the server itself does: records of all
// kinds of ranges at many revisions, every event, and the errors for revisions
// that are compacted or not there yet.
func Run(t *testing.T, o Options, open Open) {
	if o.Servers == 0 {
		o.Servers, o.Histories = 2, 25
	}
	if o.Steps == 0 {
		o.Steps = 40
	}
	if testing.Short() {
		o.Servers, o.Histories = 1, 3
	}
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv(SeedVariable); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("%s: %v", SeedVariable, err)
		}
	}
	for i := range o.Servers {
		t.Run(fmt.Sprintf("server%d", i), func(t *testing.T) {
			t.Parallel()
			t.Logf("repeat with %s=%d", SeedVariable, seed)
			start := o.Start
			if start == nil {
				start = func(tb testing.TB) *clientv3.Client { return Sandboxed(tb, nil) }
			}
			c := start(t)
			u := &suite{c: c, rng: rand.New(rand.NewPCG(seed, uint64(i))), open: open, before: o.BeforeCompaction}
			for h := range o.Histories {
				u.history(t, o.Steps, fmt.Sprintf("h%03d/", h))
				if t.Failed() {
					t.Fatalf("history %d of server %d", h, i)
				}
			}
		})
	}
}

// Sandboxed starts a sandbox and returns a client of it. started, when not nil, is
// told of the sandbox.
func Sandboxed(tb testing.TB, started func(*sandbox.Sandbox)) *clientv3.Client {
	tb.Helper()
	s, err := sandbox.Start(tb.Context(), sandbox.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	c, err := s.Client()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	if started != nil {
		started(s)
	}
	return c
}

// suite is the work on one server, which holds one history after the other.
type suite struct {
	c       *clientv3.Client
	rng     *rand.Rand
	open    Open
	before  func(testing.TB, *clientv3.Client)
	compact int64
}

func (u *suite) history(t *testing.T, steps int, prefix string) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	first := u.newest(ctx, t) + 1
	p := newPlayer(t, u.c, u.rng, prefix)
	p.play(ctx, steps)
	last := u.newest(ctx, t)
	// What happened is asked for before it is compacted.
	truth := u.watch(ctx, t, keyspace.Prefix([]byte(prefix)), first, last)
	if u.before != nil {
		u.before(t, u.c)
	}
	switch u.rng.IntN(3) {
	case 0: // most of it is from earlier histories then
	case 1:
		u.compactAt(ctx, t, first+u.rng.Int64N(max(1, last-first+1)), true)
	case 2:
		u.compactAt(ctx, t, first+u.rng.Int64N(max(1, last-first+1)), false)
	}

	src := u.open(t, u.c)
	defer func() {
		if err := src.Close(); err != nil {
			t.Error(err)
		}
	}()
	info, err := src.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if info.Revision != last || info.OldestRev() != max(u.compact, 1) {
		t.Errorf("Info: revisions %d to %d, want %d to %d", info.OldestRev(), info.Revision, max(u.compact, 1), last)
	}
	for range 12 {
		u.records(ctx, t, src, p, prefix, last)
	}
	u.errors(ctx, t, src, prefix, last)
	if h, ok := src.(keyspace.HistorySource); ok {
		for range 4 {
			u.events(ctx, t, h, p, prefix, truth, first, last)
		}
		u.survivors(ctx, t, h, info, last)
	}
}

func (u *suite) newest(ctx context.Context, t *testing.T) int64 {
	t.Helper()
	r, err := u.c.Get(ctx, "x", clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	return r.Header.Revision
}

func (u *suite) compactAt(ctx context.Context, t *testing.T, rev int64, wait bool) {
	t.Helper()
	if rev <= u.compact || rev > u.newest(ctx, t) {
		return
	}
	var opts []clientv3.CompactOption
	if wait {
		opts = append(opts, clientv3.WithCompactPhysical())
	}
	if _, err := u.c.Compact(ctx, rev, opts...); err != nil {
		t.Fatal(err)
	}
	u.compact = rev
}

// aRange is a range of one of all kinds.
func (u *suite) aRange(p *player, prefix string) keyspace.Range {
	switch k := p.key(); u.rng.IntN(7) {
	case 0:
		return keyspace.One([]byte(k))
	case 1:
		return keyspace.Range{Key: []byte(k), End: []byte(p.end(k))}
	case 2:
		return keyspace.From([]byte(k))
	case 3:
		return keyspace.All()
	case 4:
		return keyspace.One([]byte(prefix + "nothing"))
	case 5:
		return keyspace.Prefix([]byte(k))
	default:
		return keyspace.Prefix([]byte(prefix))
	}
}

func (u *suite) records(ctx context.Context, t *testing.T, src keyspace.Source, p *player, prefix string, last int64) {
	t.Helper()
	r := u.aRange(p, prefix)
	oldest := max(u.compact, 1)
	switch u.rng.IntN(4) {
	case 0: // the newest
	case 1:
		r.Rev = oldest
	default:
		r.Rev = oldest + u.rng.Int64N(last-oldest+1)
	}
	if u.rng.IntN(3) == 0 {
		r.Limit = 1 + u.rng.Int64N(5)
	}
	r.KeysOnly = u.rng.IntN(4) == 0
	opts := []clientv3.OpOption{clientv3.WithRev(r.Rev), clientv3.WithLimit(r.Limit)}
	if len(r.End) > 0 {
		opts = append(opts, clientv3.WithRange(string(r.End)))
	}
	want, err := u.c.Get(ctx, string(r.Key), opts...)
	if err != nil {
		t.Fatal(err)
	}
	stop := -1
	if u.rng.IntN(4) == 0 {
		stop = u.rng.IntN(3)
	}
	n := 0
	for rec, err := range src.Records(ctx, r) {
		if err != nil {
			t.Errorf("Records(%s): %v", show(r), err)
			return
		}
		if n >= len(want.Kvs) {
			t.Errorf("Records(%s): %d records and more, want %d", show(r), n+1, len(want.Kvs))
			return
		}
		if d := recordDiffers(rec, want.Kvs[n], r.KeysOnly); d != "" {
			t.Errorf("Records(%s), record %d: %s", show(r), n, d)
			return
		}
		if n++; n == stop {
			return
		}
	}
	if n != len(want.Kvs) {
		t.Errorf("Records(%s): %d records, want %d", show(r), n, len(want.Kvs))
	}
	if c, ok := src.(keyspace.Counter); ok {
		if n, err := c.Count(ctx, r); err != nil || n != int64(len(want.Kvs)) {
			t.Errorf("Count(%s) = %d, %v, want %d", show(r), n, err, len(want.Kvs))
		}
	}
}

func show(r keyspace.Range) string {
	return fmt.Sprintf("%q to %q, revision %d, limit %d, keys only %v", r.Key, r.End, r.Rev, r.Limit, r.KeysOnly)
}

// recordDiffers compares with the server's answer. The lease of a record without
// its value is left out by some servers.
func recordDiffers(r keyspace.Record, kv *mvccpb.KeyValue, keysOnly bool) string {
	value := kv.Value
	lease := r.Lease == kv.Lease
	if keysOnly {
		value = nil
		lease = lease || r.Lease == 0
		if r.Value != nil {
			return "it has a value"
		}
	}
	switch {
	case !bytes.Equal(r.Key, kv.Key):
		return fmt.Sprintf("key %q, want %q", r.Key, kv.Key)
	case r.CreateRev != kv.CreateRevision || r.ModRev != kv.ModRevision || r.Version != kv.Version || !lease:
		return fmt.Sprintf("%q: created %d, changed %d, version %d, lease %x; want %d, %d, %d, %x",
			r.Key, r.CreateRev, r.ModRev, r.Version, r.Lease, kv.CreateRevision, kv.ModRevision, kv.Version, kv.Lease)
	case !bytes.Equal(r.Value, value):
		return fmt.Sprintf("%q: value %.40q, want %.40q", r.Key, r.Value, value)
	}
	return ""
}

func (u *suite) errors(ctx context.Context, t *testing.T, src keyspace.Source, prefix string, last int64) {
	t.Helper()
	r := keyspace.Prefix([]byte(prefix))
	r.Rev = last + 1 + u.rng.Int64N(100)
	var future *keyspace.FutureError
	if err := firstError(src.Records(ctx, r)); !errors.As(err, &future) || future.Rev != r.Rev || future.Newest != last {
		t.Errorf("Records at %d: %v; want an error that names it and %d", r.Rev, err, last)
	}
	if u.compact > 1 {
		r.Rev = 1 + u.rng.Int64N(u.compact-1)
		var gone *keyspace.CompactedError
		if err := firstError(src.Records(ctx, r)); !errors.As(err, &gone) || gone.Rev != r.Rev || gone.CompactRev != u.compact {
			t.Errorf("Records at %d: %v; want an error that names it and %d", r.Rev, err, u.compact)
		}
	}
	if h, ok := src.(keyspace.HistorySource); ok {
		er := keyspace.EventRange{Key: r.Key, End: r.End, MinRev: last + 2}
		if err := firstError(h.Events(ctx, er)); !errors.As(err, &future) || future.Newest != last {
			t.Errorf("Events from %d: %v; want an error that names %d", er.MinRev, err, last)
		}
		er.MinRev = last + 1
		if err := firstError(h.Events(ctx, er)); err != nil {
			t.Errorf("Events from %d, the next: %v", er.MinRev, err)
		}
		if u.compact > 0 {
			er.MinRev = 1 + u.rng.Int64N(u.compact)
			var gone *keyspace.CompactedError
			if err := firstError(h.Events(ctx, er)); !errors.As(err, &gone) || gone.Rev != er.MinRev || gone.CompactRev != u.compact {
				t.Errorf("Events from %d: %v; want an error that names it and %d", er.MinRev, err, u.compact)
			}
		}
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	if err := firstError(src.Records(done, keyspace.Prefix([]byte(prefix)))); !errors.Is(err, context.Canceled) {
		t.Errorf("Records with a cancelled context: %v", err)
	}
}

func firstError[T any](seq func(func(T, error) bool)) error {
	for _, err := range seq {
		if err != nil {
			return err
		}
	}
	return nil
}

// watch asks the server for its events from first to last, which is the revision
// of the newest change.
func (u *suite) watch(ctx context.Context, t *testing.T, r keyspace.Range, first, last int64) []*clientv3.Event {
	t.Helper()
	if first > last {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var out []*clientv3.Event
	for resp := range u.c.Watch(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(first), clientv3.WithPrevKV()) {
		if err := resp.Err(); err != nil {
			t.Fatal(err)
		}
		done := false
		for _, e := range resp.Events {
			if r.Contains(e.Kv.Key) {
				out = append(out, e)
			}
			done = done || e.Kv.ModRevision == last
		}
		if done {
			return out
		}
	}
	t.Fatal("the watch ended early")
	return nil
}

func (u *suite) events(ctx context.Context, t *testing.T, src keyspace.HistorySource, p *player, prefix string, truth []*clientv3.Event, first, last int64) {
	t.Helper()
	r := keyspace.Prefix([]byte(prefix))
	if u.rng.IntN(2) == 0 {
		// Within this history, whose events are known.
		switch k := p.key(); u.rng.IntN(3) {
		case 0:
			r = keyspace.One([]byte(k))
		case 1:
			r = keyspace.Prefix([]byte(k))
		case 2:
			r = keyspace.Range{Key: []byte(k), End: []byte(p.end(k))}
		}
	}
	oldest := max(first, u.compact+1)
	er := keyspace.EventRange{Key: r.Key, End: r.End, MinRev: oldest, Prev: u.rng.IntN(2) == 0, KeysOnly: u.rng.IntN(4) == 0}
	if last > oldest {
		er.MinRev += u.rng.Int64N(last - oldest + 1)
	}
	switch u.rng.IntN(3) {
	case 0:
		er.MaxRev = er.MinRev + u.rng.Int64N(max(1, last-er.MinRev+1))
	case 1:
		er.MaxRev = last + 10
	}
	var want []*clientv3.Event
	for _, e := range truth {
		if rev := e.Kv.ModRevision; rev >= er.MinRev && (er.MaxRev == 0 || rev <= er.MaxRev) && r.Contains(e.Kv.Key) {
			want = append(want, e)
		}
	}
	n, before := 0, keyspace.Revision{}
	for e, err := range src.Events(ctx, er) {
		if err != nil {
			t.Errorf("Events(%s): %v", showEvents(er), err)
			return
		}
		if n >= len(want) {
			t.Errorf("Events(%s): %d events and more, want %d", showEvents(er), n+1, len(want))
			return
		}
		if !before.Less(e.Rev) || e.Rev.Main != e.Record.ModRev {
			t.Errorf("Events(%s): %v of a change at %d comes after %v", showEvents(er), e.Rev, e.Record.ModRev, before)
		}
		before = e.Rev
		if d := u.eventDiffers(e, want[n], er); d != "" {
			t.Errorf("Events(%s), event %d: %s", showEvents(er), n, d)
			return
		}
		n++
	}
	if n != len(want) {
		t.Errorf("Events(%s): %d events, want %d", showEvents(er), n, len(want))
	}
}

func showEvents(r keyspace.EventRange) string {
	return fmt.Sprintf("%q to %q, revisions %d to %d, prev %v, keys only %v", r.Key, r.End, r.MinRev, r.MaxRev, r.Prev, r.KeysOnly)
}

func (u *suite) eventDiffers(e keyspace.Event, want *clientv3.Event, r keyspace.EventRange) string {
	if (e.Type == keyspace.Delete) != (want.Type == clientv3.EventTypeDelete) {
		return fmt.Sprintf("%q is a %v, want %v", e.Record.Key, e.Type, want.Type)
	}
	if d := eventRecordDiffers(e.Record, want.Kv, r.KeysOnly); d != "" {
		return d
	}
	prev := want.PrevKv
	// The truth was recorded before the compaction, which takes what no revision
	// above it still shows.
	if !r.Prev || prev != nil && e.Rev.Main <= u.compact {
		prev = nil
	}
	switch {
	case prev == nil && e.Prev == nil:
		return ""
	case prev == nil:
		return fmt.Sprintf("%q: a record before it, of revision %d; want none", e.Record.Key, e.Prev.ModRev)
	case e.Prev == nil:
		return fmt.Sprintf("%q: no record before it, want that of revision %d", e.Record.Key, prev.ModRevision)
	}
	if d := eventRecordDiffers(*e.Prev, prev, r.KeysOnly); d != "" {
		return "the record before it: " + d
	}
	return ""
}

// eventRecordDiffers is exact: events come from files, which have all leases.
func eventRecordDiffers(r keyspace.Record, kv *mvccpb.KeyValue, keysOnly bool) string {
	if r.Lease != kv.Lease {
		return fmt.Sprintf("%q: lease %x, want %x", r.Key, r.Lease, kv.Lease)
	}
	return recordDiffers(r, kv, keysOnly)
}

// survivors reads the whole history and plays it back: it must give the newest
// state, and up to the compact revision just that of the compaction.
func (u *suite) survivors(ctx context.Context, t *testing.T, src keyspace.HistorySource, info keyspace.Info, last int64) {
	t.Helper()
	state, below := map[string]keyspace.Record{}, map[string]keyspace.Record{}
	for e, err := range src.Events(ctx, keyspace.EventRange{Key: []byte{0}, End: []byte{0}}) {
		if err != nil {
			t.Errorf("all events: %v", err)
			return
		}
		key := string(e.Record.Key)
		if e.Type == keyspace.Delete {
			delete(state, key)
		} else {
			state[key] = e.Record
		}
		if e.Rev.Main > u.compact {
			continue
		}
		_, twice := below[key]
		switch {
		case info.CompactScheduled > info.CompactRev: // not all of it is gone yet
		case twice:
			t.Errorf("%q has two events at or below the compact revision %d", key, u.compact)
		case e.Type == keyspace.Delete && e.Rev.Main < u.compact:
			t.Errorf("the deletion of %q at %v has survived the compaction at %d", key, e.Rev, u.compact)
		}
		if e.Type == keyspace.Put {
			below[key] = e.Record
		}
	}
	u.sameState(ctx, t, "all events up to the newest", state, last)
	if u.compact > 0 && info.CompactScheduled <= info.CompactRev {
		u.sameState(ctx, t, "events up to the compact revision", below, u.compact)
	}
}

func (u *suite) sameState(ctx context.Context, t *testing.T, what string, state map[string]keyspace.Record, rev int64) {
	t.Helper()
	want, err := u.c.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(rev))
	if err != nil {
		t.Fatal(err)
	}
	if len(want.Kvs) != len(state) {
		t.Errorf("%s give %d keys, want %d", what, len(state), len(want.Kvs))
	}
	for _, kv := range want.Kvs {
		rec, ok := state[string(kv.Key)]
		if !ok {
			t.Errorf("%s lack %q", what, kv.Key)
		} else if d := recordDiffers(rec, kv, false); d != "" {
			t.Errorf("%s: %s", what, d)
		}
	}
}
