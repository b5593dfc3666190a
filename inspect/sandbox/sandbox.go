// Package sandbox runs a throw-away etcd inside this process, empty or with the
// content of a snapshot.
//
// The file it starts from is only read. The private copy is made harmless before
// etcd sees it: leases get a time to live of a hundred years, so that keys are
// still there after a minute; authentication is off; alarms are cleared; there is
// no quota and no compaction. Revisions and history stay what they are.
//
// A sandbox's folder is no place to restore from. An older etcd refuses a folder
// that this one started on, and its leases are not the cluster's. It is removed on
// Close.
//
// Of all packages outside of tests, only this one links the etcd server, which
// costs some milliseconds at every start of a program.
package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sandbox/latemetrics"
)

const (
	memberName = "sandbox"
	// A lone member talks to no peer; the address only has to be well formed.
	peerURL = "http://127.0.0.1:1"
)

const (
	dirPattern = "etcdctl-plus-sandbox-*"
	ownerFile  = "owner"
)

// Options of Start. The zero value starts an empty etcd.
type Options struct {
	// From is a snapshot, a member's db file or a data folder to start from;
	// empty: an empty keyspace.
	From string
	// File says how From is opened, such as from a private copy.
	File dbfile.Options
	// Dir is where the sandbox makes its own folder; empty: the system's folder
	// for temporary files. It needs room for twice the file for a moment.
	Dir string
	// StartTimeout bounds the start of the server, not the copy before it; 0:
	// a minute.
	StartTimeout time.Duration
	// ServerOptions go to the server's gRPC, for tests that want to see requests.
	ServerOptions []grpc.ServerOption
}

// Sandbox is a running etcd.
type Sandbox struct {
	dir      string
	release  func() // of the lock on dir
	endpoint string
	server   *embed.Etcd
	revision int64
	note     string
	streams  context.CancelFunc // ends the clients' streams
	unwatch  func() bool
	stopped  chan struct{}
	close    sync.Once
	err      error // of Close
}

// Start starts an etcd that listens on loopback only, on a port of its own.
//
// It returns when the server answers. A file that is damaged gives an error that
// wraps keyspace.ErrCorrupt before any server sees it; see dbfile.Open for the
// others. When ctx is done the sandbox closes itself.
func Start(ctx context.Context, o Options) (_ *Sandbox, err error) {
	sweep(cmp.Or(o.Dir, os.TempDir()))
	dir, err := os.MkdirTemp(o.Dir, dirPattern)
	if err != nil {
		return nil, fmt.Errorf("start sandbox: %w", err)
	}
	release, err := own(dir)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start sandbox: %w", err), os.RemoveAll(dir))
	}
	s := &Sandbox{dir: dir, release: release, stopped: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start sandbox: %w", err), s.Close())
		}
	}()
	data := filepath.Join(dir, "data")
	if o.From != "" {
		if s.revision, s.note, err = populate(ctx, o, dir, data); err != nil {
			return nil, fmt.Errorf("from %s: %w", o.From, err)
		}
	}
	if err := latemetrics.Release(); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	if err := s.serve(ctx, o, data); err != nil {
		return nil, err
	}
	s.unwatch = context.AfterFunc(ctx, func() { _ = s.Close() })
	return s, nil
}

// serve starts the server on a free port.
func (s *Sandbox) serve(ctx context.Context, o Options, data string) error {
	timeout := o.StartTimeout
	if timeout <= 0 {
		timeout = time.Minute
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("the server was not ready after %v", timeout))
	defer cancel()
	// The server has to be told its port, because it tells it to clients that ask
	// for the members. Somebody else may take it before the server does.
	for tries := 0; ; tries++ {
		err := s.serveOnce(ctx, o, data)
		if err == nil || !errors.Is(err, syscall.EADDRINUSE) || tries == 20 {
			return err
		}
	}
}

