package store_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdctl-plus/etcdctl-plus/backup/store"
	"github.com/etcdctl-plus/etcdctl-plus/backup/store/storetest"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/server"
)

// line is a TCP proxy that can be cut, silenced, or made to change bytes.
type line struct {
	url    string
	budget atomic.Int64 // bytes towards the server until all connections are cut; negative: no end
	silent atomic.Bool  // nothing passes any more, and nothing is cut
	flip   atomic.Bool  // a byte of each large piece towards the server is changed
	cuts   atomic.Int64
}

func newLine(t *testing.T, to string) *line {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &line{url: "http://" + l.Addr().String()}
	p.budget.Store(-1)
	end := make(chan struct{})
	t.Cleanup(func() { close(end); l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp", to)
			if err != nil {
				c.Close()
				continue
			}
			go p.pass(s, c, true, end)
			go p.pass(c, s, false, end)
		}
	}()
	return p
}

func (p *line) pass(dst, src net.Conn, up bool, end chan struct{}) {
	defer dst.Close()
	defer src.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if p.silent.Load() {
			<-end
			return
		}
		if up && p.flip.Load() && n > 16<<10 {
			buf[n-1] ^= 1
		}
		if up && p.budget.Load() >= 0 && p.budget.Add(int64(-n)) < 0 {
			p.budget.Store(0)
			p.cuts.Add(1)
			return
		}
		if _, e := dst.Write(buf[:n]); e != nil || err != nil {
			return
		}
	}
}

func s3Store(t *testing.T, srv *server.S3, url, bucket string, change func(*store.Options)) store.Store {
	t.Helper()
	o := store.Options{Endpoint: url, PartBytes: part, Getenv: keysOf(srv), Attempts: 2}
	if change != nil {
		change(&o)
	}
	return open(t, "s3://"+bucket+"/p", o)
}

// nothingIn fails if an object or an unfinished upload is in the bucket.
func nothingIn(t *testing.T, srv *server.S3, bucket string) {
	t.Helper()
	names, err := storetest.Names(t.Context(), s3Store(t, srv, srv.URL, bucket, nil), "")
	if err != nil || len(names) > 0 {
		t.Errorf("objects are left: %q, %v", names, err)
	}
}

// TestS3Cut cuts every connection after some bytes of an upload, and for good.
func TestS3Cut(t *testing.T) {
	t.Parallel()
	srv := server.StartS3(t)
	for _, size := range []int64{1 << 20, 3*part + 1} {
		for _, after := range []int64{100, size / 3, size - 1000} {
			t.Run(fmt.Sprintf("%d_after_%d", size, after), func(t *testing.T) {
				t.Parallel()
				bucket, l := newBucket(t, srv), newLine(t, srv.Endpoint)
				s := s3Store(t, srv, l.url, bucket, nil)
				b := storetest.Bytes(size, 1)
				l.budget.Store(after)
				err := storetest.Put(t.Context(), s, "x", b, store.PutOptions{})
				if !errors.Is(err, store.ErrUnreachable) || l.cuts.Load() == 0 {
					t.Fatalf("after %d cuts: %v", l.cuts.Load(), err)
				}
				nothingIn(t, srv, bucket)
				l.budget.Store(-1)
				if err := storetest.Put(t.Context(), s, "x", b, store.PutOptions{}); err != nil {
					t.Fatalf("with the line back: %v", err)
				}
				if got, err := storetest.Get(t.Context(), s, "x"); err != nil || !bytes.Equal(got, b) {
					t.Errorf("stored are %d bytes, %v", len(got), err)
				}
			})
		}
	}
}

