// Package seal opens the values that a kube-apiserver encrypted at rest.
//
// A sealed value is "k8s:enc:", the provider, ":v1:", the name of the key, a colon
// and the provider's bytes. The formats are those of k8s.io/apiserver's value
// transformers, which are the oracle of the tests.
package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/crypto/nacl/secretbox"
)

const prefix = "k8s:enc:"

// Errors for errors.Is; those returned name the provider and the key.
var (
	ErrNoKey    = errors.New("no key for this value")           // the configuration has none, or there is none
	ErrWrongKey = errors.New("the key does not open the value") // a key of this name is there, but it is another one
	ErrTwice    = errors.New("the value is sealed twice")
)

// KMSPlugin opens values whose key is held by a key management service.
type KMSPlugin interface {
	// Open returns the plain value. header names the plugin, body is what follows
	// the header, and key the whole key in etcd, which v2 authenticates.
	Open(header Header, body, key []byte) ([]byte, error)
}

// Header is the readable part of a sealed value.
type Header struct {
	Provider string // AESCBC, AESGCM, Secretbox, KMS, or a name this package does not know
	Version  string // "v1"; KMS also "v2"
	// KeyName is the name of the key or the KMS plugin. Where no configured name
	// fits it is a guess: names may contain colons, and so may the bytes behind.
	KeyName string
}

// String returns "aescbc key1".
func (h Header) String() string { return strings.TrimSpace(h.Provider + " " + h.KeyName) }

// IsSealed tells whether value is encrypted at rest.
func IsSealed(value []byte) bool { return bytes.HasPrefix(value, []byte(prefix)) }

// split takes the header's fixed part off: the rest begins with the key name.
func split(value []byte) (h Header, rest []byte, ok bool) {
	if !IsSealed(value) {
		return h, nil, false
	}
	rest = value[len(prefix):]
	provider, rest, ok := bytes.Cut(rest, []byte{':'})
	if !ok || len(provider) > 32 || !isName(provider) {
		return h, value[len(prefix):], true
	}
	version, after, ok := bytes.Cut(rest, []byte{':'})
	h.Provider = string(provider)
	if !ok || len(version) > 8 || !isName(version) {
		return h, rest, true
	}
	h.Version = string(version)
	return h, after, true
}

// ParseHeader returns the header of a sealed value; ok is false when value is not sealed.
// The key name is the one of c that fits, else a guess. c may be nil.
func ParseHeader(value []byte, c *Config) (h Header, ok bool) {
	h, rest, ok := split(value)
	if !ok {
		return h, false
	}
	best := ""
	if c != nil {
		for _, cand := range c.candidates(h, rest, "") {
			if len(cand.name) > len(best) {
				best = cand.name
			}
		}
	}
	if best == "" {
		best = guessName(h.Provider, rest)
	}
	h.KeyName = best
	return h, true
}

// guessName returns the longest readable name behind which enough bytes of the
// right number are left.
func guessName(provider string, rest []byte) string {
	name := ""
	for i, c := range rest {
		if c == ':' && i > 0 && rest[i-1] != ':' && fits(provider, len(rest)-i-1) {
			name = string(rest[:i])
		}
		if !isNameByte(c) || i > 253 {
			break
		}
	}
	return name
}

// fits tells whether n bytes can be a provider's output.
func fits(provider string, n int) bool {
	switch provider {
	case AESCBC:
		return n >= 2*aes.BlockSize && n%aes.BlockSize == 0
	case AESGCM:
		return n >= 12+16
	case Secretbox:
		return n >= 24+secretbox.Overhead
	}
	return n > 0
}

func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._:/@+", c) >= 0
}

func isName(b []byte) bool {
	return len(b) > 0 && !slices.ContainsFunc(b, func(c byte) bool { return !isNameByte(c) })
}

// candidate is a configured key whose name fits a value.
type candidate struct {
	name   string
	secret []byte
	body   []byte
	kms    bool
}

// candidates returns the keys whose name fits: first those that the apiserver
// would try for resource, in each part longer names first, otherwise in the order
// of the file.
func (c *Config) candidates(h Header, rest []byte, resource string) []candidate {
	var own, other []candidate
	use := c.used(resource)
	for i := range c.Rules {
		r := &c.Rules[i]
		list := &other
		if slices.Contains(use, i) {
			list = &own
		}
		for _, p := range r.Providers {
			if p.Type != h.Provider {
				continue
			}
			if p.Type == KMS {
				if after, ok := bytes.CutPrefix(rest, []byte(p.KMS.Name+":")); ok && p.KMS.APIVersion == h.Version {
					*list = append(*list, candidate{name: p.KMS.Name, body: after, kms: true})
				}
				continue
			}
			for _, k := range p.Keys {
				if after, ok := bytes.CutPrefix(rest, []byte(k.Name+":")); ok && h.Version == "v1" {
					*list = append(*list, candidate{name: k.Name, secret: k.Secret, body: after})
				}
			}
		}
	}
	longest := func(a, b candidate) int { return len(b.name) - len(a.name) }
	slices.SortStableFunc(own, longest)
	slices.SortStableFunc(other, longest)
	return append(own, other...)
}

