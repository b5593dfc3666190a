package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/srv"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/etcdctl-plus/etcdctl-plus/commands/config"
)

// badConnection is etcdctl's exit code when no client can be made, as when logging in
// fails.
const badConnection = 2

// Dial connects with the given settings and waits, at most the dial timeout,
// until one endpoint answers. When none does, the error says for each why.
// It leaves s as it was.
func Dial(ctx context.Context, s *config.Settings, askPassword func(user string) (string, error)) (*clientv3.Client, error) {
	cfg, err := ClientConfig(ctx, s, askPassword)
	if err != nil {
		return nil, err
	}
	c, err := clientv3.New(*cfg)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && cfg.Username != "" {
		// With a user, New logs in, and the server's password check takes its time.
		return nil, &Error{Code: Timeout, Err: fmt.Errorf("log in at %s: no answer within %s", strings.Join(cfg.Endpoints, ", "), s.DialTimeout),
			Hint: "a busy server can take longer to check a password: --dial-timeout allows for it; or log in once and use --auth-jwt-token", Endpoint: strings.Join(cfg.Endpoints, ","), DropIn: badConnection}
	}
	if err != nil {
		d := *Describe(fmt.Errorf("connect to %s: %w", strings.Join(cfg.Endpoints, ", "), err))
		d.DropIn = badConnection
		return nil, &d
	}
	if err := waitReady(ctx, c, s.DialTimeout); err != nil {
		_ = c.Close() // the dial error is what counts
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, diagnose(ctx, cfg, s)
	}
	if s.KeyPrefix != "" {
		c.KV = namespace.NewKV(c.KV, s.KeyPrefix)
		c.Watcher = namespace.NewWatcher(c.Watcher, s.KeyPrefix)
		c.Lease = namespace.NewLease(c.Lease, s.KeyPrefix)
	}
	return c, nil
}

// waitReady lets go at the first failure of all endpoints: a refused
// connection should not cost the whole dial timeout.
func waitReady(ctx context.Context, c *clientv3.Client, timeout time.Duration) error {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	conn := c.ActiveConnection()
	conn.Connect()
	for {
		switch st := conn.GetState(); st {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			return errors.New("connection failed")
		default:
			if !conn.WaitForStateChange(ctx, st) {
				return ctx.Err()
			}
		}
	}
}

// ClientConfig builds etcd's client configuration from the settings.
func ClientConfig(ctx context.Context, s *config.Settings, askPassword func(string) (string, error)) (*clientv3.Config, error) {
	endpoints, err := endpoints(s)
	if err != nil {
		return nil, err
	}
	cfg := &clientv3.Config{
		Context:              context.WithoutCancel(ctx),
		Endpoints:            endpoints,
		DialTimeout:          s.DialTimeout,
		DialKeepAliveTime:    s.KeepaliveTime,
		DialKeepAliveTimeout: s.KeepaliveTimeout,
		MaxCallSendMsgSize:   s.MaxRequestBytes,
		MaxCallRecvMsgSize:   s.MaxRecvBytes,
		Logger:               zap.NewNop(), // errors reach the operator as errors, not as log lines
	}
	if cfg.TLS, err = tlsConfig(s, endpoints); err != nil {
		return nil, err
	}
	if s.AuthToken != "" {
		cfg.Token = s.AuthToken
	} else if s.User != "" {
		user, pw, has := strings.Cut(s.User, ":")
		if s.Password != "" {
			pw, has = s.Password, true
		}
		if !has {
			if askPassword == nil {
				return nil, &config.Error{Setting: "user", Err: fmt.Errorf("no password for user %q", user)}
			}
			if pw, err = askPassword(user); err != nil {
				return nil, err
			}
		}
		cfg.Username, cfg.Password = user, pw
	}
	if s.Audit != "" {
		a := newAuditor(s, endpoints, cfg.Username)
		cfg.DialOptions = append(cfg.DialOptions, grpc.WithChainUnaryInterceptor(a.unary), grpc.WithChainStreamInterceptor(a.stream))
	}
	if s.ReadOnly {
		cfg.DialOptions = append(cfg.DialOptions,
			grpc.WithChainUnaryInterceptor(readOnlyUnary), grpc.WithChainStreamInterceptor(readOnlyStream))
	}
	return cfg, nil
}

