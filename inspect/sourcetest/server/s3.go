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
	s := &S3{Dir: tb.TempDir(), AccessKey: "tester", Secret: "a-secret-of-the-tests"}
	// It keeps an object's checksum and tag beside its bytes. Its other way, a folder
	// of their own, does not change both at once.
	if err := extendedAttributes(s.Dir); err != nil {
		tb.Skipf("the S3 server needs extended attributes in %s: %v", s.Dir, err)
	}
	endpoint := fmt.Sprintf("127.0.0.1:%d", Ports(tb, 1)[0])
	s.Process = Run(tb, Binary(tb, "s3"), endpoint, "--access", s.AccessKey, "--secret", s.Secret, "--port", endpoint, "--quiet", "--keep-alive", "--disable-acl", "posix", s.Dir)
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