// TestS3CutOnce: one broken connection is no failure, neither of an upload nor of
// a download.
func TestS3CutOnce(t *testing.T) {
	t.Parallel()
	srv := server.StartS3(t)
	bucket := newBucket(t, srv)
	b := storetest.Bytes(3*part+1, 2)
	var up, down atomic.Bool
	proxy := reverse(t, srv, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		switch {
		case r.Method == http.MethodPut && r.URL.Query().Get("partNumber") == "2" && !up.Swap(true):
			_, _ = io.CopyN(io.Discard, r.Body, 1<<20)
			panic(http.ErrAbortHandler)
		case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/x") && !down.Swap(true):
			next.ServeHTTP(&cutting{ResponseWriter: w, left: 2 << 20}, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
	s := s3Store(t, srv, proxy, bucket, nil)
	if err := storetest.Put(t.Context(), s, "x", b, store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := storetest.Get(t.Context(), s, "x")
	if err != nil || !bytes.Equal(got, b) {
		t.Errorf("read are %d bytes, %v", len(got), err)
	}
	if !up.Load() || !down.Load() {
		t.Errorf("cut up %v, down %v", up.Load(), down.Load())
	}
}

// reverse is an HTTP proxy in front of the server that do can interfere with.
func reverse(t *testing.T, srv *server.S3, do func(http.ResponseWriter, *http.Request, http.Handler)) string {
	t.Helper()
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	next := &httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(u); r.Out.Host = r.In.Host }, // the signature is over it
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { do(w, r, next) }))
	t.Cleanup(h.Close)
	return h.URL
}

// cutting breaks a connection after some bytes of the answer.
type cutting struct {
	http.ResponseWriter
	left int
}

func (c *cutting) Write(p []byte) (int, error) {
	if c.left -= len(p); c.left < 0 {
		panic(http.ErrAbortHandler)
	}
	return c.ResponseWriter.Write(p)
}

// TestS3LostAnswer: the server did it, the answer did not arrive. The request that
// is sent again meets its own work and is no failure.
func TestS3LostAnswer(t *testing.T) {
	t.Parallel()
	srv := server.StartS3(t)
	bucket := newBucket(t, srv)
	var mu sync.Mutex
	lost := map[string]bool{}
	proxy := reverse(t, srv, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		finishes := r.Method == http.MethodPost && r.URL.Query().Has("uploadId") || r.Method == http.MethodPut && !r.URL.Query().Has("uploadId")
		mu.Lock()
		first := finishes && !lost[r.URL.Path]
		lost[r.URL.Path] = lost[r.URL.Path] || first
		mu.Unlock()
		if first {
			next.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
	})
	s := s3Store(t, srv, proxy, bucket, nil)
	for name, size := range map[string]int64{"one": 1000, "parts": 2*part + 1} {
		b := storetest.Bytes(size, 3)
		if err := storetest.Put(t.Context(), s, name, b, store.PutOptions{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got, err := storetest.Get(t.Context(), s, name); err != nil || !bytes.Equal(got, b) {
			t.Errorf("%s: stored are %d bytes, %v", name, len(got), err)
		}
		if err := storetest.Put(t.Context(), s, name, b, store.PutOptions{}); !errors.Is(err, store.ErrExists) {
			t.Errorf("%s again: %v", name, err)
		}
	}
	l, err := s.Lock(t.Context(), "lock", store.LockOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(); err != nil {
		t.Error(err)
	}
	if len(lost) != 3 {
		t.Errorf("answers were lost for %v", lost)
	}
}

// TestS3Flipped: the server compares what arrives with our checksums.
func TestS3Flipped(t *testing.T) {
	t.Parallel()
	srv := server.StartS3(t)
	for _, size := range []int64{1 << 20, 2*part + 1} {
		bucket, l := newBucket(t, srv), newLine(t, srv.Endpoint)
		l.flip.Store(true)
		s := s3Store(t, srv, l.url, bucket, nil)
		err := storetest.Put(t.Context(), s, "x", storetest.Bytes(size, 4), store.PutOptions{})
		if !errors.Is(err, store.ErrChecksum) {
			t.Errorf("%d bytes, one changed on the way: %v", size, err)
		}
		nothingIn(t, srv, bucket)
		if left, err := uploads(srv, bucket)(t.Context()); err != nil || len(left) > 0 {
			t.Errorf("unfinished: %q, %v", left, err)
		}
	}
}

// TestS3Checksum: the server's own checksum is what Stat gives.
func TestS3Checksum(t *testing.T) {
	t.Parallel()
	srv := server.StartS3(t)
	s := s3Store(t, srv, srv.URL, newBucket(t, srv), nil)
	b := storetest.Bytes(1000, 5)
	if err := storetest.Put(t.Context(), s, "x", b, store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	o, err := s.Stat(t.Context(), "x")
	if sum := sha256.Sum256(b); err != nil || !bytes.Equal(o.SHA256, sum[:]) {
		t.Errorf("%+v, %v", o, err)
	}
}

// TestS3Silent: a line on which nothing moves is given up in time.
func TestS3Silent(t *testing.T) {
	t.Parallel()
	srv := server.StartS3(t)
	bucket, l := newBucket(t, srv), newLine(t, srv.Endpoint)
	s := s3Store(t, srv, l.url, bucket, func(o *store.Options) { o.Stall = time.Second; o.Attempts = 1 })
	b := storetest.Bytes(2*part+1, 6)
	start := time.Now()
	err := storetest.Put(t.Context(), s, "x", b, store.PutOptions{Progress: func(int64) { l.silent.Store(true) }})
	if !errors.Is(err, store.ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Put: %v", err)
	}
	// The upload, taking it back, and a second for each connection that is in use.
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
	nothingIn(t, srv, bucket)
}

// TestS3Unconditional: a server that refuses conditional requests. Names that are
// taken are still not overwritten, and the lock still is one.
func TestS3Unconditional(t *testing.T) {
	t.Parallel()
	srv := server.StartS3(t)
	var refused atomic.Int64
	proxy := reverse(t, srv, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method != http.MethodGet && (r.Header.Get("If-None-Match") != "" || r.Header.Get("If-Match") != "") {
			refused.Add(1)
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(http.StatusNotImplemented)
			fmt.Fprint(w, `<Error><Code>NotImplemented</Code><Message>A header you provided implies functionality that is not implemented.</Message></Error>`)
			return
		}
		next.ServeHTTP(w, r)
	})
	storetest.Run(t, func(t *testing.T) storetest.Place {
		bucket := newBucket(t, srv)
		return storetest.Place{
			Open: func() (store.Store, error) {
				return store.Open("s3://"+bucket, store.Options{Endpoint: proxy, PartBytes: part, Getenv: keysOf(srv)})
			},
			Left: uploads(srv, bucket), Part: part, Races: true,
		}
	}, "no overwrite", "replace", "lock", "lock at once", "stale lock", "lost lock", "wrong checksum")
	t.Cleanup(func() {
		if refused.Load() == 0 {
			t.Error("no conditional request was seen")
		}
	})
}

// TestS3Errors: what went wrong can be told apart, and secrets are never told.
func TestS3Errors(t *testing.T) {
	t.Parallel()
	srv := server.StartS3(t)
	bucket := newBucket(t, srv)
	const secret = "this-must-not-be-told"
	nobody := fmt.Sprintf("http://127.0.0.1:%d", server.Ports(t, 1)[0])
	for _, c := range []struct {
		name, where, url string
		getenv           func(string) string
		kind             error
		say              string
	}{
		{"wrong key", "s3://" + bucket, srv.URL, environ("AWS_ACCESS_KEY_ID", "nobody", "AWS_SECRET_ACCESS_KEY", secret), store.ErrDenied, "No user exists"},
		{"wrong secret", "s3://" + bucket, srv.URL, environ("AWS_ACCESS_KEY_ID", srv.AccessKey, "AWS_SECRET_ACCESS_KEY", secret), store.ErrDenied, "SignatureDoesNotMatch"},
		{"no bucket", "s3://none", srv.URL, keysOf(srv), store.ErrNoBucket, ""},
		{"nobody there", "s3://" + bucket, nobody, keysOf(srv), store.ErrUnreachable, "connection refused"},
		{"no keys", "s3://" + bucket, srv.URL, environ("AWS_CONFIG_FILE", "/nonexistent/config"), store.ErrConfig, "AWS_ACCESS_KEY_ID"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := open(t, c.where, store.Options{Endpoint: c.url, Getenv: c.getenv, Attempts: 2, PartBytes: part})
			_, getErr := s.Get(t.Context(), "x")
			_, listErr := storetest.Names(t.Context(), s, "")
			_, lockErr := s.Lock(t.Context(), "lock", store.LockOptions{})
			// An answer to HEAD has no text: of a refusal by this server, not even a reason.
			if _, err := s.Stat(t.Context(), "x"); c.name != "wrong key" && !errors.Is(err, c.kind) {
				t.Errorf("stat: %v, want %v", err, c.kind)
			}
			for doing, err := range map[string]error{
				"put": put(t, s, "x", "x", store.PutOptions{}), "replace": put(t, s, "x", "x", store.PutOptions{Replace: true}),
				"put parts": storetest.Put(t.Context(), s, "y", make([]byte, part+1), store.PutOptions{Replace: true}),
				"get":       getErr, "list": listErr, "lock": lockErr,
			} {
				if !errors.Is(err, c.kind) {
					t.Errorf("%s: %v, want %v", doing, err, c.kind)
					continue
				}
				if !strings.Contains(err.Error(), c.say) {
					t.Errorf("%s does not say %q: %v", doing, c.say, err)
				}
				for e := err; e != nil; e = errors.Unwrap(e) {
					if strings.Contains(fmt.Sprintf("%v %+v", e, e), secret) {
						t.Errorf("%s tells the secret: %v", doing, e)
					}
				}
			}
		})
	}
}

// TestS3Open: settings that cannot work are refused before anything is asked.
func TestS3Open(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte("[profile role]\nrole_arn = arn:x\nsource_profile = default\n[profile empty]\nregion = x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const secret = "hunter2"
	for _, c := range []struct {
		where string
		o     store.Options
		say   string
	}{
		{"s3://", store.Options{}, "s3://bucket/prefix"},
		{"s3://host:9000/bucket", store.Options{}, "goes into the endpoint"},
		{"s3://key:" + secret + "@bucket/x", store.Options{}, "do not belong into a URL"},
		{"s3://b/../x", store.Options{}, "prefix"},
		{"s3://b", store.Options{Endpoint: "localhost:9000"}, "not a URL"},
		{"s3://b", store.Options{Endpoint: "https://key:" + secret + "@host"}, "has a user in it"},
		{"s3://b", store.Options{Addressing: "diagonal"}, `addressing "diagonal"`},
		{"s3://b", store.Options{CAFile: "/nonexistent/ca"}, "certificate authorities"},
		{"s3://b", store.Options{PartBytes: 1000}, "parts have at least"},
		{"s3://b", store.Options{Profile: "none"}, `no profile "none"`},
		{"s3://b", store.Options{Profile: "role"}, "credential_process"},
		{"s3://b", store.Options{Profile: "empty"}, "has no credentials"},
		{"rclone:nothing", store.Options{}, "rclone:REMOTE:PATH"},
		{"rclone:-x:y", store.Options{}, "rclone:REMOTE:PATH"},
		{"rclone::s3,secret_access_key=" + secret + ":b", store.Options{}, "configuration"},
		{"rclone:x:y", store.Options{Rclone: "/nonexistent/rclone"}, "not installed"},
	} {
		c.o.Getenv = environ("AWS_CONFIG_FILE", file)
		s, err := store.Open(c.where, c.o)
		if !errors.Is(err, store.ErrConfig) || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s %+v: %v, %v; want %q", c.where, c.o, s, err, c.say)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("the secret is told: %v", err)
		}
	}
}

// TestS3Credentials: every place keys can come from.
func TestS3Credentials(t *testing.T) {
	t.Parallel()
	srv := server.StartS3(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	keys := fmt.Sprintf("aws_access_key_id = %s\naws_secret_access_key=%s\n", srv.AccessKey, srv.Secret)
	process := write("process", fmt.Sprintf("#!/bin/sh\necho '{\"Version\": 1, \"AccessKeyId\": %q, \"SecretAccessKey\": %q}'\n", srv.AccessKey, srv.Secret))
	credentials := write("credentials", "# a comment\n[default]\naws_access_key_id = wrong\naws_secret_access_key = wrong\n[ other ]\n"+keys)
	config := write("config", "[default]\nregion = us-east-1\n\n[profile other]\nregion = us-east-1\nendpoint_url = "+srv.URL+" # here\ns3 =\n  addressing_style = path\n[profile process]\ncredential_process = "+process+"\n[profile role]\nrole_arn = x\ncredential_process = "+process+"\n")
	answer := fmt.Sprintf(`{"Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": %q, "SecretAccessKey": %q, "Token": "", "Expiration": %q}`, srv.AccessKey, srv.Secret, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	// What an instance or a container asks; a machine's service wants a token first.
	meta := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/latest/api/token":
			w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "600")
			fmt.Fprint(w, "machine")
		case "/latest/meta-data/iam/security-credentials/":
			fmt.Fprint(w, "backup")
		case "/latest/meta-data/iam/security-credentials/backup":
			if r.Header.Get("X-Aws-Ec2-Metadata-Token") != "machine" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			fmt.Fprint(w, answer)
		case "/container":
			if r.Header.Get("Authorization") != "pod" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			fmt.Fprint(w, answer)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(meta.Close)
	for name, c := range map[string]struct {
		o   store.Options
		env []string
	}{
		"variables":            {env: []string{"AWS_ACCESS_KEY_ID", srv.AccessKey, "AWS_SECRET_ACCESS_KEY", srv.Secret, "AWS_ENDPOINT_URL_S3", srv.URL}},
		"file, by variable":    {env: []string{"AWS_PROFILE", "other", "AWS_CONFIG_FILE", config, "AWS_SHARED_CREDENTIALS_FILE", credentials}},
		"file, by option":      {o: store.Options{Profile: "other"}, env: []string{"AWS_ACCESS_KEY_ID", "wrong", "AWS_SECRET_ACCESS_KEY", "wrong", "AWS_CONFIG_FILE", config, "AWS_SHARED_CREDENTIALS_FILE", credentials}},
		"process":              {o: store.Options{Endpoint: srv.URL, Profile: "process"}, env: []string{"AWS_CONFIG_FILE", config}},
		"process, for a role":  {o: store.Options{Endpoint: srv.URL, Profile: "role"}, env: []string{"AWS_CONFIG_FILE", config}},
		"instance":             {o: store.Options{Endpoint: srv.URL}, env: []string{"AWS_EC2_METADATA_DISABLED", "", "AWS_EC2_METADATA_SERVICE_ENDPOINT", meta.URL}},
		"container":            {o: store.Options{Endpoint: srv.URL}, env: []string{"AWS_CONTAINER_CREDENTIALS_FULL_URI", meta.URL + "/container", "AWS_CONTAINER_AUTHORIZATION_TOKEN", "pod"}},
		"container, from file": {o: store.Options{Endpoint: srv.URL}, env: []string{"AWS_CONTAINER_CREDENTIALS_FULL_URI", meta.URL + "/container", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", write("token", "pod\n")}},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			c.o.Getenv = environ(c.env...)
			s := open(t, "s3://"+newBucket(t, srv), c.o)
			if err := put(t, s, "x", "x", store.PutOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	s, err := store.Open("s3://b", store.Options{Getenv: environ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://elsewhere.example/keys")})
	if !errors.Is(err, store.ErrConfig) {
		t.Errorf("keys over an open line: %v, %v", s, err)
	}
}