func endpoints(s *config.Settings) ([]string, error) {
	if s.DiscoverySRV == "" {
		return s.Endpoints, nil
	}
	found, err := srv.GetClient("etcd-client", s.DiscoverySRV, s.DiscoverySRVName)
	if err != nil {
		return nil, &Error{Code: Unavailable, Err: fmt.Errorf("look up SRV records of %s: %w", s.DiscoverySRV, err),
			Hint: "expected are records named _etcd-client._tcp or _etcd-client-ssl._tcp" + srvSuffix(s) + "." + s.DiscoverySRV}
	}
	if s.InsecureDiscovery {
		return found.Endpoints, nil
	}
	var secure []string
	for _, e := range found.Endpoints {
		if strings.HasPrefix(e, "https://") {
			secure = append(secure, e)
		}
	}
	if len(secure) == 0 {
		return nil, &Error{Code: Unavailable, Err: fmt.Errorf("SRV records of %s name no https endpoint", s.DiscoverySRV),
			Hint: "--insecure-discovery=true accepts plain ones"}
	}
	return secure, nil
}

func srvSuffix(s *config.Settings) string {
	if s.DiscoverySRVName == "" {
		return ""
	}
	return " (with service name suffix -" + s.DiscoverySRVName + ")"
}

// tlsConfig returns nil when nothing asks for TLS. A certificate, a CA, or an
// https endpoint does; so does --insecure-transport=false.
func tlsConfig(s *config.Settings, endpoints []string) (*tls.Config, error) {
	https := false
	for _, e := range endpoints {
		https = https || strings.HasPrefix(e, "https://") || strings.HasPrefix(e, "unixs://")
	}
	if s.Cert == "" && s.CACert == "" && !https && s.InsecureTransport && !s.InsecureSkipTLSVerify {
		return nil, nil
	}
	for _, f := range []struct{ flag, path string }{{"cert", s.Cert}, {"key", s.Key}, {"cacert", s.CACert}} {
		if f.path == "" {
			continue
		}
		if _, err := os.ReadFile(f.path); err != nil {
			return nil, &Error{Code: Config, Err: &config.Error{Setting: f.flag, Err: err}, DropIn: 128}
		}
	}
	info := transport.TLSInfo{CertFile: s.Cert, KeyFile: s.Key, TrustedCAFile: s.CACert, Logger: zap.NewNop()}
	if s.DiscoverySRV != "" {
		info.ServerName = s.DiscoverySRV
	}
	c, err := info.ClientConfig()
	if err != nil {
		what := "cert"
		if s.Cert == "" {
			what = "cacert"
		}
		return nil, &config.Error{Setting: what, Err: fmt.Errorf("load %s: %w", strings.TrimLeft(s.Cert+", "+s.CACert, ", "), err)}
	}
	if s.CACert != "" && c.RootCAs != nil && c.RootCAs.Equal(x509.NewCertPool()) {
		return nil, &config.Error{Setting: "cacert", Err: fmt.Errorf("%s holds no PEM certificate", s.CACert)}
	}
	c.InsecureSkipVerify = s.InsecureSkipTLSVerify
	return c, nil
}

