// Package kmstest is a KMS plugin for tests, on a unix socket and with a key of its
// own. Only tests import it.
package kmstest

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apiserver/pkg/storage/value"
	aestransformer "k8s.io/apiserver/pkg/storage/value/encrypt/aes"
	"k8s.io/apiserver/pkg/storage/value/encrypt/envelope"
	"k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2"
	"k8s.io/kms/apis/v2"
)

// annotation is what the plugin wants back of v2, as real ones do with the name of
// a wrapped key.
const annotation = "kmstest.example.org"

// Plugin speaks both versions of the API.
type Plugin struct {
	Path     string       // of its socket
	Endpoint string       // unix:// URL
	Decrypts atomic.Int64 // how often it was asked to open a key
	Away     atomic.Bool  // what is behind the plugin is away, which it says
	aead     cipher.AEAD
	keyID    string
}

// Start runs a plugin until the test ends. Plugins of one secret open each other's
// keys.
func Start(t testing.TB, secret string) *Plugin {
	t.Helper()
	// Paths of sockets are short: t.TempDir can be too long.
	dir, err := os.MkdirTemp("", "kms")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p := newPlugin(t, secret)
	p.Path = filepath.Join(dir, "s")
	p.Endpoint = "unix://" + p.Path
	l, err := net.Listen("unix", p.Path)
	if err != nil {
		t.Fatal(err)
	}
	p.serve(t, l)
	return p
}

func newPlugin(t testing.TB, secret string) *Plugin {
	t.Helper()
	key := sha256.Sum256([]byte(secret))
	block, err := aes.NewCipher(key[:])
	if err != nil {
		t.Fatal(err)
	}
	p := &Plugin{keyID: "id-of-" + secret}
	if p.aead, err = cipher.NewGCM(block); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *Plugin) serve(t testing.TB, l net.Listener) {
	s := grpc.NewServer()
	registerV1(s, p)
	v2.RegisterKeyManagementServiceServer(s, serverV2{p: p})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l) // ends with Stop
	}()
	t.Cleanup(func() { s.Stop(); <-done })
}

func (p *Plugin) seal(plain []byte) []byte {
	nonce := make([]byte, p.aead.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return p.aead.Seal(nonce, nonce, plain, nil)
}

func (p *Plugin) open(sealed []byte) ([]byte, error) {
	p.Decrypts.Add(1)
	if p.Away.Load() {
		return nil, status.Error(codes.Unavailable, "the vault is sealed")
	}
	n := p.aead.NonceSize()
	if len(sealed) < n {
		return nil, status.Error(codes.InvalidArgument, "too short")
	}
	plain, err := p.aead.Open(nil, sealed[:n], sealed[n:], nil)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, "sealed with another key")
	}
	return plain, nil
}

type serverV2 struct {
	v2.UnimplementedKeyManagementServiceServer
	p *Plugin
}

func (s serverV2) Status(context.Context, *v2.StatusRequest) (*v2.StatusResponse, error) {
	return &v2.StatusResponse{Version: "v2", Healthz: "ok", KeyId: s.p.keyID}, nil
}

func (s serverV2) Encrypt(_ context.Context, r *v2.EncryptRequest) (*v2.EncryptResponse, error) {
	return &v2.EncryptResponse{Ciphertext: s.p.seal(r.Plaintext), KeyId: s.p.keyID, Annotations: map[string][]byte{annotation: []byte(s.p.keyID)}}, nil
}

func (s serverV2) Decrypt(_ context.Context, r *v2.DecryptRequest) (*v2.DecryptResponse, error) {
	if r.KeyId != s.p.keyID || string(r.Annotations[annotation]) != r.KeyId || r.Uid == "" {
		return nil, status.Errorf(codes.NotFound, "no key %q", r.KeyId)
	}
	plain, err := s.p.open(r.Ciphertext)
	return &v2.DecryptResponse{Plaintext: plain}, err
}

// APIServer returns what seals values as a kube-apiserver does with the plugin
// called name, by the apiserver's own transformers. form is "v1", "v1 before 1.25",
// "v2 key" or "v2 seed".
func (p *Plugin) APIServer(t testing.TB, form string) func(name, key string, plain []byte) []byte {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	version, _, _ := strings.Cut(form, " ")
	tr := p.transformer(ctx, t, version, form)
	return func(name, key string, plain []byte) []byte {
		b, err := tr.TransformToStorage(ctx, plain, value.DefaultContext(key))
		if err != nil {
			t.Fatal(err)
		}
		return append([]byte("k8s:enc:kms:"+version+":"+name+":"), b...)
	}
}

func (p *Plugin) transformer(ctx context.Context, t testing.TB, version, form string) value.Transformer {
	t.Helper()
	if version == "v1" {
		s, err := envelope.NewGRPCService(ctx, p.Endpoint, 3*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		return envelope.NewEnvelopeTransformer(s, 10, func(b cipher.Block) (value.Transformer, error) {
			if form == "v1 before 1.25" {
				return aestransformer.NewCBCTransformer(b), nil
			}
			return aestransformer.NewGCMTransformer(b)
		})
	}
	s, err := kmsv2.NewGRPCService(ctx, p.Endpoint, "kmstest", 3*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	tr, o, cacheKey, err := kmsv2.GenerateTransformer(ctx, "uid", s, form == "v2 seed")
	if err != nil {
		t.Fatal(err)
	}
	state := kmsv2.State{
		Transformer: tr, EncryptedObjectKeyID: o.KeyID, EncryptedObjectEncryptedDEKSource: o.EncryptedDEKSource, EncryptedObjectAnnotations: o.Annotations,
		EncryptedObjectEncryptedDEKSourceType: o.EncryptedDEKSourceType, UID: "uid", ExpirationTimestamp: time.Now().Add(time.Hour), CacheKey: cacheKey,
	}
	return kmsv2.NewEnvelopeTransformer(s, "kmstest", func() (kmsv2.State, error) { return state, nil }, "")
}
