package kmsclient_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"

	"github.com/etcdctl-plus/etcdctl-plus/registry/kmsclient"
	"github.com/etcdctl-plus/etcdctl-plus/registry/kmsclient/kmstest"
	"github.com/etcdctl-plus/etcdctl-plus/registry/seal"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

func config(version, endpoint string, timeout time.Duration) *seal.Config {
	return &seal.Config{Rules: []seal.Rule{{Resources: []string{"*.*"}, Providers: []seal.Provider{
		{Type: seal.KMS, KMS: &seal.KMSConfig{APIVersion: version, Name: "vault", Endpoint: endpoint, Timeout: timeout}},
	}}}}
}

// heard collects what a client tells.
type heard struct {
	mu    sync.Mutex
	lines []error
}

func (h *heard) tell(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, err)
}

func client(t *testing.T, c *seal.Config, h *heard) *seal.Envelopes {
	t.Helper()
	k := kmsclient.New(c, h.tell)
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return seal.NewEnvelopes(k)
}

// TestOpensWhatTheAPIServerSealed: values that the apiserver's own transformers
// sealed through the plugin open, from many goroutines, with one question a key.
func TestOpensWhatTheAPIServerSealed(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"v1", "v1 before 1.25", "v2 key", "v2 seed"} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			p := kmstest.Start(t, "right")
			seals := p.APIServer(t, form)
			c := config(form[:2], p.Endpoint, 0)
			var h heard
			plugin := client(t, c, &h)
			const values = 20
			sealed := map[string][]byte{}
			for i := range values {
				key := fmt.Sprintf("/registry/secrets/ns/%d", i)
				sealed[key] = seals("vault", key, []byte("plain "+key))
			}
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for key, v := range sealed {
						plain, header, err := seal.Open(c, plugin, "secrets", []byte(key), v)
						if err != nil || string(plain) != "plain "+key || header != (seal.Header{Provider: seal.KMS, Version: form[:2], KeyName: "vault"}) {
							t.Errorf("%s: %q, %+v, %v", key, plain, header, err)
						}
						if form != "v1 before 1.25" {
							if _, _, err := seal.Open(c, plugin, "secrets", []byte(key+"moved"), v); !errors.Is(err, seal.ErrWrongKey) {
								t.Errorf("%s at another key: %v", key, err)
							}
						}
					}
				})
			}
			wg.Wait()
			want := int64(1)
			if form[:2] == "v1" {
				want = values
			}
			if n := p.Decrypts.Load(); n != want {
				t.Errorf("the plugin was asked %d times, want %d", n, want)
			}
			if len(h.lines) > 0 {
				t.Errorf("heard %v", h.lines)
			}
		})
	}
}

// TestFailures: each is told once, whatever the number of values, and soon.
func TestFailures(t *testing.T) {
	t.Parallel()
	p := kmstest.Start(t, "right")
	other := kmstest.Start(t, "wrong")
	silent, foreign := listener(t), listener(t)
	go func() {
		for {
			c, err := foreign.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
			_ = c.Close()
		}
	}()
	empty := grpc.NewServer()
	bare := listener(t)
	go func() { _ = empty.Serve(bare) }()
	t.Cleanup(empty.Stop)
	for _, c := range []struct {
		name, endpoint string
		want           string
		cause          error
	}{
		{"absent", "unix:///nowhere/kms.sock", "does not answer: no such file", syscall.ENOENT},
		{"another key", other.Endpoint, "does not open the key: it says: ", nil},
		{"silent", "unix://" + silent.Addr().String(), "no answer within 300ms", nil},
		{"not gRPC", "unix://" + foreign.Addr().String(), "does not answer", nil},
		{"another service", "unix://" + bare.Addr().String(), "it does not speak KMS", nil},
	} {
		for _, form := range []string{"v1", "v2 key"} {
			t.Run(c.name+" "+form, func(t *testing.T) {
				t.Parallel()
				seals := p.APIServer(t, form)
				conf := config(form[:2], c.endpoint, 300*time.Millisecond)
				var h heard
				plugin := client(t, conf, &h)
				start := time.Now()
				for i := range 50 {
					key := fmt.Sprintf("/registry/secrets/ns/%d", i)
					_, header, err := seal.Open(conf, plugin, "secrets", []byte(key), seals("vault", key, []byte("plain")))
					if !errors.Is(err, seal.ErrPlugin) || header.KeyName != "vault" || c.cause != nil && !errors.Is(err, c.cause) {
						t.Fatalf("%+v, %v", header, err)
					}
				}
				if took := time.Since(start); took > 10*time.Second {
					t.Errorf("took %v: every value waited", took)
				}
				if len(h.lines) != 1 || !strings.Contains(h.lines[0].Error(), c.want) || !strings.Contains(h.lines[0].Error(), c.endpoint) || !strings.Contains(h.lines[0].Error(), `"vault"`) {
					t.Errorf("heard %v", h.lines)
				}
				var e *kmsclient.Error
				if !errors.As(h.lines[0], &e) || e.Hint() == "" {
					t.Errorf("%v has no hint", h.lines[0])
				}
			})
		}
	}
}

func listener(t *testing.T) net.Listener {
	t.Helper()
	dir, err := os.MkdirTemp("", "kms")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(); _ = os.RemoveAll(dir) })
	return l
}

// TestPluginComesBack: a plugin that says that it cannot open keys now is asked
// again, and it is its words that are told.
func TestPluginComesBack(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"v1", "v2 seed"} {
		p := kmstest.Start(t, "right")
		conf := config(form[:2], p.Endpoint, 0)
		var h heard
		first, second := p.APIServer(t, form), p.APIServer(t, form)
		one, two := first("vault", "k", []byte("plain")), second("vault", "k", []byte("plain"))
		plugin := client(t, conf, &h)
		p.Away.Store(true)
		if _, _, err := seal.Open(conf, plugin, "", []byte("k"), one); !errors.Is(err, seal.ErrPlugin) || !strings.Contains(err.Error(), "it says: the vault is sealed (Unavailable)") {
			t.Errorf("%s: %v", form, err)
		}
		p.Away.Store(false)
		if plain, _, err := seal.Open(conf, plugin, "", []byte("k"), two); err != nil || string(plain) != "plain" {
			t.Errorf("%s: %q, %v", form, plain, err)
		}
	}
}

// TestConfig: without plugins there is no client, and a plugin the configuration
// does not have is no plugin that failed.
func TestConfig(t *testing.T) {
	t.Parallel()
	if c := kmsclient.New(&seal.Config{Rules: []seal.Rule{{Providers: []seal.Provider{{Type: seal.Identity}}}}}, nil); c != nil {
		t.Error("a client of nothing")
	}
	c := kmsclient.New(config("v2", "unix:///nowhere", 0), nil)
	for _, h := range []seal.Header{{KeyName: "other", Version: "v2"}, {KeyName: "vault", Version: "v1"}} {
		if _, err := c.Unwrap(h, seal.WrappedKey{}); !errors.Is(err, seal.ErrNoKey) || errors.Is(err, seal.ErrPlugin) {
			t.Errorf("%+v: %v", h, err)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := c.Unwrap(seal.Header{KeyName: "vault", Version: "v2"}, seal.WrappedKey{}); !errors.Is(err, seal.ErrPlugin) {
		t.Errorf("after Close: %v", err)
	}
}
