package dbfile

import (
	"archive/zip"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"filippo.io/age"
	"filippo.io/age/armor"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// Packed snapshots, as k3s, RKE2 and backup scripts leave them, are known by their
// first bytes and unpacked into a private file.
const (
	magicGzip = "\x1f\x8b"
	magicZstd = "\x28\xb5\x2f\xfd"
	magicZip  = "PK\x03\x04"
	magicAge  = "age-encryption.org/v1\n" // https://age-encryption.org/v1
)

// The kinds of packing, as Source.Packing names them.
const (
	kindGzip = "gzip"
	kindZstd = "zstd"
	kindZip  = "zip"
	kindAge  = "age"
)

// headLen is how much of a file tells how it is packed.
const headLen = len(armor.Header)

// ErrEncrypted is wrapped when a file is encrypted to recipients whose identity is not
// at hand.
var ErrEncrypted = errors.New("it is encrypted with age")

// EncryptedError says that no identity opens a file. It wraps ErrEncrypted.
type EncryptedError struct {
	Path string
	Had  int // identities that were tried
}

func (e *EncryptedError) Error() string {
	if e.Had == 0 {
		return fmt.Sprintf("open %s: %v, and no identity was given", e.Path, ErrEncrypted)
	}
	if e.Had == 1 {
		return fmt.Sprintf("open %s: %v, and not to the identity that was given", e.Path, ErrEncrypted)
	}
	return fmt.Sprintf("open %s: %v, and to none of the %d identities given", e.Path, ErrEncrypted, e.Had)
}

// Unwrap makes errors.Is(err, ErrEncrypted) true.
func (e *EncryptedError) Unwrap() error { return ErrEncrypted }

// Without a limit of the caller's own a file may unpack to this much. A database
// that is larger than its archive by the ratio, and than the smaller size, is no
// database that anybody packed.
const (
	defaultUnpackLimit = 16 << 30
	unpackRatio        = 250
	unpackFree         = 128 << 20
	// etcd makes its file grow ahead of what it uses, by less than this.
	unpackSlack = 64 << 20
	// A window larger than this is memory that no packer needs for its gain.
	zstdWindow = 128 << 20
	// Archives with more files are not looked through.
	zipFiles = 1000
)

// ErrUnpack is wrapped when an archive holds more than it should.
var ErrUnpack = errors.New("the archive is not unpacked any further")

// UnpackError says why an archive is not unpacked. It wraps ErrUnpack.
type UnpackError struct {
	Path   string
	Reason string
	Limit  int64 // bytes; 0: it is not about size
}

func (e *UnpackError) Error() string {
	return fmt.Sprintf("unpack %s: %s: %v", e.Path, e.Reason, ErrUnpack)
}

// Unwrap makes errors.Is(err, ErrUnpack) true.
func (e *UnpackError) Unwrap() error { return ErrUnpack }

// packed names the kind of packing that starts with head; empty for none that is
// undone here.
func packed(head []byte) string {
	for kind, magic := range map[string]string{kindGzip: magicGzip, kindZstd: magicZstd, kindZip: magicZip, kindAge: magicAge} {
		if bytes.HasPrefix(head, []byte(magic)) {
			return kind
		}
	}
	if bytes.HasPrefix(head, []byte(armor.Header)) {
		return kindAge
	}
	return ""
}

// Packing names what the file was packed with, from the inside out: "gzip", "zstd",
// "zip", "age"; nil: it was not.
func (s *Source) Packing() []string { return s.packing }

// unpack replaces an opened archive by a private file with the database in it. Of
// any other file it does nothing.
func (s *Source) unpack(ctx context.Context, o Options) error {
	head := make([]byte, headLen)
	n, err := s.f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read %s: %w", s.file, err)
	}
	kind := packed(head[:n])
	if kind == "" {
		return nil
	}
	st, err := s.f.Stat()
	if err != nil {
		return fmt.Errorf("read %s: %w", s.file, err)
	}
	u := unpacker{path: s.file, kind: kind, packed: st.Size(), limit: o.UnpackLimit, ratio: o.UnpackLimit <= 0, identities: o.Identities}
	if o.UnpackLimit <= 0 {
		u.limit = defaultUnpackLimit
	}
	dst, err := os.CreateTemp(o.TempDir, "etcdctl-plus-*.db") // 0600, and a name nobody else has
	if err != nil {
		return fmt.Errorf("unpack %s: %w", s.file, err)
	}
	if err := u.run(ctx, dst, s.f); err != nil {
		st, serr := dst.Stat()
		if !o.Damaged || !errors.Is(err, keyspace.ErrCorrupt) || serr != nil || st.Size() == 0 {
			return errors.Join(err, dst.Close(), os.Remove(dst.Name()))
		}
		s.cut = err // what came before it is there
	}
	s.f.Close()
	s.f, s.remove, s.packing = dst, dst.Name(), u.kinds
	return nil
}