func (s *Sandbox) serveOnce(ctx context.Context, o Options, data string) error {
	addr, err := freeAddr()
	if err != nil {
		return err
	}
	var streams context.Context
	streams, s.streams = context.WithCancel(context.Background())
	cfg := config(data, addr)
	cfg.GRPCAdditionalServerOptions = append([]grpc.ServerOption{grpc.ChainStreamInterceptor(endWith(streams))}, o.ServerOptions...)
	server, err := start(cfg)
	if err != nil {
		return err
	}
	s.server, s.endpoint = server, addr
	select {
	case <-server.Server.ReadyNotify():
	case <-server.Server.StopNotify():
		return errors.New("the server stopped before it was ready")
	case err := <-server.Err():
		return fmt.Errorf("the server failed before it was ready: %w", err)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if got := server.Server.KV().Rev(); s.revision != 0 && got != s.revision {
		return fmt.Errorf("the server came up at revision %d, the file is at %d", got, s.revision)
	}
	return nil
}

// start starts the server. What it cannot bear it answers with a panic.
func start(cfg *embed.Config) (server *embed.Etcd, err error) {
	defer func() {
		if p := recover(); p != nil {
			server, err = nil, fmt.Errorf("the server refused the file: %v", p)
		}
	}()
	return embed.StartEtcd(cfg)
}

func config(data, addr string) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Name = memberName
	cfg.Dir = data
	cfg.ListenPeerUrls = nil
	cfg.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: peerURL[len("http://"):]}}
	cfg.InitialCluster = memberName + "=" + peerURL
	cfg.ListenClientUrls = []url.URL{{Scheme: "http", Host: addr}}
	cfg.AdvertiseClientUrls = cfg.ListenClientUrls
	cfg.UnsafeNoFsync = true // nothing here is to be kept
	// A lone member elects itself; there is nothing to wait for.
	cfg.TickMs, cfg.ElectionMs = 10, 100
	cfg.QuotaBackendBytes = -1 // none
	cfg.BcryptCost = 4         // the least: no password here protects anything
	cfg.AutoCompactionRetention = "0"
	cfg.CompactHashCheckTime = 24 * time.Hour
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(quiet())
	return cfg
}

// quiet is a logger that says nothing, and with which "fatal" does not end the
// process.
func quiet() *zap.Logger {
	return zap.NewNop().WithOptions(zap.WithFatalHook(zapcore.WriteThenPanic))
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// Endpoint returns the address clients connect to, as host:port.
func (s *Sandbox) Endpoint() string { return s.endpoint }

// Revision returns the revision at which the file was; 0 of an empty start.
func (s *Sandbox) Revision() int64 { return s.revision }

// Note returns one line that an operator should know about the file it started
// from, such as how far that reaches; empty when there is nothing to say.
func (s *Sandbox) Note() string { return s.note }

// DataDir returns the server's folder. It is gone after Close.
func (s *Sandbox) DataDir() string { return filepath.Join(s.dir, "data") }

// Config returns what a client needs to connect.
func (s *Sandbox) Config() clientv3.Config {
	return clientv3.Config{
		Endpoints:   []string{s.endpoint},
		DialTimeout: 5 * time.Second,
		Logger:      quiet(),
	}
}

// Client returns a new client of the sandbox. The caller closes it.
func (s *Sandbox) Client() (*clientv3.Client, error) {
	c, err := clientv3.New(s.Config())
	if err != nil {
		return nil, fmt.Errorf("connect to sandbox: %w", err)
	}
	return c, nil
}

// Done is closed when the sandbox is: by Close, or because ctx of Start ended.
func (s *Sandbox) Done() <-chan struct{} { return s.stopped }

// Close stops the server and removes its folder. It may be called twice and by
// several goroutines; all of them return after the folder is gone.
func (s *Sandbox) Close() error {
	s.close.Do(func() {
		defer close(s.stopped)
		if s.unwatch != nil {
			s.unwatch()
		}
		if s.streams != nil {
			s.streams() // the server waits for streams that are open, such as a watch
		}
		if s.server != nil {
			s.server.Close()
		}
		if err := os.RemoveAll(s.dir); err != nil {
			s.err = fmt.Errorf("remove sandbox: %w", err)
		}
		s.release()
	})
	return s.err
}

// endWith ends every stream when ctx is done.
func endWith(ctx context.Context) grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		own, cancel := context.WithCancel(ss.Context())
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		return handler(srv, stream{ss, own})
	}
}

type stream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s stream) Context() context.Context { return s.ctx }
