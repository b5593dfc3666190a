package server

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Proxy is a TCP proxy in front of a server, which makes the network as bad as a test
// wants it. What comes from the server counts; the way to it is left alone, unless
// everything is held.
type Proxy struct {
	Endpoint string // host:port to connect to

	target string
	rate   atomic.Int64 // bytes a second; 0: no bound
	passed atomic.Int64
	hold   chan struct{} // closed: nothing passes any more

	mu    sync.Mutex
	conns []net.Conn
	held  bool
}

// NewProxy starts a proxy in front of host:port. It ends with the test.
func NewProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{Endpoint: l.Addr().String(), target: target, hold: make(chan struct{})}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { p.serve(c) })
		}
	})
	tb.Cleanup(func() {
		l.Close()
		p.Blackhole()
		p.Cut()
		serving.Wait()
	})
	return p
}

// Throttle bounds what passes from the server, in bytes a second; 0: no bound.
func (p *Proxy) Throttle(rate int64) { p.rate.Store(rate) }

// Passed is how many bytes have come from the server.
func (p *Proxy) Passed() int64 { return p.passed.Load() }

// Blackhole lets nothing pass any more, and closes nothing.
func (p *Proxy) Blackhole() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.held {
		p.held = true
		close(p.hold)
	}
}

// Cut closes all connections that are open.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

// Await waits until n bytes have come from the server.
func (p *Proxy) Await(tb testing.TB, n int64) {
	tb.Helper()
	for begin := time.Now(); p.Passed() < n; time.Sleep(time.Millisecond) {
		if time.Since(begin) > 30*time.Second {
			tb.Fatalf("only %d bytes of %d came", p.Passed(), n)
		}
	}
}

func (p *Proxy) serve(c net.Conn) {
	s, err := net.Dial("tcp", p.target)
	if err != nil {
		c.Close()
		return
	}
	p.mu.Lock()
	p.conns = append(p.conns, c, s)
	p.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.copy(s, c, nil)
		s.Close()
	}()
	p.copy(c, s, &p.passed)
	c.Close()
	<-done
}

func (p *Proxy) copy(dst io.Writer, src io.Reader, count *atomic.Int64) {
	buf := make([]byte, 16<<10)
	for {
		n, err := src.Read(buf)
		select {
		case <-p.hold:
			// Whoever sends goes on until its window is full.
			_, _ = io.Copy(io.Discard, src)
			return
		default:
		}
		if n > 0 {
			if count != nil {
				count.Add(int64(n))
				if rate := p.rate.Load(); rate > 0 {
					time.Sleep(time.Duration(int64(n) * int64(time.Second) / rate))
				}
			}
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