// size tells a number of bytes, in MB where it has some.
func size(n int64) string {
	if n < 10<<20 && n != n>>20<<20 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%d MB", n>>20)
}

type unpacker struct {
	path   string
	kind   string
	packed int64 // bytes of the archive
	limit  int64
	ratio  bool // compare the sizes, too
	in     *counter

	identities []age.Identity
	kinds      []string // from the inside out
}

// counter counts what is read of an archive.
type counter struct {
	f *os.File
	n int64
}

func (c *counter) ReadAt(p []byte, at int64) (int, error) {
	n, err := c.f.ReadAt(p, at)
	c.n += int64(n)
	return n, err
}

func (u *unpacker) run(ctx context.Context, dst, src *os.File) error {
	u.in = &counter{f: src}
	var in io.Reader = &ctxReader{ctx: ctx, r: io.NewSectionReader(u.in, 0, u.packed)}
	if u.kind == kindAge {
		r, err := u.decrypt(in)
		if err != nil {
			return err
		}
		inner := bufio.NewReaderSize(r, 64<<10)
		head, err := inner.Peek(headLen)
		if err != nil && !errors.Is(err, io.EOF) {
			return u.damaged(err)
		}
		u.kinds = []string{kindAge}
		if u.kind = packed(head); u.kind == "" {
			u.kind = kindAge
			return u.copy(ctx, dst, inner)
		}
		in = inner
	}
	u.kinds = append([]string{u.kind}, u.kinds...)
	switch u.kind {
	case kindGzip:
		r, err := gzip.NewReader(in)
		if err != nil {
			return u.damaged(err)
		}
		return u.copy(ctx, dst, r)
	case kindZstd:
		r, err := zstd.NewReader(in, zstd.WithDecoderMaxWindow(zstdWindow), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return u.damaged(err)
		}
		defer r.Close()
		return u.copy(ctx, dst, r)
	case kindZip:
		if len(u.kinds) == 1 {
			return u.zip(ctx, dst)
		}
	}
	return &NotDatabaseError{Path: u.path, What: fmt.Sprintf("a %s file inside an encrypted one", u.kind), Hint: "decrypt it first, with age"}
}

// decrypt opens a file encrypted with age, armored or not.
func (u *unpacker) decrypt(in io.Reader) (io.Reader, error) {
	if len(u.identities) == 0 {
		return nil, &EncryptedError{Path: u.path}
	}
	b := bufio.NewReader(in)
	if head, err := b.Peek(len(armor.Header)); err == nil && string(head) == armor.Header {
		in = armor.NewReader(b)
	} else {
		in = b
	}
	r, err := age.Decrypt(in, u.identities...)
	var none *age.NoIdentityMatchError
	switch {
	case errors.As(err, &none):
		return nil, &EncryptedError{Path: u.path, Had: len(u.identities)}
	case err != nil:
		return nil, u.damaged(err)
	}
	return r, nil
}

