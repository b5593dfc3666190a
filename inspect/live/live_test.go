package live_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/live"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sandbox"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/corpus"
)

var everything = keyspace.EventRange{Key: []byte{0}, End: []byte{0}}

func start(t *testing.T, o sandbox.Options) *clientv3.Client {
	t.Helper()
	s, err := sandbox.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	c, err := s.Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func source(t *testing.T, c *clientv3.Client, o live.Options) *live.Source {
	t.Helper()
	if o.TempDir == "" {
		o.TempDir = t.TempDir()
	}
	s := live.New(c, o)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		entries, err := os.ReadDir(o.TempDir)
		if err != nil || len(entries) > 0 {
			t.Errorf("left behind: %v %v", entries, err)
		}
	})
	return s
}

func records(t *testing.T, s keyspace.Source, r keyspace.Range) []keyspace.Record {
	t.Helper()
	var out []keyspace.Record
	for rec, err := range s.Records(t.Context(), r) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, rec)
	}
	return out
}

// fill puts n keys of some size under a prefix, many in a transaction.
func fill(t *testing.T, c *clientv3.Client, prefix string, n, size int) {
	t.Helper()
	for i := 0; i < n; {
		var ops []clientv3.Op
		for bytes := 0; len(ops) < 100 && bytes < 1<<20 && i < n; i++ {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("%s%06d", prefix, i), strings.Repeat("v", size)))
			bytes += size
		}
		if _, err := c.Txn(t.Context()).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
}

// Done when 4, live: every event of both real snapshots.
func TestCorpus(t *testing.T) {
	for name, c := range map[string]struct {
		path         func(testing.TB) string
		dir          string
		rev, compact int64
	}{
		"snapshot": {corpus.Snapshot, "", 1491, 0},
		"later":    {corpus.Later, "later/", 1652, 1590},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := source(t, start(t, sandbox.Options{From: c.path(t)}), live.Options{})
			info, err := s.Info(t.Context())
			if err != nil || info.Revision != c.rev || info.CompactRev != c.compact || info.Kind != keyspace.Live || info.Version != "3.7.3" || info.Bytes == 0 {
				t.Errorf("Info = %+v, %v", info, err)
			}
			var got strings.Builder
			fmt.Fprintln(&got, "mod_rev\ttype\tkey\tcreate_rev\tversion\tlease\tvalue_len\tvalue_sha256")
			er := everything
			er.MinRev = c.compact + 1
			for e, err := range s.Events(t.Context(), er) {
				if err != nil {
					t.Fatal(err)
				}
				r, sum := e.Record, ""
				if e.Type == keyspace.Put {
					sum = fmt.Sprintf("%x", sha256.Sum256(r.Value))
				}
				fmt.Fprintf(&got, "%d\t%s\t%s\t%d\t%d\t%d\t%d\t%s\n", r.ModRev, e.Type, r.Key, r.CreateRev, r.Version, r.Lease, len(r.Value), sum)
			}
			if want := string(corpus.Truth(t, c.dir+"history.tsv")); got.String() != want {
				t.Errorf("the history differs: %d bytes, want %d", got.Len(), len(want))
			}
			r := keyspace.All()
			r.Rev = c.rev
			lines := map[string]string{}
			for _, l := range strings.Split(strings.TrimSpace(string(corpus.Truth(t, c.dir+"keys.tsv"))), "\n")[1:] {
				f := strings.Split(l, "\t")
				lines[f[0]] = strings.Join(f[1:6], "\t") + "\t" + f[len(f)-1]
			}
			for _, r := range records(t, s, r) {
				want, ok := lines[string(r.Key)]
				delete(lines, string(r.Key))
				if got := fmt.Sprintf("%d\t%d\t%d\t%d\t%d\t%x", r.CreateRev, r.ModRev, r.Version, r.Lease, len(r.Value), sha256.Sum256(r.Value)); ok && got != want {
					t.Errorf("%s: %s, want %s", r.Key, got, want)
				}
			}
			if len(lines) > 0 {
				t.Errorf("%d keys are missing", len(lines))
			}
		})
	}
}