// diagnose asks every endpoint in turn why it does not answer.
func diagnose(ctx context.Context, cfg *clientv3.Config, s *config.Settings) error {
	var lines []string
	var hint string
	code := Unavailable
	for _, e := range cfg.Endpoints {
		f := probe(ctx, e, cfg.TLS, s.DialTimeout)
		lines = append(lines, e+": "+f.cause)
		if hint == "" {
			hint = f.hint
		}
		if f.code != 0 {
			code = f.code
		}
	}
	msg := "connect to " + lines[0]
	if len(lines) > 1 {
		msg = "no endpoint answers:\n  " + strings.Join(lines, "\n  ")
	}
	if hint == "" && s.EndpointsFrom == "default" {
		hint = "no endpoint was given: set --endpoints or ETCDCTL_ENDPOINTS"
	}
	return &Error{Code: code, Err: errors.New(msg), Hint: hint, Endpoint: strings.Join(cfg.Endpoints, ",")}
}

type finding struct {
	cause, hint string
	code        Code
}

// probe finds out what stands at an endpoint, by the same steps as a client:
// name, connection, TLS, HTTP/2.
func probe(ctx context.Context, endpoint string, tc *tls.Config, timeout time.Duration) finding {
	if timeout <= 0 {
		timeout = 2 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	network, addr, wantTLS, err := address(endpoint, tc != nil)
	if err != nil {
		return finding{cause: err.Error(), hint: "an endpoint is host:port or http(s)://host:port", code: Config}
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return dialFinding(err, timeout)
	}
	defer conn.Close()
	if dl, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(dl); err != nil {
			return finding{cause: err.Error()}
		}
	}
	if !wantTLS {
		return probePlain(conn)
	}
	host, _, _ := net.SplitHostPort(addr)
	return probeTLS(ctx, conn, host, addr, tc)
}

// address splits an endpoint the way clientv3 reads it.
func address(endpoint string, haveTLS bool) (network, addr string, wantTLS bool, err error) {
	if !strings.Contains(endpoint, "://") {
		host, port, err := net.SplitHostPort(endpoint)
		if n, perr := strconv.Atoi(port); err != nil || perr != nil || n < 0 || n > 65535 || host == "" {
			return "", "", false, errors.New("not an address")
		}
		return "tcp", endpoint, haveTLS, nil
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return "", "", false, err
	}
	if strings.HasPrefix(u.Scheme, "http") && u.Hostname() == "" {
		return "", "", false, errors.New("names no host")
	}
	switch u.Scheme {
	case "http":
		return "tcp", withPort(u, "80"), false, nil
	case "https":
		return "tcp", withPort(u, "443"), true, nil
	case "unix":
		return "unix", u.Host + u.Path, false, nil
	case "unixs":
		return "unix", u.Host + u.Path, true, nil
	}
	return "", "", false, fmt.Errorf("unknown scheme %q", u.Scheme)
}

func withPort(u *url.URL, port string) string {
	if u.Port() != "" {
		port = u.Port()
	}
	return net.JoinHostPort(u.Hostname(), port)
}

func dialFinding(err error, timeout time.Duration) finding {
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		return finding{cause: fmt.Sprintf("host name %q cannot be resolved (%s)", dns.Name, dns.Err)}
	case isRefused(err):
		return finding{cause: "connection refused: nothing listens there", hint: "is etcd running on that host and port (client port, usually 2379)?"}
	case isTimeout(err):
		return finding{cause: fmt.Sprintf("no answer within %s", timeout), hint: "host down, or a firewall drops the packets; --dial-timeout allows for a slow network", code: Timeout}
	}
	return finding{cause: err.Error()}
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &ne) && ne.Timeout()
}

