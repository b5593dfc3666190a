package dbfile_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest"
)

func gzipped(tb testing.TB, r io.Reader) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.Copy(w, r); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func zstandard(tb testing.TB, r io.Reader) []byte {
	tb.Helper()
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := io.Copy(w, r); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// zipOf packs files; names with a slash at the end are folders.
func zipOf(tb testing.TB, files ...any) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		f, err := w.Create(files[i].(string))
		if err != nil {
			tb.Fatal(err)
		}
		if r, ok := files[i+1].(io.Reader); ok {
			if _, err := io.Copy(f, r); err != nil {
				tb.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// Snapshots as k3s, RKE2 and scripts leave them, under any name.
func TestPacked(t *testing.T) {
	t.Parallel()
	b := build(t, 4096)
	var all []keyspace.Event
	for i := range int64(200) {
		rec := keyspace.Record{Key: fmt.Appendf(nil, "k%03d", i), Value: bytes.Repeat([]byte{byte(i)}, 3000), CreateRev: i + 2, ModRev: i + 2, Version: 1}
		all = append(all, keyspace.Event{Rev: keyspace.Revision{Main: i + 2}, Record: rec})
	}
	b.events(all)
	path := b.done()
	seal(t, path)
	db, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := records(t, open(t, path, dbfile.Options{}), keyspace.All())
	for name, packed := range map[string][]byte{
		"gzip":            gzipped(t, bytes.NewReader(db)),
		"zstd":            zstandard(t, bytes.NewReader(db)),
		"zip":             zipOf(t, "snapshots/", nil, "readme.txt", strings.NewReader("made by a script"), "snapshots/etcd-snapshot-1", bytes.NewReader(db)),
		"members of gzip": append(gzipped(t, bytes.NewReader(db[:9000])), gzipped(t, bytes.NewReader(db[9000:]))...),
	} {
		t.Run(name, func(t *testing.T) {
			dir, tmp := t.TempDir(), t.TempDir()
			file := filepath.Join(dir, "snapshot.db")
			write(t, file, packed)
			sourcetest.Untouched(t, dir)
			for _, o := range []dbfile.Options{{TempDir: tmp}, {TempDir: tmp, Copy: true}} {
				s := open(t, file, o)
				info, err := s.Info(t.Context())
				if err != nil || info.Kind != keyspace.Snapshot || info.Bytes != int64(len(db)-32) || s.Path() != file {
					t.Errorf("%+v, %v", info, err)
				}
				if got := records(t, s, keyspace.All()); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Error("other records than in the file itself")
				}
				left, err := os.ReadDir(tmp)
				if err != nil || len(left) != 1 {
					t.Fatal(left, err)
				}
				if i, err := left[0].Info(); err != nil || i.Mode().Perm() != 0o600 {
					t.Errorf("the private file has mode %v, %v", i.Mode(), err)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				if left, err := os.ReadDir(tmp); err != nil || len(left) != 0 {
					t.Error(left, err)
				}
			}
		})
	}
}

// A snapshot that was damaged before it was packed is found damaged, and named by
// its own path.
func TestPackedDamage(t *testing.T) {
	t.Parallel()
	b := build(t, 4096)
	b.put("meta", "filler", bytes.Repeat([]byte("x"), 20_000))
	path := b.done()
	seal(t, path)
	db, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	db[bytes.Index(db, []byte("xxxxxxxx"))+100] ^= 1
	file := filepath.Join(t.TempDir(), "packed")
	write(t, file, gzipped(t, bytes.NewReader(db)))
	s := open(t, file, dbfile.Options{TempDir: t.TempDir()})
	var sum *dbfile.ChecksumError
	if _, err := s.Info(t.Context()); !errors.As(err, &sum) || !strings.Contains(err.Error(), file) {
		t.Error(err)
	}
}

// A tar archive is named as what it is: the pages in it begin where second pages of
// a database might.
func TestTar(t *testing.T) {
	t.Parallel()
	b := build(t, 4096)
	b.put("meta", "k", []byte("v"))
	path := b.done()
	seal(t, path)
	db, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	if err := w.WriteHeader(&tar.Header{Name: "snapshot.db", Mode: 0o600, Size: int64(len(db))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(db); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"tar": packed.Bytes(), "tgz": gzipped(t, &packed)} {
		file := filepath.Join(t.TempDir(), "snapshot."+name)
		write(t, file, content)
		_, err := dbfile.Open(t.Context(), file, dbfile.Options{TempDir: t.TempDir()})
		if !errors.Is(err, keyspace.ErrNotDatabase) || !strings.Contains(err.Error(), "a tar archive") || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// zeros is a stream of zeros.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// header makes the beginning of a database that claims a number of pages.
func header(pages uint64) []byte {
	b := make([]byte, 8192)
	m := b[16:]
	binary.LittleEndian.PutUint32(m, 0xED0CDAED)
	binary.LittleEndian.PutUint32(m[4:], 2)
	binary.LittleEndian.PutUint32(m[8:], 4096)
	binary.LittleEndian.PutUint64(m[16:], 3)
	binary.LittleEndian.PutUint64(m[40:], pages)
	h := fnv.New64a()
	h.Write(m[:56])
	binary.LittleEndian.PutUint64(m[56:], h.Sum64())
	return b
}

// F54: archives that unpack to far more than they should end at their limit, and leave
// nothing behind. BenchmarkBomb has the time.
func TestBombs(t *testing.T) {
	t.Parallel()
	bomb := func(pages uint64, size int64) io.Reader {
		return io.MultiReader(bytes.NewReader(header(pages)), io.LimitReader(zeros{}, size))
	}
	const large = 256 << 20
	for name, c := range map[string]struct {
		packed []byte
		limit  int64
		want   error
		say    string
	}{
		"gzip of zeros":         {gzipped(t, io.LimitReader(zeros{}, large)), 0, keyspace.ErrNotDatabase, "full of zeros"},
		"behind the database":   {gzipped(t, bomb(10, large)), 0, dbfile.ErrUnpack, "goes on behind the database"},
		"zstd, right in size":   {zstandard(t, bomb(large/4096, large)), 0, dbfile.ErrUnpack, "times its own size"},
		"gzip, right in size":   {gzipped(t, bomb(large/4096, large)), 0, dbfile.ErrUnpack, "times its own size"},
		"zip":                   {zipOf(t, "a", bomb(large/4096, large)), 0, dbfile.ErrUnpack, "times its own size"},
		"a limit of one's own":  {gzipped(t, bomb(1000, 1000*4096)), 1 << 20, dbfile.ErrUnpack, "more than 1 MB"},
		"a limit of some bytes": {gzipped(t, bomb(1000, 1000*4096)), 1000, dbfile.ErrUnpack, "more than 1000 bytes"},
		"claims much":           {gzipped(t, bomb(1<<50, 1000)), 0, dbfile.ErrUnpack, "more than 16384 MB"},
	} {
		t.Run(name, func(t *testing.T) {
			tmp := t.TempDir()
			file := filepath.Join(t.TempDir(), "bomb")
			write(t, file, c.packed)
			_, err := dbfile.Open(t.Context(), file, dbfile.Options{TempDir: tmp, UnpackLimit: c.limit})
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.say) || !strings.Contains(err.Error(), file) {
				t.Errorf("%v", err)
			}
			if left, err := os.ReadDir(tmp); err != nil || len(left) != 0 {
				t.Error(left, err)
			}
		})
	}
}

// F54 wants a second at most; the largest a ratio lets through of this size.
func BenchmarkBomb(b *testing.B) {
	file := filepath.Join(b.TempDir(), "bomb")
	const large = 256 << 20
	write(b, file, gzipped(b, io.MultiReader(bytes.NewReader(header(large/4096)), io.LimitReader(zeros{}, large))))
	for b.Loop() {
		if _, err := dbfile.Open(b.Context(), file, dbfile.Options{TempDir: b.TempDir()}); !errors.Is(err, dbfile.ErrUnpack) {
			b.Fatal(err)
		}
	}
}

func TestPackedWrong(t *testing.T) {
	t.Parallel()
	db := someDatabase(t)
	gz, zs := gzipped(t, bytes.NewReader(db)), zstandard(t, bytes.NewReader(db))
	many := []any{}
	for i := range 1001 {
		many = append(many, fmt.Sprint(i), strings.NewReader("x"))
	}
	flipped := bytes.Clone(gz)
	flipped[len(flipped)-5] ^= 1
	encrypted := zipOf(t, "a", bytes.NewReader(db))
	encrypted[6] |= 1
	encrypted[bytes.Index(encrypted, []byte("PK\x01\x02"))+8] |= 1
	for name, c := range map[string]struct {
		packed []byte
		want   error
		say    string
	}{
		"gzip cut":        {gz[:len(gz)/2], keyspace.ErrCorrupt, "cut short"},
		"gzip head":       {gz[:8], keyspace.ErrCorrupt, "cut short"},
		"gzip checksum":   {flipped, keyspace.ErrCorrupt, "checksum"},
		"zstd cut":        {zs[:len(zs)/2], keyspace.ErrCorrupt, "cut short"},
		"zstd junk":       {append([]byte("\x28\xb5\x2f\xfd"), bytes.Repeat([]byte{0xff}, 100)...), keyspace.ErrCorrupt, "damaged"},
		"gzip of gzip":    {gzipped(t, bytes.NewReader(gz)), keyspace.ErrNotDatabase, "a gzip archive of something that is a gzip archive"},
		"gzip of text":    {gzipped(t, strings.NewReader("hello, world")), keyspace.ErrNotDatabase, "text"},
		"gzip of nothing": {gzipped(t, strings.NewReader("")), keyspace.ErrNotDatabase, "nothing"},
		"two":             {zipOf(t, "a", bytes.NewReader(db), "b", bytes.NewReader(db)), keyspace.ErrNotDatabase, `several databases, "a" and "b"`},
		"none":            {zipOf(t, "a", strings.NewReader("x"), "b", strings.NewReader("")), keyspace.ErrNotDatabase, "2 files, none of which is a database"},
		"many":            {zipOf(t, many...), dbfile.ErrUnpack, "more than 1000 files"},
		"encrypted":       {encrypted, keyspace.ErrNotDatabase, "encrypted"},
		"zip cut":         {encrypted[:len(encrypted)/2], keyspace.ErrCorrupt, "zip archive is damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			tmp := t.TempDir()
			file := filepath.Join(t.TempDir(), "packed")
			write(t, file, c.packed)
			_, err := dbfile.Open(t.Context(), file, dbfile.Options{TempDir: tmp})
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.say) {
				t.Errorf("%v", err)
			}
			if left, err := os.ReadDir(tmp); err != nil || len(left) != 0 {
				t.Error(left, err)
			}
		})
	}
}