// recorder is a server's gRPC that notes and may change what goes by.
type recorder struct {
	mu      sync.Mutex
	methods map[string]int
	stream  func(method string, ss grpc.ServerStream) (grpc.ServerStream, error)
	unary   func(method string) error
}

func (r *recorder) note(method string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.methods == nil {
		r.methods = map[string]int{}
	}
	r.methods[method[strings.LastIndex(method, "/")+1:]]++
}

func (r *recorder) count(method string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.methods[method]
}

func (r *recorder) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			r.note(info.FullMethod)
			if r.unary != nil {
				if err := r.unary(info.FullMethod); err != nil {
					return nil, err
				}
			}
			return handler(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			r.note(info.FullMethod)
			if r.stream != nil {
				var err error
				if ss, err = r.stream(info.FullMethod, ss); err != nil {
					return err
				}
			}
			return handler(srv, ss)
		}),
	}
}

// Nothing that writes is ever sent, and a server that cannot stream is asked once.
func TestRequests(t *testing.T) {
	t.Parallel()
	for _, streams := range []bool{true, false} {
		rec := &recorder{}
		if !streams {
			rec.stream = func(method string, ss grpc.ServerStream) (grpc.ServerStream, error) {
				if strings.HasSuffix(method, "/RangeStream") {
					return nil, status.Error(codes.Unimplemented, "unknown method RangeStream")
				}
				return ss, nil
			}
		}
		c := start(t, sandbox.Options{ServerOptions: rec.options()})
		fill(t, c, "k", 2000, 10)
		if _, err := c.Compact(t.Context(), 5); err != nil {
			t.Fatal(err)
		}
		rec.mu.Lock()
		clear(rec.methods)
		rec.mu.Unlock()
		s := source(t, c, live.Options{PageBytes: 4000})
		for range 3 {
			if n := len(records(t, s, keyspace.All())); n != 2000 {
				t.Errorf("%d records", n)
			}
		}
		for _, err := range s.Records(t.Context(), keyspace.Range{Key: []byte("k"), Rev: 2}) {
			if !errors.Is(err, keyspace.ErrCompacted) {
				t.Error(err)
			}
		}
		if _, err := s.Info(t.Context()); err != nil {
			t.Error(err)
		}
		n := 0
		for _, err := range s.Events(t.Context(), everything) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n < 2000 {
			t.Errorf("%d events", n)
		}
		allowed := map[string]bool{"Range": true, "RangeStream": true, "Status": true, "Watch": true, "Snapshot": true}
		for m, n := range rec.methods {
			if !allowed[m] {
				t.Errorf("%d requests of %s", n, m)
			}
		}
		if n := rec.count("RangeStream"); streams && n != 3 || !streams && n != 1 {
			t.Errorf("%d streams asked for (the server has them: %v)", n, streams)
		}
		if n := rec.count("Snapshot"); n != 1 {
			t.Errorf("%d snapshots", n)
		}
	}
}

// However long a read takes, it shows one revision; other pages of a later one
// would show in the pairs.
func TestPinned(t *testing.T) {
	t.Parallel()
	c := start(t, sandbox.Options{})
	const n = 400
	write := func(i int) {
		v := fmt.Sprint(i)
		var ops []clientv3.Op
		for k := range 20 {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("k%06d", k*n/20), v))
		}
		if _, err := c.Txn(t.Context()).Then(ops...).Commit(); err != nil {
			t.Error(err)
		}
	}
	fill(t, c, "k", n, 1000)
	write(0)
	for name, o := range map[string]live.Options{"stream": {}, "pages": {NoStream: true, PageBytes: 20_000}} {
		s := source(t, c, o)
		values := map[string]bool{}
		i := 0
		for r, err := range s.Records(t.Context(), keyspace.Prefix([]byte("k"))) {
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Value) < 1000 {
				values[string(r.Value)] = true
			}
			if i++; i%20 == 0 {
				write(i)
			}
		}
		if len(values) != 1 || i != n {
			t.Errorf("%s: %d states in one read of %d records", name, len(values), i)
		}
	}
}

