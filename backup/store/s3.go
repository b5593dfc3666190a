package store

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
)

// S3 takes no smaller parts than this, but for the last, and no more of them.
const (
	minPart  = 5 << 20
	maxParts = 10000
)

// bucket keeps objects in a bucket of an S3-compatible server, below a prefix.
type bucket struct {
	client *s3.Client
	bucket string
	prefix string // "" or with "/" at its end
	name   string

	partBytes   int64
	connections int
	// unconditional is set once the server said that it knows no conditional requests.
	unconditional atomic.Bool
}

func openS3(where string, o Options) (*bucket, error) {
	bad := func(store string, format string, a ...any) error {
		return &Error{Op: "open", Store: store, Kind: ErrConfig, Err: fmt.Errorf(format, a...)}
	}
	host, prefix, _ := strings.Cut(where, "/")
	if strings.Contains(host, "@") { // not repeated: it may be a secret
		return nil, bad("s3://…", "credentials do not belong into a URL: use AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile")
	}
	prefix = strings.Trim(prefix, "/")
	s := &bucket{bucket: host, name: "s3://" + host, partBytes: cmp.Or(o.PartBytes, 8<<20), connections: cmp.Or(o.Connections, 4)}
	if host == "" || strings.ContainsAny(host, ":?#") {
		return nil, bad("s3://"+where, "a bucket is named s3://bucket/prefix; the server goes into the endpoint")
	}
	if prefix != "" {
		s.name += "/" + prefix
		if err := CheckName(prefix); err != nil || len(prefix) > 1024-maxName-1 {
			return nil, bad(s.name, "the prefix is not one that objects can have")
		}
		s.prefix = prefix + "/"
	}
	if s.partBytes < minPart || s.connections < 1 {
		return nil, bad(s.name, "parts have at least %d bytes, and one connection sends them", minPart)
	}
	set, err := settingsOf(o)
	if err != nil {
		return nil, &Error{Op: "open", Store: s.name, Kind: ErrConfig, Err: err}
	}
	s.client = s3.New(s3.Options{
		Region: set.region, UsePathStyle: set.pathStyle, BaseEndpoint: set.endpoint, Credentials: set.credentials, HTTPClient: set.client,
		Retryer: retry.NewStandard(func(r *retry.StandardOptions) { r.MaxAttempts = cmp.Or(o.Attempts, 5) }),
		// Our own SHA-256 is sent and compared; other servers than Amazon's know no other.
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
	})
	return s, nil
}

func (s *bucket) String() string { return s.name }

func (s *bucket) Close() error { return nil }

func (s *bucket) key(name string) *string { return aws.String(s.prefix + name) }

func (s *bucket) Stat(ctx context.Context, name string) (Object, error) {
	if err := CheckName(name); err != nil {
		return Object{}, fail(ctx, "stat", s.name, name, err)
	}
	out, err := s.head(ctx, name)
	if err != nil {
		return Object{}, fail(ctx, "stat", s.name, name, s.whichAbsent(ctx, err))
	}
	return Object{Name: name, Bytes: aws.ToInt64(out.ContentLength), ModTime: aws.ToTime(out.LastModified), SHA256: wholeSum(out.ChecksumSHA256)}, nil
}

func (s *bucket) head(ctx context.Context, name string) (*s3.HeadObjectOutput, error) {
	out, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.bucket, Key: s.key(name), ChecksumMode: types.ChecksumModeEnabled})
	return out, s3Error(err)
}

// wholeSum decodes a checksum that is one of the whole object: one of parts says
// how many there are, "…-3".
func wholeSum(sum *string) []byte {
	b, err := base64.StdEncoding.DecodeString(aws.ToString(sum))
	if err != nil || len(b) != 32 {
		return nil
	}
	return b
}

// whichAbsent tells an absent bucket from an absent object: the answer to HEAD has
// no text that would.
func (s *bucket) whichAbsent(ctx context.Context, err error) error {
	if !errors.Is(err, ErrNotExist) {
		return err
	}
	if _, e := s.client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &s.bucket}); e != nil {
		if e := s3Error(e); errors.Is(e, ErrNotExist) || errors.Is(e, ErrNoBucket) {
			return ErrNoBucket
		}
	}
	return ErrNotExist
}

func (s *bucket) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	r, err := s.get(ctx, name)
	if err != nil {
		return nil, fail(ctx, "get", s.name, name, err)
	}
	return r, nil
}

func (s *bucket) get(ctx context.Context, name string) (*download, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: s.key(name)})
	if err != nil {
		return nil, s3Error(err)
	}
	return &download{ctx: ctx, s: s, name: name, body: out.Body, etag: out.ETag, size: aws.ToInt64(out.ContentLength)}, nil
}

// download reads an object and goes on where a connection broke.
type download struct {
	ctx   context.Context
	s     *bucket
	name  string
	body  io.ReadCloser
	etag  *string
	off   int64
	size  int64
	tries int // without a byte between them
}

func (d *download) Read(p []byte) (int, error) {
	for {
		n, err := d.body.Read(p)
		d.off += int64(n)
		if n > 0 {
			d.tries = 0
			return n, nil // the error comes again
		}
		if err == nil {
			continue
		}
		if d.off == d.size && errors.Is(err, io.EOF) {
			return 0, io.EOF
		}
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if d.tries++; d.tries > 3 || d.ctx.Err() != nil || d.off >= d.size {
			return 0, fail(d.ctx, "get", d.s.name, d.name, asf(ErrUnreachable, "after %d of %d bytes: %w", d.off, d.size, err))
		}
		if err := d.again(); err != nil {
			return 0, fail(d.ctx, "get", d.s.name, d.name, err)
		}
	}
}

