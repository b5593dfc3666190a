// Package kmsclient asks KMS plugins to open keys, over their unix sockets, as a
// kube-apiserver does: with the gRPC API v1beta1 for KMS v1, and v2.
package kmsclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/etcdctl-plus/etcdctl-plus/registry/seal"
)

// defaultTimeout of one call is the apiserver's.
const defaultTimeout = 3 * time.Second

// maxAnswer bounds what a plugin may answer: a key has 32 bytes.
const maxAnswer = 64 << 10

// Client asks the KMS plugins of an EncryptionConfiguration. It is safe for
// concurrent use, and connects to a plugin when the first value needs it.
type Client struct {
	tell    func(error)
	plugins map[[2]string]*plugin // by name and version
}

// New returns a Client for the plugins that c names. tell, which may be nil, hears
// of each plugin's first failure, in one line: the values themselves only say that
// they stay sealed. It returns nil when there is no plugin in c.
func New(c *seal.Config, tell func(error)) *Client {
	k := &Client{tell: tell, plugins: map[[2]string]*plugin{}}
	for i := range c.Rules {
		for _, p := range c.Rules[i].Providers {
			if p.Type == seal.KMS {
				k.add(p.KMS)
			}
		}
	}
	if len(k.plugins) == 0 {
		return nil
	}
	return k
}

// add notes a plugin. A v1 plugin may be named in several rules, with one socket.
func (c *Client) add(k *seal.KMSConfig) {
	id := [2]string{k.Name, k.APIVersion}
	if c.plugins[id] == nil {
		c.plugins[id] = &plugin{config: *k}
	}
}

// Close closes the connections. The Client must not be used after it.
func (c *Client) Close() error {
	var errs []error
	for _, p := range c.plugins {
		p.mu.Lock()
		if p.conn != nil {
			errs = append(errs, p.conn.Close())
		}
		p.conn, p.down = nil, errClosed
		p.mu.Unlock()
	}
	return errors.Join(errs...)
}

var errClosed = errors.New("the client is closed")

// Error is a plugin's failure. It wraps seal.ErrPlugin and the cause.
type Error struct {
	Name, Version, Endpoint string
	Answered                bool // the plugin is there and refused
	Err                     error
}

func (e *Error) Error() string {
	what := "does not answer"
	if e.Answered {
		what = "does not open the key"
	}
	return fmt.Sprintf("KMS plugin %q (%s) at %s %s: %v", e.Name, e.Version, e.Endpoint, what, e.Err)
}

// Unwrap makes the error one of seal.ErrPlugin and of its cause.
func (e *Error) Unwrap() []error { return []error{seal.ErrPlugin, e.Err} }

// Hint says what an operator can do.
func (e *Error) Hint() string {
	if e.Answered {
		return "is it the plugin, and the key, that sealed these values? An older key must still be there"
	}
	return "the plugin listens on a control-plane host: run this there, with the plugin started"
}

// Unwrap has a key opened by the plugin that h names.
func (c *Client) Unwrap(h seal.Header, w seal.WrappedKey) ([]byte, error) {
	p := c.plugins[[2]string{h.KeyName, h.Version}]
	if p == nil {
		return nil, fmt.Errorf("%w: the encryption configuration has no KMS plugin %q (%s)", seal.ErrNoKey, h.KeyName, h.Version)
	}
	key, err := p.decrypt(w)
	if err != nil {
		p.once.Do(func() {
			if c.tell != nil {
				c.tell(err)
			}
		})
		return nil, err
	}
	return key, nil
}

// plugin is one plugin and the connection to it.
type plugin struct {
	config seal.KMSConfig
	once   sync.Once // the first failure is told

	mu   sync.Mutex
	conn *grpc.ClientConn
	down error // it did not answer: nobody waits for it again
}

func (p *plugin) connection() (*grpc.ClientConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down != nil || p.conn != nil {
		return p.conn, p.down
	}
	path, err := socket(p.config.Endpoint)
	if err != nil {
		p.down = err
		return nil, err
	}
	p.conn, p.down = grpc.NewClient("passthrough:///kms",
		grpc.WithAuthority("localhost"),                          // plugins in other languages are strict about it
		grpc.WithTransportCredentials(insecure.NewCredentials()), // a socket of this host, as the apiserver does it
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(verbatim{}), grpc.MaxCallRecvMsgSize(maxAnswer)))
	return p.conn, p.down
}