// A consumer slower than the compactions is told so.
func TestCompactedWhileRead(t *testing.T) {
	t.Parallel()
	c := start(t, sandbox.Options{})
	fill(t, c, "k", 3000, 100)
	s := source(t, c, live.Options{NoStream: true, PageBytes: 20_000})
	n := 0
	var err error
	for _, err = range s.Records(t.Context(), keyspace.All()) {
		if err != nil {
			break
		}
		if n++; n == 1 {
			put, err := c.Put(t.Context(), "later", "")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Compact(t.Context(), put.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
				t.Fatal(err)
			}
		}
	}
	var gone *keyspace.CompactedError
	if !errors.As(err, &gone) || gone.CompactRev != gone.Rev+1 || !strings.Contains(err.Error(), fmt.Sprintf("compacted after %d records", n)) || n == 3000 {
		t.Errorf("%d records, then %v", n, err)
	}
}

// Values that suddenly become large do not make one huge answer.
func TestSizesJump(t *testing.T) {
	t.Parallel()
	rec := &recorder{}
	c := start(t, sandbox.Options{ServerOptions: rec.options()})
	fill(t, c, "a", 1000, 5)
	fill(t, c, "b", 40, 200_000)
	fill(t, c, "c", 1000, 5)
	s := source(t, c, live.Options{NoStream: true, PageBytes: 100_000})
	got := records(t, s, keyspace.All())
	if len(got) != 2040 {
		t.Errorf("%d records", len(got))
	}
	for i := 1; i < len(got); i++ {
		if bytes.Compare(got[i-1].Key, got[i].Key) >= 0 {
			t.Errorf("%q after %q", got[i].Key, got[i-1].Key)
		}
	}
}

// Ending the loop ends the request on the server as well.
func TestStopEarly(t *testing.T) {
	t.Parallel()
	var ended atomic.Int64
	rec := &recorder{}
	opts := append(rec.options(), grpc.ChainStreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		defer ended.Add(1)
		return handler(srv, ss)
	}))
	c := start(t, sandbox.Options{ServerOptions: opts})
	fill(t, c, "k", 400, 100_000)
	s := source(t, c, live.Options{})
	for range 5 {
		for _, err := range s.Records(t.Context(), keyspace.All()) {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	for range 400 {
		if ended.Load() == 5 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if ended.Load() != 5 {
		t.Errorf("%d of 5 streams have ended", ended.Load())
	}
	if n := len(records(t, s, keyspace.All())); n != 400 {
		t.Errorf("%d records after it", n)
	}
}

// The server's snapshot is held against its checksum, and half of one is no
// history. Nothing of either stays on disk.
func TestBadSnapshot(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		blob func(n int, b []byte) ([]byte, error)
		want error
	}{
		"flipped": {func(_ int, b []byte) ([]byte, error) { b[len(b)/2] ^= 1; return b, nil }, keyspace.ErrCorrupt},
		"no trailer": {func(_ int, b []byte) ([]byte, error) {
			if len(b) == 32 {
				return nil, nil
			}
			return b, nil
		}, keyspace.ErrCorrupt},
		"refused": {func(_ int, _ []byte) ([]byte, error) { return nil, status.Error(codes.Internal, "disk on fire") }, nil},
	} {
		rec := &recorder{}
		rec.stream = func(method string, ss grpc.ServerStream) (grpc.ServerStream, error) {
			if strings.HasSuffix(method, "/Snapshot") {
				return &blobs{ServerStream: ss, change: c.blob}, nil
			}
			return ss, nil
		}
		client := start(t, sandbox.Options{ServerOptions: rec.options()})
		fill(t, client, "k", 100, 100)
		s := source(t, client, live.Options{})
		n := 0
		var err error
		for _, err = range s.Events(t.Context(), everything) {
			n++
		}
		if err == nil || n != 1 || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), client.Endpoints()[0]) {
			t.Errorf("%s: %d events, error %v", name, n-1, err)
		}
	}
}