func (d *download) again() error {
	out, err := d.s.client.GetObject(d.ctx, &s3.GetObjectInput{
		Bucket: &d.s.bucket, Key: d.s.key(d.name), IfMatch: d.etag, Range: aws.String(fmt.Sprintf("bytes=%d-", d.off)),
	})
	if err != nil {
		return s3Error(err)
	}
	if want := fmt.Sprintf("bytes %d-", d.off); !strings.HasPrefix(aws.ToString(out.ContentRange), want) {
		out.Body.Close()
		return asf(ErrUnreachable, "the connection broke at byte %d, and the server cannot go on there", d.off)
	}
	d.body.Close()
	d.body = out.Body
	return nil
}

func (d *download) Close() error { return d.body.Close() }

// List asks for all names before it yields the first, because not every server
// has them in the order of their bytes: about 200 bytes of memory an object.
func (s *bucket) List(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		all, err := s.list(ctx, prefix)
		if err != nil {
			yield(Object{}, fail(ctx, "list", s.name, prefix, err))
			return
		}
		inOrder(all, yield)
	}
}

func (s *bucket) list(ctx context.Context, prefix string) ([]Object, error) {
	var all []Object
	pages := s3.NewListObjectsV2Paginator(s.client, &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: s.key(prefix)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, s3Error(err)
		}
		for _, o := range page.Contents {
			name, ok := strings.CutPrefix(aws.ToString(o.Key), s.prefix)
			if ok && CheckName(name) == nil {
				all = append(all, Object{Name: name, Bytes: aws.ToInt64(o.Size), ModTime: aws.ToTime(o.LastModified)})
			}
		}
	}
	return all, nil
}

// inOrder yields what was collected by the bytes of the names.
func inOrder(all []Object, yield func(Object, error) bool) {
	slices.SortFunc(all, func(a, b Object) int { return strings.Compare(a.Name, b.Name) })
	for _, o := range all {
		if !yield(o, nil) {
			return
		}
	}
}

func (s *bucket) Delete(ctx context.Context, name string) error {
	return fail(ctx, "delete", s.name, name, s.delete(ctx, name))
}

func (s *bucket) delete(ctx context.Context, name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	// The server says the same of what was there and what was not.
	if _, err := s.head(ctx, name); err != nil {
		return s.whichAbsent(ctx, err)
	}
	_, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.bucket, Key: s.key(name)})
	return s3Error(err)
}

// s3Error gives an answer of the server, or its absence, a kind.
func s3Error(err error) error {
	if err == nil {
		return nil
	}
	var k *kind
	if errors.As(err, &k) { // no credentials
		var kd *kinded
		if errors.As(err, &kd) {
			return kd
		}
		return k
	}
	var api smithy.APIError
	status := statusOf(err)
	if !errors.As(err, &api) {
		if status >= 500 || status == 0 {
			return as(ErrUnreachable, shortError(err))
		}
		api = &smithy.GenericAPIError{Code: fmt.Sprintf("HTTP %d", status)}
	}
	said := errText(api.ErrorCode())
	if api.ErrorMessage() != "" {
		said += errText(": " + api.ErrorMessage())
	}
	switch api.ErrorCode() {
	case "NoSuchKey", "NoSuchUpload", "NotFound":
		return ErrNotExist
	case "NoSuchBucket":
		return ErrNoBucket
	case "PreconditionFailed":
		return ErrExists
	case "BadDigest", "InvalidDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch":
		return as(ErrChecksum, said)
	case "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "AllAccessDisabled", "AccountProblem", "XAdminUserNotFound":
		return as(ErrDenied, said) // not every server answers with 403
	case "PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "InvalidBucketName":
		return as(ErrConfig, said)
	case "RequestTimeTooSkewed":
		return as(ErrConfig, said+"; this host's clock is wrong")
	case "SlowDown", "ServiceUnavailable", "InternalError", "RequestTimeout", "RequestTimeoutException":
		return as(ErrUnreachable, said)
	}
	switch {
	case status == 401, status == 403:
		return as(ErrDenied, said)
	case status == 404 && api.ErrorMessage() == "":
		return ErrNotExist
	case status == 412:
		return ErrExists
	case status == 301, status == 307:
		return as(ErrConfig, said+"; the bucket is in another region")
	case status >= 500 && status != 501:
		return as(ErrUnreachable, said)
	}
	return &answer{code: api.ErrorCode(), status: status, said: said}
}

// answer is a refusal that has no kind.
type answer struct {
	code   string
	status int
	said   errText
}

func (a *answer) Error() string { return string(a.said) }

// notImplemented tells whether the server does not know what it was asked.
func notImplemented(err error) bool {
	var a *answer
	return errors.As(err, &a) && (a.status == 501 || a.code == "NotImplemented")
}

// conflict tells whether another request of the same name was under way.
func conflict(err error) bool {
	var a *answer
	return errors.As(err, &a) && (a.status == 409 || a.code == "ConditionalRequestConflict")
}

func statusOf(err error) int {
	var r interface{ HTTPStatusCode() int }
	if errors.As(err, &r) {
		return r.HTTPStatusCode()
	}
	return 0
}

// shortError is what happened, without what the library was doing around it.
func shortError(err error) error {
	var stall *StallError
	var network *net.OpError
	var request *url.Error
	var op *smithy.OperationError
	switch {
	case errors.As(err, &stall):
		return stall
	case errors.As(err, &network):
		return network
	case errors.As(err, &request):
		return request.Err
	case errors.As(err, &op):
		return op.Err
	}
	return err
}
