package store

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// The lock of a bucket is an object with its owner's record, which appears by a
// conditional request and is written again, by one too, from time to time. How old
// it is, is the difference of two times that the server gave. Where the server
// knows no conditional requests the lock is made of flags (see flags.go).

func (s *bucket) Lock(ctx context.Context, name string, o LockOptions) (*Lock, error) {
	if err := CheckName(name); err != nil {
		return nil, fail(ctx, "lock", s.name, name, err)
	}
	me := newOwner(o.ttl())
	since := time.Now()
	h := &heldObject{s: s, name: name}
	switch err := h.acquire(ctx, me); {
	case notImplemented(err):
		return raise(ctx, s, s.name, name, o)
	case err != nil:
		return nil, fail(ctx, "lock", s.name, name, err)
	}
	return keep(ctx, me, since, h.refresh, h.release), nil
}

// heldObject is the object of a lock.
type heldObject struct {
	s    *bucket
	name string
	me   Owner
	etag *string // of our last record
}

func (h *heldObject) acquire(ctx context.Context, me Owner) error {
	h.me = me
	err := h.write(ctx, me, nil)
	for tries := 0; (errors.Is(err, ErrExists) || conflict(err)) && tries < 3; tries++ {
		var now *record
		now, err = h.read(ctx)
		switch {
		case errors.Is(err, ErrNotExist): // released
			err = h.write(ctx, me, nil)
			continue
		case err != nil:
			return err
		case now.owner.Token == me.Token: // the answer was lost, the request was not
			h.etag = now.etag
			return nil
		case now.owner.Token == "":
			return asf(ErrExists, "it is no lock of this program")
		case now.age < now.owner.ttl()+time.Second: // the server's times are whole seconds
			return &LockedError{h.name, now.owner}
		}
		err = h.write(ctx, me, now.etag)
		if errors.Is(err, ErrNotExist) {
			err = ErrExists // it went meanwhile; look again
		}
	}
	if errors.Is(err, ErrExists) || conflict(err) {
		return &LockedError{Name: h.name}
	}
	if err != nil {
		return err
	}
	// A server that ignores conditions lets two writers through. The later one has it.
	now, err := h.read(ctx)
	if err == nil && now.owner.Token != me.Token {
		return &LockedError{h.name, now.owner}
	}
	return err
}

// write stores the record if there is none (etag nil), or in place of the one
// with the etag.
func (h *heldObject) write(ctx context.Context, o Owner, etag *string) error {
	b := o.bytes()
	sum := sha256.Sum256(b)
	in := &s3.PutObjectInput{
		Bucket: &h.s.bucket, Key: h.s.key(h.name), Body: strings.NewReader(string(b)), ContentLength: aws.Int64(int64(len(b))),
		ChecksumSHA256: aws.String(base64.StdEncoding.EncodeToString(sum[:])), IfMatch: etag, ContentType: aws.String("application/json"),
	}
	if etag == nil {
		in.IfNoneMatch = aws.String("*")
	}
	out, err := h.s.client.PutObject(ctx, in, signed(sum))
	if err != nil {
		return s3Error(err)
	}
	h.etag = out.ETag
	return nil
}

// record is a lock as it lies in the bucket.
type record struct {
	owner Owner
	etag  *string
	age   time.Duration
}

func (h *heldObject) read(ctx context.Context) (*record, error) {
	out, err := h.s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &h.s.bucket, Key: h.s.key(h.name)})
	if err != nil {
		return nil, s3Error(err)
	}
	defer out.Body.Close()
	b, err := io.ReadAll(io.LimitReader(out.Body, 4096))
	if err != nil {
		return nil, as(ErrUnreachable, err)
	}
	r := &record{owner: readOwner(b), etag: out.ETag}
	// Without the server's time of now there is no age, and nothing is taken over.
	if resp, ok := awsmiddleware.GetRawResponse(out.ResultMetadata).(*smithyhttp.Response); ok {
		if now, err := http.ParseTime(resp.Header.Get("Date")); err == nil && out.LastModified != nil {
			r.age = now.Sub(*out.LastModified)
		}
	}
	return r, nil
}

func (h *heldObject) refresh(ctx context.Context, o Owner) error {
	err := h.write(ctx, o, h.etag)
	if !errors.Is(err, ErrExists) && !errors.Is(err, ErrNotExist) {
		return err
	}
	now, e := h.read(ctx)
	switch {
	case errors.Is(e, ErrNotExist):
		return ErrLockLost
	case e != nil:
		return e
	case now.owner.Token != h.me.Token:
		return as(ErrLockLost, &LockedError{h.name, now.owner})
	}
	h.etag = now.etag // ours: the answer was lost, the request was not
	return nil
}

func (h *heldObject) release(ctx context.Context) error {
	now, err := h.read(ctx)
	if errors.Is(err, ErrNotExist) || err == nil && now.owner.Token != h.me.Token {
		return nil
	}
	if err == nil {
		_, err = h.s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &h.s.bucket, Key: h.s.key(h.name)})
		err = s3Error(err)
	}
	return fail(ctx, "unlock", h.s.name, h.name, err)
}
