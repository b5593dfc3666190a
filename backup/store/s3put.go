package store

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/middleware"
)

// mark is the name of the metadata by which an upload knows its own object again,
// when the answer to it was lost.
const mark = "etcdctl-plus-upload"

func (s *bucket) Put(ctx context.Context, name string, src io.ReaderAt, size int64, sum [32]byte, o PutOptions) error {
	return fail(ctx, "put", s.name, name, s.put(ctx, name, src, size, sum, o))
}

func (s *bucket) put(ctx context.Context, name string, src io.ReaderAt, size int64, sum [32]byte, o PutOptions) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if !o.Replace {
		// Before the work. Who may not look can still be allowed to write.
		switch _, err := s.head(ctx, name); {
		case err == nil:
			return ErrExists
		case !errors.Is(err, ErrNotExist) && !errors.Is(err, ErrDenied):
			return err
		}
	}
	u := &upload{s: s, name: name, src: src, size: size, sum: sum, replace: o.Replace, progress: &progress{tell: o.Progress}}
	for tries := 0; ; tries++ {
		u.mark, u.sent = token(), false
		err := u.run(ctx)
		switch {
		case notImplemented(err) && !o.Replace && !s.unconditional.Load():
			s.unconditional.Store(true)
		case conflict(err) && tries < 3:
		default:
			return err
		}
		u.progress.reset()
	}
}

// upload is one Put under way.
type upload struct {
	s        *bucket
	name     string
	src      io.ReaderAt
	size     int64
	sum      [32]byte
	replace  bool
	progress *progress
	mark     string
	sent     bool // what makes the object appear was sent: it may be there
}

// ifNoneMatch makes a request one that replaces nothing.
func (u *upload) ifNoneMatch() *string {
	if u.replace || u.s.unconditional.Load() {
		return nil
	}
	return aws.String("*")
}

func (u *upload) metadata() map[string]string { return map[string]string{mark: u.mark} }

func (u *upload) run(ctx context.Context) error {
	var want string // the server's checksum, as it writes it
	var err error
	if u.size <= u.s.partBytes {
		want, err = u.whole(ctx)
	} else {
		want, err = u.parts(ctx)
	}
	if err != nil && !u.sent {
		return err
	}
	return u.settle(ctx, want, err)
}

// settle compares what is stored, and finds out whether what failed was done after
// all: a request is sent again when its answer is lost, and then meets itself.
func (u *upload) settle(ctx context.Context, want string, failed error) error {
	if failed != nil && ctx.Err() != nil {
		return failed
	}
	out, err := u.s.head(ctx, u.name)
	if failed != nil {
		if err != nil || out.Metadata[mark] != u.mark {
			return failed
		}
	} else if err != nil {
		if errors.Is(err, ErrDenied) {
			return nil // who may only write; every request carried its checksum
		}
		return fmt.Errorf("look at what was stored: %w", err)
	}
	if out.Metadata[mark] != u.mark {
		return nil // replaced or changed by somebody since: not ours to judge
	}
	got := aws.ToString(out.ChecksumSHA256)
	size := aws.ToInt64(out.ContentLength)
	switch {
	case size != u.size:
		err = &ChecksumError{What: "the number of bytes in the store", Want: fmt.Sprint(u.size), Got: fmt.Sprint(size)}
	case got != "" && want != "" && got != want:
		err = &ChecksumError{What: "the SHA-256 that the store computed", Want: want, Got: got}
	default:
		return nil
	}
	// It is ours and wrong.
	if _, e := u.s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &u.s.bucket, Key: u.s.key(u.name)}); e != nil {
		return fmt.Errorf("%w; it could not be removed: %w", err, s3Error(e))
	}
	return err
}

// whole sends everything in one request, with the checksum the caller gave, after
// looking whether it is one of the source.
func (u *upload) whole(ctx context.Context) (string, error) {
	if err := copyChecked(ctx, io.Discard, u.src, u.size, u.sum, nil); err != nil {
		return "", err
	}
	want := base64.StdEncoding.EncodeToString(u.sum[:])
	u.sent = true
	body := u.progress.body(io.NewSectionReader(u.src, 0, u.size))
	_, err := u.s.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &u.s.bucket, Key: u.s.key(u.name), Body: body, ContentLength: &u.size, ChecksumSHA256: &want,
		IfNoneMatch: u.ifNoneMatch(), Metadata: u.metadata(), ContentType: aws.String("application/octet-stream"),
	}, signed(u.sum))
	return want, s3Error(err)
}

// signed gives the library the hash of a body that it would read once more for it.
func signed(sum [32]byte) func(*s3.Options) {
	return func(o *s3.Options) {
		o.APIOptions = append(slices.Clone(o.APIOptions), func(stack *middleware.Stack) error {
			return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("BodyHash", func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
				return next.HandleInitialize(v4.SetPayloadHash(ctx, hex.EncodeToString(sum[:])), in)
			}), middleware.Before)
		})
	}
}

// piece is one part of an object.
type piece struct {
	number int32
	off, n int64
	sum    [32]byte
}