// socket returns the path of a unix:// URL; one that begins with @ is in Linux'
// abstract namespace.
func socket(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "unix" || u.Path == "" {
		return "", fmt.Errorf("%q is no unix:// URL", endpoint)
	}
	if abstract := strings.TrimPrefix(u.Path, "/"); strings.HasPrefix(abstract, "@") {
		return abstract, nil
	}
	return u.Path, nil
}

// decrypt makes the call.
func (p *plugin) decrypt(w seal.WrappedKey) ([]byte, error) {
	fail := func(answered bool, err error) error {
		return &Error{Name: p.config.Name, Version: p.config.APIVersion, Endpoint: p.config.Endpoint, Answered: answered, Err: err}
	}
	conn, err := p.connection()
	if err != nil {
		return nil, fail(false, err)
	}
	method, request := "/v2.KeyManagementService/Decrypt", requestV2(w)
	if p.config.APIVersion == "v1" {
		method, request = "/v1beta1.KeyManagementService/Decrypt", requestV1(w)
	}
	timeout := p.config.Timeout
	if timeout == 0 {
		timeout = defaultTimeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var answer []byte
	var header, trailer metadata.MD
	if err := conn.Invoke(ctx, method, &request, &answer, grpc.Header(&header), grpc.Trailer(&trailer)); err != nil {
		// Whoever answers in gRPC sends a content type, in one of the two.
		answered := len(header)+len(trailer) > 0
		err := cause(err, answered, timeout, p.config.APIVersion)
		if !answered {
			p.mu.Lock()
			if p.down == nil {
				p.down = err
			}
			p.mu.Unlock()
		}
		return nil, fail(answered, err)
	}
	key, err := plaintext(answer)
	if err != nil {
		return nil, fail(true, err)
	}
	return key, nil
}

// cause turns a gRPC error into words.
func cause(err error, answered bool, timeout time.Duration, version string) error {
	s := status.Convert(err)
	switch {
	case s.Code() == codes.DeadlineExceeded && !answered:
		return fmt.Errorf("no answer within %s", timeout)
	case !answered:
		for _, e := range []error{syscall.ENOENT, syscall.ECONNREFUSED, syscall.EACCES} {
			if strings.Contains(s.Message(), e.Error()) {
				return e
			}
		}
		return errors.New(s.Message())
	case s.Code() == codes.Unimplemented:
		return fmt.Errorf("it does not speak KMS %s", version)
	}
	return fmt.Errorf("it says: %s (%s)", s.Message(), s.Code())
}

// The messages of the two APIs, by their field numbers.

func requestV1(w seal.WrappedKey) []byte {
	b := field(nil, 1, []byte("v1beta1"))
	return field(b, 2, w.Ciphertext)
}

func requestV2(w seal.WrappedKey) []byte {
	b := field(nil, 1, w.Ciphertext)
	b = field(b, 2, []byte("etcdctl-plus")) // a name for the plugin's log
	b = field(b, 3, []byte(w.KeyID))
	for name, value := range w.Annotations {
		b = field(b, 4, field(field(nil, 1, []byte(name)), 2, value))
	}
	return b
}

func field(b []byte, n protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
}

// plaintext reads the answer, which is the same in both: field 1 is the key.
func plaintext(b []byte) (key []byte, err error) {
	for len(b) > 0 {
		n, t, size := protowire.ConsumeField(b)
		if size < 0 {
			return nil, fmt.Errorf("its answer is no protobuf message: %w", protowire.ParseError(size))
		}
		if n == 1 && t == protowire.BytesType {
			_, _, head := protowire.ConsumeTag(b)
			key, _ = protowire.ConsumeBytes(b[head:])
		}
		b = b[size:]
	}
	return key, nil
}

// verbatim is a codec for messages that are bytes already. With two messages to
// write and one to read, generated ones would cost every start of the program more
// than they give.
type verbatim struct{}

func (verbatim) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("cannot send a %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(*b)}, nil
}

func (verbatim) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("cannot receive a %T", v)
	}
	*b = data.Materialize()
	return nil
}

// Name is the content type of what the bytes are.
func (verbatim) Name() string { return "proto" }

var (
	_ seal.KeyService  = (*Client)(nil)
	_ encoding.CodecV2 = verbatim{}
)
