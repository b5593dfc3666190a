package cli_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/config"
)

// authority signs certificates for a test.
type authority struct {
	dir, name string
	cert      *x509.Certificate
	key       *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir(), name: name}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(48 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.key = newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	writePEM(t, a.ca(), "CERTIFICATE", der)
	return a
}

func (a *authority) ca() string { return filepath.Join(a.dir, "ca.crt") }

// issue returns certificate and key files for a server at host, or for a client.
func (a *authority) issue(t *testing.T, file, host string, until time.Time) (cert, key string) {
	t.Helper()
	k := newKey(t)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: file}, NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, KeyUsage: x509.KeyUsageDigitalSignature}
	if ip := net.ParseIP(host); ip != nil {
		tmpl.IPAddresses = []net.IP{ip}
	} else {
		tmpl.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &k.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(a.dir, file+".crt"), filepath.Join(a.dir, file+".key")
	writePEM(t, cert, "CERTIFICATE", der)
	writePEM(t, key, "EC PRIVATE KEY", keyDER)
	return cert, key
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// startEtcd starts a real etcd on loopback and returns the addresses of its
// client and peer ports. A zero TLSInfo means no TLS.
func startEtcd(t *testing.T, client, peer transport.TLSInfo) (clientAddr, peerAddr string) {
	t.Helper()
	scheme := func(i transport.TLSInfo) string {
		if i.Empty() {
			return "http"
		}
		return "https"
	}
	c := embed.NewConfig()
	c.Dir = t.TempDir()
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	c.UnsafeNoFsync, c.TickMs, c.ElectionMs = true, 10, 100
	c.BcryptCost = 4 // the least there is: the cost is the server's to set, and not what is tested
	c.ClientTLSInfo, c.PeerTLSInfo = client, peer
	c.ListenClientUrls = []url.URL{{Scheme: scheme(client), Host: "127.0.0.1:0"}}
	c.ListenPeerUrls = []url.URL{{Scheme: scheme(peer), Host: "127.0.0.1:0"}}
	c.AdvertiseClientUrls = c.ListenClientUrls
	// A lone member reaches nobody by this address.
	c.AdvertisePeerUrls = []url.URL{{Scheme: scheme(peer), Host: "127.0.0.1:1"}}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	e, err := embed.StartEtcd(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(30 * time.Second):
		t.Fatal("etcd did not start")
	}
	return e.Clients[0].Addr().String(), e.Peers[0].Addr().String()
}

func settings(endpoints ...string) config.Settings {
	return config.Settings{Endpoints: endpoints, DialTimeout: 2 * time.Second, CommandTimeout: 5 * time.Second, InsecureTransport: true, EndpointsFrom: "flag"}
}

func dial(s config.Settings) error {
	c, err := cli.Dial(context.Background(), &s, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), s.CommandTimeout)
	defer cancel()
	_, err = c.Get(ctx, "x")
	return err
}