// http2Hello is what a client of HTTP/2 sends first: preface and empty settings.
const http2Hello = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// probePlain speaks HTTP/2 without TLS and reads what comes back.
func probePlain(conn net.Conn) finding {
	if _, err := io.WriteString(conn, http2Hello); err != nil {
		return finding{cause: "the connection is closed at once: " + err.Error()}
	}
	b := make([]byte, 64)
	n, err := io.ReadAtLeast(conn, b, 9)
	b = b[:n]
	switch {
	case n >= 1 && b[0] == 0x15: // a TLS alert record
		return finding{cause: "the server speaks TLS, the client does not", hint: "use https:// in --endpoints, and --cacert (with --cert and --key if the server wants a client certificate)", code: Config}
	case n >= 9 && b[3] == 4: // a SETTINGS frame
		return finding{cause: "a gRPC server answers, but the call did not go through", hint: "try again; if it stays, look at the member's log"}
	case strings.HasPrefix(string(b), "HTTP/1"):
		return finding{cause: "an HTTP/1 server answers, not etcd's client port", hint: "this may be the peer port (usually 2380) or the metrics port; the client port is usually 2379", code: Config}
	case n == 0 && err != nil && !isTimeout(err):
		return finding{cause: "the server closes the connection without a word (a TLS server does that to a plain client)",
			hint: "use https:// in --endpoints, with --cacert, --cert and --key; or this is not etcd's client port", code: Config}
	case isTimeout(err):
		return finding{cause: "connected, but the server does not answer", hint: "the member may be stopped or overloaded", code: Timeout}
	}
	return finding{cause: "what answers there is not etcd", code: Config}
}

func probeTLS(ctx context.Context, conn net.Conn, host, addr string, tc *tls.Config) finding {
	if tc == nil {
		tc = &tls.Config{}
	}
	c := tc.Clone()
	if c.ServerName == "" {
		c.ServerName = host
	}
	c.NextProtos = []string{"h2"}
	var server []*x509.Certificate
	// Verification is done by hand so that the certificate can be described.
	c.InsecureSkipVerify = true
	var wanted bool
	getCert := c.GetClientCertificate
	c.GetClientCertificate = func(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		wanted = true
		if getCert != nil {
			return getCert(r)
		}
		if len(c.Certificates) > 0 {
			return &c.Certificates[0], nil
		}
		return &tls.Certificate{}, nil
	}
	haveCert := len(c.Certificates) > 0 || getCert != nil
	t := tls.Client(conn, c)
	err := t.HandshakeContext(ctx)
	server = t.ConnectionState().PeerCertificates
	if !tc.InsecureSkipVerify && len(server) > 0 {
		if f, bad := certFinding(server, c.ServerName, tc.RootCAs); bad {
			return f
		}
	}
	if err != nil {
		var rec tls.RecordHeaderError
		switch {
		case errors.As(err, &rec):
			return finding{cause: "the server does not speak TLS", hint: "use http:// in --endpoints and leave --cert and --cacert away", code: Config}
		case wanted && !haveCert:
			return clientCert()
		case isTimeout(err):
			return finding{cause: "connected, but no TLS handshake in time", code: Timeout}
		case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
			return tlsRefused(ctx, conn)
		}
		return finding{cause: "TLS handshake failed: " + err.Error(), code: Config}
	}
	// With TLS 1.3 a server refuses a client certificate only after the
	// handshake: the first read tells.
	_, _ = io.WriteString(t, http2Hello) // a failed write shows in the read
	b := make([]byte, 9)
	_, err = io.ReadFull(t, b)
	var alert tls.AlertError
	var op *net.OpError
	switch {
	case err == nil && b[3] == 4:
		return finding{cause: "a gRPC server answers, but the call did not go through", hint: "try again; if it stays, look at the member's log"}
	case wanted && !haveCert:
		return clientCert()
	case errors.As(err, &alert), errors.As(err, &op) && op.Op == "remote error":
		return finding{cause: "the server does not accept the client certificate: " + err.Error(),
			hint: "is --cert signed by the CA that the server trusts (its --trusted-ca-file), still valid, and made for client authentication?", code: Auth}
	case t.ConnectionState().NegotiatedProtocol != "h2" && peerPort(addr, tc):
		return finding{cause: "this is a peer port, not a client port", hint: "the client port is usually 2379", code: Config}
	}
	return finding{cause: "TLS works, but what answers is not etcd's client port", hint: "this may be the peer port (usually 2380); the client port is usually 2379", code: Config}
}

