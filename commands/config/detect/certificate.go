package detect

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
)

// soon is how long before its end a certificate is worth a warning.
const soon = 30 * 24 * time.Hour

const (
	serverAuth = x509.ExtKeyUsageServerAuth
	clientAuth = x509.ExtKeyUsageClientAuth
)

// Certificate is the first certificate of a file.
type Certificate struct {
	Role      string    `json:"role"` // cacert, cert (of the client), or server
	File      string    `json:"file"`
	Subject   string    `json:"subject"`
	Issuer    string    `json:"issuer"`
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"`
	Names     []string  `json:"names,omitempty"` // hosts that a server's is for

	chain []*x509.Certificate
	pem   []byte
}

func (c Certificate) String() string {
	return fmt.Sprintf("%s: %s %s, valid until %s", c.Role, c.File, c.Subject, c.NotAfter.UTC().Format(time.RFC3339))
}

// Certificates looks at the files of a client; "" for those that there are none of.
func Certificates(ca, cert, key string, now time.Time) ([]Certificate, []Problem) {
	t := &tree{root: "/", now: now}
	found, problems := []Certificate{}, []Problem{}
	if ca != "" {
		c, p := t.load("cacert", ca)
		problems = append(problems, p...)
		if c != nil {
			found, problems = append(found, *c), append(problems, c.dates(now, "")...)
		}
	}
	if cert != "" && key != "" {
		c, p := t.checkPair(pair{cert: cert, key: key}, "", "")
		problems = append(problems, p...)
		if c != nil {
			found = append(found, *c)
		}
	}
	return found, problems
}

// load reads the certificates of a file. Its path is the host's, what it returns has
// ours.
func (t *tree) load(role, p string) (*Certificate, []Problem) {
	b, err := t.read(p)
	if err != nil {
		return nil, []Problem{t.problem(p, err, "")}
	}
	c := &Certificate{Role: role, File: t.shown(p), pem: b}
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		x, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, []Problem{{File: c.File, Message: "holds a certificate that cannot be read: " + err.Error()}}
		}
		c.chain = append(c.chain, x)
	}
	if len(c.chain) == 0 {
		return nil, []Problem{{File: c.File, Message: "holds no PEM certificate"}}
	}
	x := c.chain[0]
	c.Subject, c.Issuer, c.NotBefore, c.NotAfter = x.Subject.String(), x.Issuer.String(), x.NotBefore.UTC(), x.NotAfter.UTC()
	if role == "server" {
		c.Names = slices.Clone(x.DNSNames)
		for _, ip := range x.IPAddresses {
			c.Names = append(c.Names, ip.String())
		}
	}
	return c, nil
}

// checkPair says all that is wrong with a client's certificate and key. ca is the file
// the server trusts; "" when it is not known.
func (t *tree) checkPair(p pair, ca, renew string) (*Certificate, []Problem) {
	c, problems := t.load("cert", p.cert)
	if c != nil {
		problems = append(problems, c.dates(t.now, renew)...)
		x := c.chain[0]
		if len(x.ExtKeyUsage)+len(x.UnknownExtKeyUsage) > 0 && !slices.Contains(x.ExtKeyUsage, clientAuth) && !slices.Contains(x.ExtKeyUsage, x509.ExtKeyUsageAny) {
			problems = append(problems, Problem{File: c.File, Message: "is not made for client authentication", Hint: "use a certificate with the extended key usage client authentication"})
		} else if ca != "" {
			if trusted, _ := t.load("cacert", ca); trusted != nil {
				if err := c.signedBy(trusted, t.now, clientAuth); err != nil {
					problems = append(problems, Problem{File: c.File, Message: fmt.Sprintf("is not signed by %s, which the server trusts", trusted.File), Hint: "use a certificate of that CA"})
				}
			}
		}
	}
	if p.key == "" {
		return c, append(problems, Problem{File: t.shown(p.cert), Message: "has no key named with it", Hint: "give one with --key"})
	}
	b, err := t.read(p.key)
	switch {
	case err != nil:
		return c, append(problems, t.problem(p.key, err, "the key belongs to "+t.shown(p.cert)))
	case c == nil:
		return nil, problems
	}
	if _, err := tls.X509KeyPair(c.pem, b); err != nil {
		msg := strings.TrimPrefix(err.Error(), "tls: ")
		if strings.Contains(msg, "does not match") {
			msg = "the key does not belong to " + c.File
		}
		problems = append(problems, Problem{File: t.shown(p.key), Message: msg, Hint: "certificate and key have to come from one renewal"})
	}
	return c, problems
}

// dates says whether the certificate is valid at a time, and for how long. renew is how
// to renew it.
func (c *Certificate) dates(now time.Time, renew string) []Problem {
	if renew == "" {
		renew = "renew it"
	}
	day := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	switch {
	case now.After(c.NotAfter):
		return []Problem{{File: c.File, Message: "expired on " + day(c.NotAfter), Hint: renew}}
	case now.Before(c.NotBefore):
		return []Problem{{File: c.File, Message: "is not valid before " + day(c.NotBefore) + "; this machine's clock says " + day(now), Hint: "check the clock"}}
	case c.NotAfter.Sub(now) < soon:
		return []Problem{{File: c.File, Message: fmt.Sprintf("expires on %s, in %d days", day(c.NotAfter), int(c.NotAfter.Sub(now).Hours()/24)), Hint: renew, Warning: true}}
	}
	return nil
}

// signedBy verifies a certificate whatever its dates.
func (c *Certificate) signedBy(ca *Certificate, now time.Time, usage x509.ExtKeyUsage) error {
	if now.Before(c.NotBefore) || now.After(c.NotAfter) {
		now = c.NotBefore.Add(time.Second)
	}
	o := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}}
	for _, x := range ca.chain {
		o.Roots.AddCert(x)
	}
	for _, x := range c.chain[1:] {
		o.Intermediates.AddCert(x)
	}
	_, err := c.chain[0].Verify(o)
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		return nil // the CA's own dates are told by themselves
	}
	return err
}

func (c *Certificate) selfSigned() bool {
	x := c.chain[0]
	return slices.Equal(x.RawSubject, x.RawIssuer) && x.CheckSignature(x.SignatureAlgorithm, x.RawTBSCertificate, x.Signature) == nil
}

// covers tells whether a server's certificate is for the host of a URL.
func (c *Certificate) covers(endpoint string) bool {
	u, err := url.Parse(endpoint)
	return err == nil && (strings.HasPrefix(u.Scheme, "unix") || c.chain[0].VerifyHostname(u.Hostname()) == nil)
}

// socket tells whether a path is one.
func (t *tree) socket(p string) bool {
	st, err := os.Stat(t.real(p))
	t.see(p)
	return err == nil && st.Mode()&fs.ModeSocket != 0
}
