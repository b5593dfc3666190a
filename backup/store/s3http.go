package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// httpClient is the client of one store: its own connections, bounded in how long
// they may stand still.
func httpClient(caFile string, stall time.Duration) (*http.Client, error) {
	t := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout:     90 * time.Second,
		MaxIdleConnsPerHost: 16,
		ForceAttemptHTTP2:   true,
	}
	if caFile != "" {
		pem, err := os.ReadFile(caFile)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate", caFile)
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	// Redirects are the library's to judge: another region is one.
	noRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{Transport: &stallGuard{t, stall}, CheckRedirect: noRedirect}, nil
}

// stallGuard ends a request when nothing of it has moved for a time: neither of
// the body that is sent, nor of the answer.
type stallGuard struct {
	next  http.RoundTripper
	after time.Duration
}

// StallError says that a connection stood still. It counts as the end of a
// deadline (context.DeadlineExceeded).
type StallError struct{ After time.Duration }

func (e *StallError) Error() string { return fmt.Sprintf("nothing moved for %s", e.After) }

// Timeout makes the library try again.
func (e *StallError) Timeout() bool { return true }

// Unwrap makes it the end of a deadline.
func (e *StallError) Unwrap() error { return context.DeadlineExceeded }

func (g *stallGuard) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	w := &watchdog{after: g.after, cancel: cancel}
	w.timer = time.AfterFunc(g.after, func() { cancel(&StallError{g.after}) })
	req = req.WithContext(ctx)
	if req.Body != nil && req.Body != http.NoBody {
		req.Body = &watched{req.Body, w, ctx}
	}
	resp, err := g.next.RoundTrip(req)
	if err != nil {
		w.end()
		return nil, stalled(ctx, err)
	}
	w.kick()
	resp.Body = &watchedAnswer{watched{resp.Body, w, ctx}}
	return resp, nil
}

// stalled replaces what the end of a request led to by its cause.
func stalled(ctx context.Context, err error) error {
	if s, ok := context.Cause(ctx).(*StallError); ok { //nolint:errorlint // set above
		return s
	}
	return err
}

type watchdog struct {
	mu     sync.Mutex
	timer  *time.Timer
	after  time.Duration
	cancel context.CancelCauseFunc
	ended  bool
}

func (w *watchdog) kick() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		w.timer.Reset(w.after)
	}
}

func (w *watchdog) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.timer.Stop()
	w.cancel(nil)
}

type watched struct {
	io.ReadCloser
	w   *watchdog
	ctx context.Context
}

func (b *watched) Read(p []byte) (int, error) {
	b.w.kick()
	n, err := b.ReadCloser.Read(p)
	b.w.kick()
	if err != nil && err != io.EOF { //nolint:errorlint // readers return it bare
		err = stalled(b.ctx, err)
	}
	return n, err
}

type watchedAnswer struct{ watched }

func (b *watchedAnswer) Close() error {
	defer b.w.end()
	return b.ReadCloser.Close()
}