// tlsRefused asks a server that hung up on TLS whether it speaks plain HTTP/2.
func tlsRefused(ctx context.Context, old net.Conn) finding {
	var d net.Dialer
	conn, err := d.DialContext(ctx, old.RemoteAddr().Network(), old.RemoteAddr().String())
	if err == nil {
		defer conn.Close()
		if dl, ok := ctx.Deadline(); ok {
			err = conn.SetDeadline(dl)
		}
		b := make([]byte, 9)
		if _, werr := io.WriteString(conn, http2Hello); err == nil && werr == nil {
			if _, err := io.ReadFull(conn, b); err == nil && (b[3] == 4 || string(b[:4]) == "HTTP") {
				return finding{cause: "the server does not speak TLS", hint: "use http:// in --endpoints and leave --cert and --cacert away", code: Config}
			}
		}
	}
	return finding{cause: "the server closes the connection during the TLS handshake", hint: "it may not speak TLS at all: try http://", code: Config}
}

func clientCert() finding {
	return finding{cause: "the server wants a client certificate", hint: "give --cert and --key (of a kubeadm host: /etc/kubernetes/pki/etcd/healthcheck-client.crt and .key)", code: Auth}
}

// peerPort asks for what only a peer port has.
func peerPort(addr string, tc *tls.Config) bool {
	c := tc.Clone()
	c.InsecureSkipVerify = true
	h := http.Client{Timeout: time.Second, Transport: &http.Transport{TLSClientConfig: c}}
	r, err := h.Get("https://" + addr + "/members")
	if err != nil {
		return false
	}
	defer r.Body.Close()
	return r.StatusCode == http.StatusOK && r.Header.Get("X-Etcd-Cluster-Id") != ""
}

// certFinding verifies the server's chain and says what is wrong with it.
func certFinding(chain []*x509.Certificate, name string, roots *x509.CertPool) (finding, bool) {
	leaf := chain[0]
	opt := x509.VerifyOptions{Roots: roots, DNSName: name, Intermediates: x509.NewCertPool()}
	for _, c := range chain[1:] {
		opt.Intermediates.AddCert(c)
	}
	_, err := leaf.Verify(opt)
	if err == nil {
		return finding{}, false
	}
	f := finding{code: Config}
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	now := time.Now()
	switch {
	case now.After(leaf.NotAfter):
		f.cause = fmt.Sprintf("the server's certificate expired on %s (issued by %q)", leaf.NotAfter.UTC().Format(time.RFC3339), leaf.Issuer.String())
		f.hint = "renew the server's certificate"
	case now.Before(leaf.NotBefore):
		f.cause = fmt.Sprintf("the server's certificate is not valid before %s; this machine's clock says %s", leaf.NotBefore.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
		f.hint = "check the clocks"
	case errors.As(err, &host):
		f.cause = fmt.Sprintf("the server's certificate is not for %q; it is for %s", name, strings.Join(certNames(leaf), ", "))
		f.hint = "use one of these names in --endpoints"
	case errors.As(err, &unknown):
		f.cause = fmt.Sprintf("the server's certificate is signed by another CA: issuer %q, subject %q, valid %s to %s", leaf.Issuer.String(), leaf.Subject.String(),
			leaf.NotBefore.UTC().Format(time.DateOnly), leaf.NotAfter.UTC().Format(time.DateOnly))
		f.hint = "give the CA that signed it with --cacert"
	case errors.As(err, &invalid):
		f.cause = fmt.Sprintf("the server's certificate (subject %q) is not usable: %v", leaf.Subject.String(), err)
	default:
		f.cause = "the server's certificate does not verify: " + err.Error()
	}
	return f, true
}

func certNames(c *x509.Certificate) []string {
	names := append([]string(nil), c.DNSNames...)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	if len(names) == 0 {
		names = []string{"no name at all"}
	}
	return names
}
