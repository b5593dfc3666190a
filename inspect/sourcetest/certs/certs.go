// Package certs makes certificates for tests.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Leaf says what to issue. The zero value is a certificate for a client, valid from
// yesterday for a year.
type Leaf struct {
	Name   string
	Hosts  []string // with any, it is for a server
	Client bool     // with hosts, it is for a client too
	From   time.Time
	Until  time.Time
}

// New makes an authority.
func New(tb testing.TB, name string) *Authority {
	tb.Helper()
	a := &Authority{key: newKey(tb)}
	t := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().AddDate(-2, 0, 0), NotAfter: time.Now().AddDate(10, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &a.key.PublicKey, a.key)
	must(tb, err)
	a.cert, err = x509.ParseCertificate(der)
	must(tb, err)
	return a
}

// Save writes the authority's own certificate.
func (a *Authority) Save(tb testing.TB, path string) {
	tb.Helper()
	write(tb, path, "CERTIFICATE", a.cert.Raw)
}

// Issue writes a certificate to path.crt and its key to path.key.
func (a *Authority) Issue(tb testing.TB, path string, l Leaf) {
	tb.Helper()
	k := newKey(tb)
	t := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: l.Name}, NotBefore: l.From, NotAfter: l.Until, KeyUsage: x509.KeyUsageDigitalSignature}
	if l.From.IsZero() {
		t.NotBefore = time.Now().AddDate(0, 0, -1)
	}
	if l.Until.IsZero() {
		t.NotAfter = time.Now().AddDate(1, 0, 0)
	}
	for _, h := range l.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, h)
		}
	}
	if len(l.Hosts) > 0 {
		t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if len(l.Hosts) == 0 || l.Client {
		t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, &k.PublicKey, a.key)
	must(tb, err)
	keyDER, err := x509.MarshalECPrivateKey(k)
	must(tb, err)
	write(tb, path+".crt", "CERTIFICATE", der)
	write(tb, path+".key", "EC PRIVATE KEY", keyDER)
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(tb, err)
	return k
}

func write(tb testing.TB, path, kind string, der []byte) {
	tb.Helper()
	must(tb, os.MkdirAll(filepath.Dir(path), 0o700))
	must(tb, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