type blobs struct {
	grpc.ServerStream
	n      int
	change func(int, []byte) ([]byte, error)
}

func (b *blobs) SendMsg(m any) error {
	r := m.(*pb.SnapshotResponse)
	var err error
	if r.Blob, err = b.change(b.n, bytes.Clone(r.Blob)); err != nil {
		return err
	}
	b.n++
	return b.ServerStream.SendMsg(r)
}

func TestRateAndProgress(t *testing.T) {
	t.Parallel()
	c := start(t, sandbox.Options{})
	fill(t, c, "k", 400, 1000)
	var last live.Progress
	calls := 0
	s := source(t, c, live.Options{NoStream: true, PageBytes: 20_000, MaxRate: 1 << 20, Progress: func(p live.Progress) {
		if !p.Snapshot && p.Records < last.Records {
			t.Errorf("from %+v to %+v", last, p)
		}
		last = p
		calls++
	}})
	begin := time.Now()
	if n := len(records(t, s, keyspace.All())); n != 400 {
		t.Errorf("%d records", n)
	}
	// 400 KB at 1 MB a second, less the first and the last page.
	if took := time.Since(begin); took < 200*time.Millisecond {
		t.Errorf("took %v", took)
	}
	if calls < 5 || last.Records != 400 || last.Bytes < 400_000 {
		t.Errorf("%d calls, the last %+v", calls, last)
	}
	last = live.Progress{}
	for _, err := range s.Events(t.Context(), everything) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if !last.Snapshot || last.Bytes == 0 || last.Total != last.Bytes {
		t.Errorf("after a snapshot %+v", last)
	}
}

// The history is fetched again only for what it does not have yet.
func TestEventsFollow(t *testing.T) {
	t.Parallel()
	rec := &recorder{}
	c := start(t, sandbox.Options{ServerOptions: rec.options()})
	fill(t, c, "k", 100, 10)
	s := source(t, c, live.Options{})
	count := func(r keyspace.EventRange) (n int) {
		for _, err := range s.Events(t.Context(), r) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		return n
	}
	first := count(everything)
	if got := count(everything); got != first {
		t.Errorf("%d, then %d events", first, got)
	}
	if n := rec.count("Snapshot"); n != 1 {
		t.Errorf("%d snapshots for one state", n)
	}
	for i := range 4 {
		put, err := c.Put(t.Context(), "k", "")
		if err != nil {
			t.Fatal(err)
		}
		if got := count(everything); got != first+i+1 {
			t.Errorf("%d events, want %d", got, first+i+1)
		}
		old := everything
		old.MaxRev = put.Header.Revision - 1
		if got := count(old); got != first+i {
			t.Errorf("%d events up to the revision before, want %d", got, first+i)
		}
	}
	if n := rec.count("Snapshot"); n != 5 {
		t.Errorf("%d snapshots for 5 states", n)
	}
}

func TestClosed(t *testing.T) {
	t.Parallel()
	c := start(t, sandbox.Options{})
	s := live.New(c, live.Options{})
	if _, err := s.Info(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Close()
	for _, err := range s.Records(t.Context(), keyspace.All()) {
		if !errors.Is(err, live.ErrClosed) {
			t.Error(err)
		}
	}
	for _, err := range s.Events(t.Context(), everything) {
		if !errors.Is(err, live.ErrClosed) {
			t.Error(err)
		}
	}
	if _, err := c.Get(t.Context(), "k"); err != nil {
		t.Errorf("the caller's client was closed: %v", err)
	}
}