// Open opens a sealed value. key is the whole key in etcd as the apiserver sees
// it, with which aesgcm values are authenticated; resource ("secrets",
// "widgets.example.org", or empty) only says which keys to try first. c and
// plugin may be nil. The header is filled in whatever the error.
func Open(c *Config, plugin KMSPlugin, resource string, key, value []byte) ([]byte, Header, error) {
	h, rest, ok := split(value)
	if !ok {
		return value, h, nil
	}
	var list []candidate
	if c != nil {
		list = c.candidates(h, rest, resource)
	}
	if len(list) == 0 {
		h.KeyName = guessName(h.Provider, rest)
		if h.Provider == KMS && plugin != nil && h.KeyName != "" {
			list = []candidate{{name: h.KeyName, body: rest[len(h.KeyName)+1:], kms: true}}
		} else {
			return nil, h, noKey(c, h)
		}
	}
	h.KeyName = list[0].name
	var first error
	for _, cand := range list {
		plain, err := cand.open(h, plugin, key)
		if err == nil {
			h.KeyName = cand.name
			if IsSealed(plain) {
				inner, _ := ParseHeader(plain, c)
				return nil, h, fmt.Errorf("open with %s: %w, inside with %s", h, ErrTwice, inner)
			}
			return plain, h, nil
		}
		if first == nil {
			first = fmt.Errorf("open with %s: %w", Header{Provider: h.Provider, KeyName: cand.name}, err)
		}
	}
	return nil, h, first
}

func noKey(c *Config, h Header) error {
	switch {
	case h.Provider == "" || h.Version == "":
		return fmt.Errorf("sealed, but the header is damaged: %w", ErrNoKey)
	case h.Provider == KMS:
		return fmt.Errorf("sealed by the KMS plugin %q (%s): %w", h.KeyName, h.Version, ErrNoKey)
	case c == nil:
		return fmt.Errorf("sealed with %s: %w: no encryption configuration was given", h, ErrNoKey)
	}
	return fmt.Errorf("sealed with %s: %w: the encryption configuration has no such provider and key name", h, ErrNoKey)
}

func (k *candidate) open(h Header, plugin KMSPlugin, key []byte) ([]byte, error) {
	if k.kms {
		if plugin == nil {
			return nil, fmt.Errorf("%w: opening KMS values needs the plugin", ErrNoKey)
		}
		return plugin.Open(Header{Provider: KMS, Version: h.Version, KeyName: k.name}, k.body, key)
	}
	switch h.Provider {
	case AESCBC:
		return openCBC(k.secret, k.body)
	case AESGCM:
		return openGCM(k.secret, k.body, key)
	}
	return openBox(k.secret, k.body)
}

// openCBC: 16 bytes of initialisation vector, then blocks with PKCS #7 padding.
// Nothing authenticates them; a wrong key shows in the padding, in 255 of 256 cases.
func openCBC(secret, body []byte) ([]byte, error) {
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	if !fits(AESCBC, len(body)) {
		return nil, fmt.Errorf("%d bytes are not a whole number of blocks behind an initialisation vector", len(body))
	}
	plain := make([]byte, len(body)-aes.BlockSize)
	cipher.NewCBCDecrypter(block, body[:aes.BlockSize]).CryptBlocks(plain, body[aes.BlockSize:])
	pad := int(plain[len(plain)-1])
	if pad == 0 || pad > aes.BlockSize {
		return nil, fmt.Errorf("%w: the padding is wrong", ErrWrongKey)
	}
	for _, c := range plain[len(plain)-pad:] {
		if int(c) != pad {
			return nil, fmt.Errorf("%w: the padding is wrong", ErrWrongKey)
		}
	}
	return plain[:len(plain)-pad], nil
}

// openGCM: 12 bytes of nonce, then the sealed bytes; the key in etcd is the
// additional data.
func openGCM(secret, body, key []byte) ([]byte, error) {
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	n := aead.NonceSize()
	if len(body) < n+aead.Overhead() {
		return nil, fmt.Errorf("%d bytes are too few", len(body))
	}
	plain, err := aead.Open(nil, body[:n], body[n:], key)
	if err != nil {
		if len(key) == 0 {
			return nil, fmt.Errorf("%w: an aesgcm value opens only together with its key in etcd, which was not given", ErrWrongKey)
		}
		return nil, fmt.Errorf("%w, or the value was not stored at %q", ErrWrongKey, key)
	}
	return plain, nil
}

// openBox: 24 bytes of nonce, then a NaCl secret box.
func openBox(secret, body []byte) ([]byte, error) {
	if len(body) < 24+secretbox.Overhead {
		return nil, fmt.Errorf("%d bytes are too few", len(body))
	}
	var nonce [24]byte
	copy(nonce[:], body)
	var k [32]byte
	copy(k[:], secret)
	plain, ok := secretbox.Open(nil, body[24:], &nonce, &k)
	if !ok {
		return nil, ErrWrongKey
	}
	return plain, nil
}

// readAll reads a file of at most maxConfig bytes, even if it grows meanwhile.
func readAll(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxConfig+1))
	if err == nil && len(b) > maxConfig {
		err = fmt.Errorf("more than %d bytes", maxConfig)
	}
	return b, err
}