func (u *upload) parts(ctx context.Context) (want string, err error) {
	created, err := u.s.client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{
		Bucket: &u.s.bucket, Key: u.s.key(u.name), ChecksumAlgorithm: types.ChecksumAlgorithmSha256, Metadata: u.metadata(),
		ContentType: aws.String("application/octet-stream"),
	})
	if err != nil {
		return "", s3Error(err)
	}
	defer func() {
		if err == nil {
			return
		}
		u.abort(ctx, created.UploadId) // err says more
	}()
	done, want, err := u.sendParts(ctx, created.UploadId)
	if err != nil {
		return "", err
	}
	u.sent = true
	_, err = u.s.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: &u.s.bucket, Key: u.s.key(u.name), UploadId: created.UploadId, IfNoneMatch: u.ifNoneMatch(),
		MultipartUpload: &types.CompletedMultipartUpload{Parts: done},
	})
	return want, s3Error(err)
}

// abort takes an upload back, also when ctx has ended. A part that the server was
// still taking in can come after that, so it is done again until the server knows
// nothing of the upload any more.
func (u *upload) abort(ctx context.Context, id *string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	for pause := 100 * time.Millisecond; pause < 4*time.Second; pause *= 2 {
		_, err := u.s.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &u.s.bucket, Key: u.s.key(u.name), UploadId: id})
		if errors.Is(s3Error(err), ErrNotExist) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// sendParts reads the source once for the checksums, in order, and once more for
// sending, part by part: the server compares each part with what was read first,
// and the first reading is compared with what the caller promised.
func (u *upload) sendParts(ctx context.Context, id *string) (done []types.CompletedPart, want string, err error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	size := max(u.s.partBytes, (u.size+maxParts-1)/maxParts)
	done = make([]types.CompletedPart, (u.size+size-1)/size)
	pieces := make(chan piece)
	var wg sync.WaitGroup
	for range min(u.s.connections, len(done)) {
		wg.Go(func() {
			for p := range pieces {
				c, err := u.sendPart(ctx, id, p)
				if err != nil {
					stop(err)
					continue // the sender must not wait for us
				}
				done[p.number-1] = c
			}
		})
	}
	sums, err := u.hashParts(ctx, size, pieces)
	if err != nil {
		stop(err)
	}
	close(pieces)
	wg.Wait()
	if cause := context.Cause(ctx); cause != nil {
		return nil, "", cause
	}
	all := sha256.Sum256(sums)
	return done, fmt.Sprintf("%s-%d", base64.StdEncoding.EncodeToString(all[:]), len(done)), nil
}

// hashParts hands over each part with its hash, compares the hash of all, and
// returns the parts' hashes one after the other.
func (u *upload) hashParts(ctx context.Context, size int64, pieces chan<- piece) (sums []byte, err error) {
	all := sha256.New()
	buf := make([]byte, 256<<10)
	for off := int64(0); off < u.size; off += size {
		p := piece{number: int32(off/size) + 1, off: off, n: min(size, u.size-off)}
		h := sha256.New()
		for at := off; at < off+p.n; {
			n := min(int64(len(buf)), off+p.n-at)
			if err := readFull(u.src, buf[:n], at); err != nil {
				return nil, err
			}
			h.Write(buf[:n])
			all.Write(buf[:n])
			at += n
		}
		h.Sum(p.sum[:0])
		sums = append(sums, p.sum[:]...)
		select {
		case pieces <- p:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if err := sameSum(all.Sum(nil), u.sum); err != nil {
		return nil, err
	}
	return sums, nil
}

func (u *upload) sendPart(ctx context.Context, id *string, p piece) (types.CompletedPart, error) {
	if err := ctx.Err(); err != nil {
		return types.CompletedPart{}, err
	}
	sum := base64.StdEncoding.EncodeToString(p.sum[:])
	out, err := u.s.client.UploadPart(ctx, &s3.UploadPartInput{
		Bucket: &u.s.bucket, Key: u.s.key(u.name), UploadId: id, PartNumber: &p.number,
		Body: u.progress.body(io.NewSectionReader(u.src, p.off, p.n)), ContentLength: &p.n, ChecksumSHA256: &sum,
	}, signed(p.sum))
	if err != nil {
		return types.CompletedPart{}, fmt.Errorf("part %d: %w", p.number, s3Error(err))
	}
	c := types.CompletedPart{PartNumber: &p.number, ETag: out.ETag, ChecksumSHA256: out.ChecksumSHA256}
	if got := aws.ToString(out.ChecksumSHA256); got != "" && got != sum {
		return c, &ChecksumError{What: fmt.Sprintf("the SHA-256 that the store computed of part %d", p.number), Want: sum, Got: got}
	}
	return c, nil
}

// progress adds up what several requests have sent.
type progress struct {
	mu   sync.Mutex
	sent int64
	tell func(int64)
}

func (p *progress) add(n int64) {
	if p.tell == nil || n == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent += n
	p.tell(p.sent)
}

func (p *progress) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent = 0
}

func (p *progress) body(r *io.SectionReader) io.ReadSeeker { return &counted{r: r, p: p} }

type counted struct {
	r   *io.SectionReader
	p   *progress
	pos int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.pos += int64(n)
	c.p.add(int64(n))
	return n, err
}

func (c *counted) Seek(off int64, whence int) (int64, error) {
	at, err := c.r.Seek(off, whence)
	if err == nil && whence != io.SeekEnd { // the library asks for the length from the end
		c.p.add(at - c.pos)
		c.pos = at
	}
	return at, err
}