func TestConnectionMistakes(t *testing.T) {
	t.Parallel()
	good, other := newAuthority(t, "good-ca"), newAuthority(t, "other-ca")
	year := time.Now().Add(24 * time.Hour)
	server := func(file, host string, until time.Time, clientCert bool) string {
		cert, key := good.issue(t, file, host, until)
		info := transport.TLSInfo{CertFile: cert, KeyFile: key, ClientCertAuth: clientCert}
		if clientCert {
			info.TrustedCAFile = good.ca()
		}
		addr, _ := startEtcd(t, info, transport.TLSInfo{})
		return addr
	}
	plain, plainPeer := startEtcd(t, transport.TLSInfo{}, transport.TLSInfo{})
	peerCert, peerKey := good.issue(t, "peer", "127.0.0.1", year)
	_, tlsPeer := startEtcd(t, transport.TLSInfo{}, transport.TLSInfo{CertFile: peerCert, KeyFile: peerKey, TrustedCAFile: good.ca()})
	tlsAddr := server("server", "127.0.0.1", year, false)
	mutual := server("mutual", "127.0.0.1", year, true)
	wrongName := server("elsewhere", "etcd-1.example.org", year, false)
	expired := server("expired", "127.0.0.1", time.Now().Add(-time.Hour), false)
	clientCert, clientKey := good.issue(t, "client", "client", year)
	otherCert, otherKey := other.issue(t, "client", "client", year)

	closed := listen(t)
	closed.Close()
	silent := listen(t)
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)

	for _, c := range []struct {
		name string
		set  func(*config.Settings)
		addr string
		code cli.Code
		want []string
	}{
		{"plain", nil, "http://" + plain, 0, nil},
		{"TLS", func(s *config.Settings) { s.CACert = good.ca() }, "https://" + tlsAddr, 0, nil},
		{"TLS without a scheme", func(s *config.Settings) { s.CACert = good.ca() }, tlsAddr, 0, nil},
		{"client certificate", func(s *config.Settings) { s.CACert, s.Cert, s.Key = good.ca(), clientCert, clientKey }, "https://" + mutual, 0, nil},
		{"skip verify", func(s *config.Settings) { s.InsecureSkipTLSVerify = true }, "https://" + expired, 0, nil},
		{"refused", nil, closed.Addr().String(), cli.Unavailable, []string{"connection refused", closed.Addr().String()}},
		{"no such host", nil, "http://nope.invalid:2379", cli.Unavailable, []string{`host name "nope.invalid" cannot be resolved`}},
		{"plain client, TLS server", nil, "http://" + tlsAddr, cli.Config, []string{"the server"}},
		{"TLS client, plain server", func(s *config.Settings) { s.CACert = good.ca() }, "https://" + plain, cli.Config, []string{"does not speak TLS"}},
		{"wrong CA", func(s *config.Settings) { s.CACert = other.ca() }, "https://" + tlsAddr, cli.Config, []string{"signed by another CA", "CN=good-ca", year.UTC().Format(time.DateOnly)}},
		{"wrong name", func(s *config.Settings) { s.CACert = good.ca() }, "https://" + wrongName, cli.Config, []string{`not for "127.0.0.1"`, "etcd-1.example.org"}},
		{"expired", func(s *config.Settings) { s.CACert = good.ca() }, "https://" + expired, cli.Config, []string{"certificate expired on "}},
		{"client certificate wanted", func(s *config.Settings) { s.CACert = good.ca() }, "https://" + mutual, cli.Auth, []string{"wants a client certificate"}},
		{"client certificate of another CA", func(s *config.Settings) { s.CACert, s.Cert, s.Key = good.ca(), otherCert, otherKey }, "https://" + mutual, cli.Auth, []string{"does not accept the client certificate"}},
		{"peer port", nil, "http://" + plainPeer, cli.Config, []string{"peer port"}},
		{"TLS peer port", func(s *config.Settings) { s.CACert, s.Cert, s.Key = good.ca(), clientCert, clientKey }, "https://" + tlsPeer, cli.Config, []string{"peer port"}},
		{"silent", nil, silent.Addr().String(), cli.Timeout, []string{"does not answer"}},
		{"web server", nil, web.URL, cli.Config, []string{"HTTP/1 server answers"}},
		{"two endpoints down", nil, closed.Addr().String() + "," + silent.Addr().String(), cli.Timeout, []string{"no endpoint answers", "refused", "does not answer"}},
		{"one of two down", nil, closed.Addr().String() + "," + plain, 0, nil},
		{"CA file missing", func(s *config.Settings) { s.CACert = "/does/not/exist" }, plain, cli.Config, []string{"setting cacert", "/does/not/exist"}},
		{"CA file is none", func(s *config.Settings) { s.CACert = clientKey }, "https://" + tlsAddr, cli.Config, []string{"setting cacert"}},
		{"certificate without its key", func(s *config.Settings) { s.Cert, s.Key = clientCert, otherKey }, "https://" + tlsAddr, cli.Config, []string{"setting cert"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := settings(strings.Split(c.addr, ",")...)
			if c.set != nil {
				c.set(&s)
			}
			start := time.Now()
			err := dial(s)
			if c.code == 0 {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil {
				t.Fatal("connected")
			}
			d := cli.Describe(err)
			if d.Code != c.code {
				t.Errorf("code %d, want %d: %v", d.Code, c.code, err)
			}
			text := err.Error() + " | " + d.Hint
			for _, w := range c.want {
				if !strings.Contains(text, w) {
					t.Errorf("%q lacks %q", text, w)
				}
			}
			if took := time.Since(start); took > 15*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func TestAuthMistakes(t *testing.T) {
	t.Parallel()
	addr, _ := startEtcd(t, transport.TLSInfo{}, transport.TLSInfo{})
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for _, step := range []func() error{
		func() error { _, err := c.UserAdd(ctx, "root", "rootpw"); return err },
		func() error { _, err := c.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := c.UserAdd(ctx, "nobody", "pw"); return err },
		func() error { _, err := c.AuthEnable(ctx); return err },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	for user, want := range map[string]string{"": "give --user", "root:wrong": "check --user and its password", "nobody:pw": "roles do not allow", "root:rootpw": ""} {
		s := settings(addr)
		s.User = user
		err := dial(s)
		if want == "" {
			if err != nil {
				t.Errorf("%s: %v", user, err)
			}
			continue
		}
		if err == nil {
			t.Errorf("%s: allowed", user)
			continue
		}
		if d := cli.Describe(err); d.Code != cli.Auth || !strings.Contains(d.Hint, want) {
			t.Errorf("%s: code %d, hint %q, want 22, %q (%v)", user, d.Code, d.Hint, want, err)
		}
	}
	// A token that another client got by its password lets in without one.
	r, err := pb.NewAuthClient(c.ActiveConnection()).Authenticate(ctx, &pb.AuthenticateRequest{Name: "root", Password: "rootpw"})
	if err != nil {
		t.Fatal(err)
	}
	s := settings(addr)
	s.AuthToken = r.GetToken()
	if err := dial(s); err != nil {
		t.Errorf("token: %v", err)
	}
	s.AuthToken = "bogus.1"
	if d := cli.Describe(dial(s)); d.Code != cli.Auth {
		t.Errorf("bogus token: %+v", d)
	}
}

// With --read-only nothing that changes the cluster leaves this process; reads
// go through.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	addr, _ := startEtcd(t, transport.TLSInfo{}, transport.TLSInfo{})
	s := settings(addr)
	s.ReadOnly = true
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c, err := cli.Dial(ctx, &s, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	before, err := c.Get(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	put, get := clientv3.OpPut("k", "v"), clientv3.OpGet("k")
	for name, call := range map[string]func() error{
		"put":    func() error { _, err := c.Put(ctx, "k", "v"); return err },
		"delete": func() error { _, err := c.Delete(ctx, "k"); return err },
		"txn":    func() error { _, err := c.Txn(ctx).Then(put).Commit(); return err },
		"else":   func() error { _, err := c.Txn(ctx).Then(get).Else(put).Commit(); return err },
		"nested": func() error {
			_, err := c.Txn(ctx).Then(clientv3.OpTxn(nil, []clientv3.Op{put}, nil)).Commit()
			return err
		},
		"compact": func() error { _, err := c.Compact(ctx, 1); return err },
		"grant":   func() error { _, err := c.Grant(ctx, 10); return err },
		"revoke":  func() error { _, err := c.Revoke(ctx, 1); return err },
		"keep":    func() error { _, err := c.KeepAliveOnce(ctx, 1); return err },
		"add":     func() error { _, err := c.MemberAdd(ctx, []string{"http://127.0.0.1:2"}); return err },
		"remove":  func() error { _, err := c.MemberRemove(ctx, 1); return err },
		"defrag":  func() error { _, err := c.Defragment(ctx, addr); return err },
		"disarm": func() error {
			_, err := c.AlarmDisarm(ctx, &clientv3.AlarmMember{MemberID: 1, Alarm: pb.AlarmType_NOSPACE})
			return err
		},
		"move":     func() error { _, err := c.MoveLeader(ctx, 1); return err },
		"auth":     func() error { _, err := c.AuthEnable(ctx); return err },
		"user":     func() error { _, err := c.UserAdd(ctx, "u", "p"); return err },
		"role":     func() error { _, err := c.RoleAdd(ctx, "r"); return err },
		"passwd":   func() error { _, err := c.UserChangePassword(ctx, "u", "p"); return err },
		"downgrde": func() error { _, err := c.Downgrade(ctx, clientv3.DowngradeEnable, "3.6"); return err },
	} {
		err := call()
		if err == nil {
			t.Errorf("%s went through", name)
			continue
		}
		if d := cli.Describe(err); d.Code != cli.Refused {
			t.Errorf("%s: code %d: %v", name, d.Code, err)
		}
	}
	for name, call := range map[string]func() error{
		"get": func() error { _, err := c.Get(ctx, "k"); return err },
		"read txn": func() error {
			_, err := c.Txn(ctx).Then(get, clientv3.OpTxn(nil, []clientv3.Op{get}, nil)).Commit()
			return err
		},
		"status":   func() error { _, err := c.Status(ctx, addr); return err },
		"members":  func() error { _, err := c.MemberList(ctx); return err },
		"alarms":   func() error { _, err := c.AlarmList(ctx); return err },
		"leases":   func() error { _, err := c.Leases(ctx); return err },
		"snapshot": func() error { r, err := c.Snapshot(ctx); return errors.Join(err, r.Close()) },
		"watch":    func() error { w, cancel := context.WithCancel(ctx); c.Watch(w, "k"); cancel(); return nil },
	} {
		if err := call(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	after, err := c.Get(ctx, "x")
	if err != nil || after.Header.Revision != before.Header.Revision {
		t.Errorf("revision %d, before %d, %v", after.Header.GetRevision(), before.Header.Revision, err)
	}
}
