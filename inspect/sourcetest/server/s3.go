package server

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// S3 is a running S3 server. It answers conditional requests and computes
// checksums; a bucket is a folder in Dir.
type S3 struct {
	*Process
	URL               string
	Dir               string
	AccessKey, Secret string
}

// StartS3 starts an S3 server without a bucket. It is killed when the test ends.
func StartS3(tb testing.TB) *S3 {
	tb.Helper()
	dir := tb.TempDir()
	s := &S3{Dir: filepath.Join(dir, "buckets"), AccessKey: "tester", Secret: "a-secret-of-the-tests"}
	meta := filepath.Join(dir, "meta") // not every file system has extended attributes
	for _, d := range []string{s.Dir, meta} {
		if err := os.Mkdir(d, 0o700); err != nil {
			tb.Fatal(err)
		}
	}
	endpoint := fmt.Sprintf("127.0.0.1:%d", Ports(tb, 1)[0])
	s.Process = Run(tb, Binary(tb, "s3"), endpoint, "--access", s.AccessKey, "--secret", s.Secret, "--port", endpoint, "--quiet", "--keep-alive", "--disable-acl", "posix", "--sidecar", meta, s.Dir)
	s.URL = "http://" + endpoint
	return s
}

// Bucket makes a bucket.
func (s *S3) Bucket(tb testing.TB, name string) {
	tb.Helper()
	if err := os.Mkdir(filepath.Join(s.Dir, name), 0o700); err != nil {
		tb.Fatal(err)
	}
}