// zip unpacks the only database of a zip archive.
func (u *unpacker) zip(ctx context.Context, dst *os.File) error {
	z, err := zip.NewReader(u.in, u.packed)
	if err != nil {
		return u.damaged(err)
	}
	var db *zip.File
	files := 0
	for _, f := range z.File {
		if !f.Mode().IsRegular() {
			continue
		}
		if files++; files > zipFiles {
			return &UnpackError{Path: u.path, Reason: fmt.Sprintf("it holds more than %d files", zipFiles)}
		}
		is, err := u.isDatabase(f)
		switch {
		case err != nil:
			return err
		case is && db != nil:
			return &NotDatabaseError{Path: u.path, What: fmt.Sprintf("a zip archive of several databases, %q and %q", db.Name, f.Name), Hint: "unpack the one you want"}
		case is:
			db = f
		}
	}
	if db == nil {
		return &NotDatabaseError{Path: u.path, What: fmt.Sprintf("a zip archive of %s, none of which is a database", plural(files, "file", "files"))}
	}
	r, err := db.Open()
	if err != nil {
		return u.damaged(err)
	}
	defer r.Close()
	return u.copy(ctx, dst, r)
}

// isDatabase looks at the beginning of a file in a zip archive.
func (u *unpacker) isDatabase(f *zip.File) (bool, error) {
	if f.Flags&1 != 0 {
		return false, &NotDatabaseError{Path: u.path, What: fmt.Sprintf("a zip archive whose file %q is encrypted", f.Name), Hint: "unpack it with its password first"}
	}
	r, err := f.Open()
	if err != nil {
		return false, u.damaged(err)
	}
	defer r.Close()
	head := make([]byte, pageHeaderLen+8)
	n, err := fill(r, head)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, u.damaged(err)
	}
	return hasMagic(head[:n]), nil
}

// copy unpacks what is a database, up to its limits. The first pages say how large
// it is.
func (u *unpacker) copy(ctx context.Context, dst io.Writer, r io.Reader) error {
	buf := make([]byte, 2*maxPageSize)
	n, err := fill(r, buf)
	end := errors.Is(err, io.EOF)
	if err != nil && !end {
		return u.damaged(err)
	}
	m, reason := newestMeta(buf[:n])
	if reason != "" && !hasMagic(buf[:n]) {
		what, _ := foreign(buf[:min(n, pageHeaderLen+metaLen+512)])
		if n == 0 {
			what = "nothing"
		}
		return &NotDatabaseError{Path: u.path, What: fmt.Sprintf("a %s archive of something that is %s", strings.Join(u.kinds, " and "), what)}
	}
	most, why := u.limit, "it holds more than "+size(u.limit)
	if own := int64(min(m.pages, 1<<40)*m.pageSize) + unpackSlack; reason == "" && own < most {
		most, why = own, fmt.Sprintf("it goes on behind the database of %s in it", size(own-unpackSlack))
	}
	if reason == "" && int64(min(m.pages, 1<<40)*m.pageSize) > u.limit {
		return u.tooLarge(why)
	}
	for total := int64(0); ; {
		if total += int64(n); total > most {
			return u.tooLarge(why)
		}
		if u.ratio && total > unpackFree+unpackRatio*u.in.n {
			return u.tooLarge(fmt.Sprintf("it holds more than %d times its own size, as no database does", unpackRatio))
		}
		if _, err := dst.Write(buf[:n]); err != nil {
			return fmt.Errorf("unpack %s: %w", u.path, err)
		}
		if end {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err = fill(r, buf)
		end = errors.Is(err, io.EOF)
		if err != nil && !end {
			return u.damaged(err)
		}
	}
}

// fill reads until buf is full. io.EOF is the end as the archive has it, any other
// error is one.
func fill(r io.Reader, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		var m int
		m, err = r.Read(buf[n:])
		n += m
	}
	return n, err
}

func (u *unpacker) tooLarge(why string) error {
	return &UnpackError{Path: u.path, Reason: why, Limit: u.limit}
}

// damaged tells a broken archive from a medium that fails.
func (u *unpacker) damaged(err error) error {
	var pathErr *os.PathError
	switch {
	case errors.As(err, &pathErr), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("unpack %s: %w", u.path, err)
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return &UnpackError{Path: u.path, Reason: fmt.Sprintf("it wants a window of more than %d MB of memory", zstdWindow>>20)}
	case errors.Is(err, zip.ErrAlgorithm):
		return &NotDatabaseError{Path: u.path, What: "a zip archive packed in a way that is not known here", Hint: "unpack it first, with unzip"}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("it is cut short")
	}
	return fmt.Errorf("unpack %s: the %s archive is damaged: %w: %w", u.path, u.kind, err, keyspace.ErrCorrupt)
}
