package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Options of Start. The zero value is a lone member of 3.7.
type Options struct {
	Version string // minor version; "": 3.7
	DataDir string // "": a folder of the test
	Peers   string // --initial-cluster; "": itself alone
	Name    string // of the member
	// ClientPort and PeerPort are chosen when 0; a cluster has to know its ports
	// before it starts.
	ClientPort, PeerPort int
	Args                 []string // more flags
	Scheme               string   // of the client port; "": http
	NoWait               bool     // do not wait until it answers
}

// Process is a running server.
type Process struct {
	Endpoint string // host:port
	Peer     string // peer URL
	DataDir  string
	Options  Options // to start it again

	cmd  *exec.Cmd
	log  *syncBuffer
	done chan struct{}
}

// Ports returns n ports of the loopback that are free at the moment.
func Ports(tb testing.TB, n int) []int {
	tb.Helper()
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			tb.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// Start starts an etcd and waits until it answers. It is killed when the test ends.
func Start(tb testing.TB, o Options) *Process {
	tb.Helper()
	if o.Version == "" {
		o.Version = "3.7"
	}
	if o.Name == "" {
		o.Name = "m"
	}
	if o.Scheme == "" {
		o.Scheme = "http"
	}
	if o.DataDir == "" {
		o.DataDir = filepath.Join(tb.TempDir(), "data")
	}
	ports := Ports(tb, 2)
	if o.ClientPort == 0 {
		o.ClientPort = ports[0]
	}
	if o.PeerPort == 0 {
		o.PeerPort = ports[1]
	}
	p := &Process{Endpoint: fmt.Sprintf("127.0.0.1:%d", o.ClientPort), Peer: fmt.Sprintf("http://127.0.0.1:%d", o.PeerPort), DataDir: o.DataDir, Options: o}
	if o.Peers == "" {
		o.Peers = o.Name + "=" + p.Peer
	}
	client := o.Scheme + "://" + p.Endpoint
	args := append([]string{
		"--name", o.Name, "--data-dir", o.DataDir, "--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", p.Peer, "--initial-advertise-peer-urls", p.Peer, "--initial-cluster", o.Peers, "--logger", "zap", "--log-level", "warn",
	}, o.Args...)
	p.run(tb, Binary(tb, o.Version), args...)
	if !o.NoWait {
		p.Ready(tb)
	}
	return p
}

// Run starts any server program that is to listen at endpoint, and waits until
// something does.
func Run(tb testing.TB, path, endpoint string, args ...string) *Process {
	tb.Helper()
	p := &Process{Endpoint: endpoint}
	p.run(tb, path, args...)
	p.Ready(tb)
	return p
}

func (p *Process) run(tb testing.TB, path string, args ...string) {
	tb.Helper()
	p.log, p.done = &syncBuffer{}, make(chan struct{})
	p.cmd = exec.Command(path, args...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "ETCD_") {
			p.cmd.Env = append(p.cmd.Env, kv)
		}
	}
	if err := p.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // it is killed, as a rule
	}()
	tb.Cleanup(func() {
		p.Kill()
		if tb.Failed() {
			lines := strings.Split(strings.TrimSpace(p.Log()), "\n")
			tb.Logf("%s said last:\n%s", filepath.Base(path), strings.Join(lines[max(0, len(lines)-10):], "\n"))
		}
	})
}

// Ready waits until the server takes connections.
func (p *Process) Ready(tb testing.TB) {
	tb.Helper()
	for start := time.Now(); time.Since(start) < 30*time.Second; time.Sleep(5 * time.Millisecond) {
		c, err := net.DialTimeout("tcp", p.Endpoint, time.Second)
		if err == nil {
			c.Close()
			return
		}
		select {
		case <-p.done:
			tb.Fatalf("the server ended:\n%s", p.Log())
		default:
		}
	}
	tb.Fatalf("the server does not answer at %s:\n%s", p.Endpoint, p.Log())
}

// Kill ends the process as a crash does (SIGKILL) and waits for its end.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may be dead already
	<-p.done
}

// Signal sends a signal. After SIGSTOP every thread stands still.
func (p *Process) Signal(tb testing.TB, sig syscall.Signal) {
	tb.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		tb.Fatal(err)
	}
	awaitStopped(p.cmd.Process.Pid, sig)
}

// Stop asks the process to end (SIGTERM) and waits for it.
func (p *Process) Stop(tb testing.TB) {
	tb.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		tb.Fatal(err)
	}
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		tb.Fatalf("the server does not end:\n%s", p.Log())
	}
}

// Log returns what the server has said.
func (p *Process) Log() string { return p.log.String() }

// Client returns a client, once the server answers it.
func (p *Process) Client(tb testing.TB) *clientv3.Client {
	tb.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{p.Endpoint}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	ctx, cancel := context.WithTimeout(tb.Context(), 30*time.Second)
	defer cancel()
	for {
		_, err := c.Get(ctx, "x")
		if err == nil {
			return c
		}
		if ctx.Err() != nil {
			tb.Fatalf("the server does not answer: %v\n%s", err, p.Log())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
