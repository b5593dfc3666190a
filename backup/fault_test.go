package backup_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"
	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/backup"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sandbox"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest"
)

// booted is an empty etcd and a client of it.
func booted(tb testing.TB) (*sandbox.Sandbox, *clientv3.Client) {
	tb.Helper()
	s, err := sandbox.Start(tb.Context(), sandbox.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	c, err := s.Client()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	return s, c
}

// small is a snapshot of a few hundred kB with leases, history, deletions and a
// compaction.
func small(tb testing.TB) []byte {
	tb.Helper()
	_, c := booted(tb)
	lease, err := c.Grant(tb.Context(), 10_000)
	if err != nil {
		tb.Fatal(err)
	}
	for i := range 400 {
		size := 30
		if i%80 == 0 {
			size = 9_000
		}
		var o []clientv3.OpOption
		if i%7 == 0 {
			o = append(o, clientv3.WithLease(lease.ID))
		}
		if _, err := c.Put(tb.Context(), fmt.Sprintf("/things/%03d", i%150), strings.Repeat("x", size), o...); err != nil {
			tb.Fatal(err)
		}
		if i%40 == 39 {
			if _, err := c.Delete(tb.Context(), fmt.Sprintf("/things/%03d", i%150)); err != nil {
				tb.Fatal(err)
			}
		}
	}
	if _, err := c.Compact(tb.Context(), compactedAt, clientv3.WithCompactPhysical()); err != nil {
		tb.Fatal(err)
	}
	b, err := os.ReadFile(sourcetest.SaveSnapshot(tb, c))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func write(tb testing.TB, path string, b []byte) {
	tb.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		tb.Fatal(err)
	}
}

// compactedAt is where small is compacted.
const compactedAt = 200

// history is all that a file says of keys and revisions, record by record, without values;
// "" when it says nothing. At or below the compact revision the number of a change in its
// revision is left out: there is nothing beside it to tell by.
func history(tb testing.TB, path string) string {
	s, err := dbfile.Open(tb.Context(), path, dbfile.Options{IgnoreChecksum: true})
	if err != nil {
		return ""
	}
	defer s.Close()
	var b strings.Builder
	err = s.Each(tb.Context(), "key", func(key, value []byte) error {
		var kv mvccpb.KeyValue
		if err := proto.Unmarshal(value, &kv); err != nil {
			return err
		}
		rev := bytes.Clone(key)
		if len(rev) >= 17 && binary.BigEndian.Uint64(rev) <= compactedAt {
			clear(rev[9:17])
		}
		fmt.Fprintf(&b, "%x %q %d %d %d\n", rev, kv.Key, kv.CreateRevision, kv.ModRevision, kv.Version)
		return nil
	})
	if err != nil {
		return ""
	}
	return b.String()
}

// packedForms are the forms that a backup is stored in.
func packedForms(tb testing.TB, plain []byte) (map[string][]byte, dbfile.Options) {
	tb.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		tb.Fatal(err)
	}
	pack := func(wrap func(io.Writer) (io.WriteCloser, error)) []byte {
		var b bytes.Buffer
		w, err := wrap(&b)
		if err != nil {
			tb.Fatal(err)
		}
		if _, err := w.Write(plain); err != nil {
			tb.Fatal(err)
		}
		if err := w.Close(); err != nil {
			tb.Fatal(err)
		}
		return b.Bytes()
	}
	return map[string][]byte{
		"plain": plain,
		"zstd":  pack(func(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w, zstd.WithEncoderCRC(true)) }),
		"age":   pack(func(w io.Writer) (io.WriteCloser, error) { return age.Encrypt(w, id.Recipient()) }),
	}, dbfile.Options{Identities: []age.Identity{id}}
}

func manifestOf(tb testing.TB, b []byte, r *backup.Report) *backup.Manifest {
	tb.Helper()
	sum := sha256.Sum256(b)
	return &backup.Manifest{Bytes: int64(len(b)), SHA256: hex.EncodeToString(sum[:]), Revision: r.Revision, CompactRev: r.CompactRev, HashKV: r.HashKV}
}

// F17: a bit flipped anywhere in a stored file is found. Of a packed one the flip may be
// where it changes nothing of what is unpacked; the manifest finds it there.
func TestFlips(t *testing.T) {
	t.Parallel()
	plain := small(t)
	forms, o := packedForms(t, plain)
	for name, whole := range forms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "f.db")
			write(t, path, whole)
			o := o
			o.TempDir = t.TempDir()
			r, found := verify(t, path, backup.VerifyOptions{Level: backup.LevelHash, File: o})
			if r.Verdict != backup.Healthy || len(found) > 0 {
				t.Fatalf("the whole file: %+v %v", r, found)
			}
			m := manifestOf(t, whole, r)
			rng := rand.New(rand.NewPCG(17, 17))
			same := 0
			for range 1000 {
				b := bytes.Clone(whole)
				at, bit := rng.IntN(len(b)), byte(1)<<rng.IntN(8)
				b[at] ^= bit
				write(t, path, b)
				r, _ := verify(t, path, backup.VerifyOptions{Level: backup.LevelHash, File: o})
				if r.Verdict != backup.Damaged {
					// A file that is encrypted to somebody else is not opened at all.
					if same++; name == "plain" || r.Verdict == backup.Healthy && *r.HashKV != *m.HashKV {
						t.Errorf("byte %d, bit %d: %s", at, bit, r.Verdict)
					}
				}
				if r, _ := verify(t, path, backup.VerifyOptions{Level: backup.LevelSeal, File: o, Manifest: m}); r.Verdict != backup.Damaged {
					t.Errorf("byte %d, bit %d: %s against the manifest", at, bit, r.Verdict)
				}
			}
			t.Logf("%d of 1000 flips changed nothing of what is in it", same)
			if same > 50 {
				t.Errorf("%d flips were not found", same)
			}
			if left, _ := os.ReadDir(o.TempDir); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// F17, resealed: with a checksum that fits, everything about structure, keys and
// revisions is found but for the name of a key with a single record, which nothing else
// knows. What is not, is in values, leases or bytes without use; the manifest finds that too.
func TestResealedFlips(t *testing.T) {
	t.Parallel()
	whole := small(t)
	path := filepath.Join(t.TempDir(), "f.db")
	write(t, path, whole)
	r, _ := verify(t, path, backup.VerifyOptions{Level: backup.LevelHash})
	m, before := manifestOf(t, whole, r), history(t, path)
	rng := rand.New(rand.NewPCG(18, 18))
	undetectable := 0
	pages := whole[:len(whole)-sha256.Size]
	for i := range 1000 {
		b := bytes.Clone(pages)
		at := rng.IntN(len(b))
		if i%2 == 0 { // heads of pages and elements, of which a file has few
			at = at/4096*4096 + at%512
		}
		bit := byte(1) << rng.IntN(8)
		b[at] ^= bit
		sum := sha256.Sum256(b)
		write(t, path, append(b, sum[:]...))
		begin := time.Now()
		r, _ := verify(t, path, backup.VerifyOptions{Level: backup.LevelRecords})
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("byte %d: it took %v", at, took)
		}
		if r.Verdict == backup.Damaged {
			continue
		}
		undetectable++
		if after := history(t, path); r.Warnings == 0 && after != before && !loneKey(before, after) {
			t.Errorf("byte %d, bit %d: keys or revisions changed, and nothing was found\n%s", at, bit, diffLines(before, after))
		}
		if r, _ := verify(t, path, backup.VerifyOptions{Level: backup.LevelSeal, Manifest: m}); r.Verdict != backup.Damaged {
			t.Errorf("byte %d, bit %d: %s against the manifest", at, bit, r.Verdict)
		}
	}
	t.Logf("%d of 1000 resealed flips cannot be found without the manifest", undetectable)
	if undetectable == 1000 {
		t.Error("nothing was found at all")
	}
}

// F18: cut at every page boundary, one byte before and behind.
func TestTruncated(t *testing.T) {
	t.Parallel()
	plain := small(t)
	forms, o := packedForms(t, plain)
	for name, whole := range forms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "f.db")
			step := 4096
			if name != "plain" {
				step = max(1, len(whole)/100)
			}
			o := o
			o.TempDir = t.TempDir()
			for at := 0; at < len(whole); at += step {
				for _, n := range []int{at - 1, at, at + 1} {
					if n < 0 || n >= len(whole) {
						continue
					}
					write(t, path, whole[:n])
					r, found := verify(t, path, backup.VerifyOptions{Level: backup.LevelHash, File: o})
					if r.Verdict != backup.Damaged {
						t.Errorf("cut to %d bytes: %s %v", n, r.Verdict, found)
					}
				}
			}
			// F19: something appended.
			for _, more := range [][]byte{{0}, make([]byte, 32), make([]byte, 4096), whole} {
				write(t, path, slices.Concat(whole, more))
				r, _ := verify(t, path, backup.VerifyOptions{Level: backup.LevelHash, File: o})
				// A second zstd frame is a part of the first one's data, zeros behind a
				// frame are skipped by no decoder.
				if r.Verdict != backup.Damaged {
					t.Errorf("%d bytes appended: %s", len(more), r.Verdict)
				}
			}
		})
	}
}

// F20: a copy of a running member's file is looked at, and called what it is.
func TestMemberCopy(t *testing.T) {
	t.Parallel()
	s, c := booted(t)
	for i := range 100 {
		if _, err := c.Put(t.Context(), fmt.Sprint("k", i), "v"); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(200 * time.Millisecond) // it writes ten times a second
	b, err := os.ReadFile(filepath.Join(s.DataDir(), "member", "snap", "db"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "copy")
	write(t, path, b)
	r, found := verify(t, path, backup.VerifyOptions{Level: backup.LevelHash})
	if r.Verdict != backup.Unsealed || len(found) > 0 || r.Records < 100 {
		t.Errorf("%+v %v", r, found)
	}
	// The folder of the running one: only a copy of it may be read.
	if _, err := backup.Verify(t.Context(), s.DataDir(), backup.VerifyOptions{Level: backup.LevelHash}); err == nil {
		t.Error("the file of a running etcd was read in place")
	}
	r, found = verify(t, s.DataDir(), backup.VerifyOptions{Level: backup.LevelHash, File: dbfile.Options{Copy: true, TempDir: t.TempDir()}})
	if r.Verdict != backup.Unsealed || len(found) > 0 {
		t.Errorf("%+v %v", r, found)
	}
}

// F21: records that contradict each other, made with bbolt, in a file that is sealed.
func TestWrongRecords(t *testing.T) {
	t.Parallel()
	type rec struct {
		main      int64
		tombstone bool
		kv        *mvccpb.KeyValue
		raw       []byte // of the value, when not nil
		rawKey    []byte
	}
	kv := func(key string, create, mod, version, lease int64) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{Key: []byte(key), Value: []byte("v"), CreateRevision: create, ModRevision: mod, Version: version, Lease: lease}
	}
	for name, c := range map[string]struct {
		recs    []rec
		says    string
		warning bool
	}{
		"a gap in versions":          {[]rec{{main: 2, kv: kv("a", 2, 2, 1, 0)}, {main: 3, kv: kv("a", 2, 3, 3, 0)}}, `revision 3, key "a": version 3`, false},
		"another mod revision":       {[]rec{{main: 2, kv: kv("a", 2, 2, 1, 0)}, {main: 3, kv: kv("a", 2, 4, 2, 0)}}, "says that it was written at revision 4", false},
		"created after written":      {[]rec{{main: 2, kv: kv("a", 5, 2, 1, 0)}}, "created at revision 5", false},
		"version 0":                  {[]rec{{main: 2, kv: kv("a", 2, 2, 0, 0)}}, "version 0", false},
		"first version is not 1":     {[]rec{{main: 2, kv: kv("a", 2, 2, 4, 0)}}, "version 4", false},
		"deleted twice":              {[]rec{{main: 2, kv: kv("a", 2, 2, 1, 0)}, {main: 3, tombstone: true, kv: kv("a", 0, 0, 0, 0)}, {main: 4, tombstone: true, kv: kv("a", 0, 0, 0, 0)}}, "deleted twice", false},
		"goes on behind a deletion":  {[]rec{{main: 2, kv: kv("a", 2, 2, 1, 0)}, {main: 3, tombstone: true, kv: kv("a", 0, 0, 0, 0)}, {main: 4, kv: kv("a", 2, 4, 2, 0)}}, "follows a deletion", false},
		"deleted and never created":  {[]rec{{main: 2, tombstone: true, kv: kv("a", 0, 0, 0, 0)}}, "nothing before that is there", false},
		"created again in between":   {[]rec{{main: 2, kv: kv("a", 2, 2, 1, 0)}, {main: 3, kv: kv("a", 3, 3, 1, 0)}}, "follows version 1", false},
		"a key that does not decode": {[]rec{{rawKey: []byte("short"), kv: kv("a", 2, 2, 1, 0)}}, "has the wrong length", false},
		"a value that does not":      {[]rec{{main: 2, raw: []byte{0xff, 0xff}}}, "does not decode", false},
		"no key in it":               {[]rec{{main: 2, kv: kv("", 2, 2, 1, 0)}}, "no key", false},
		"a lease that is not there":  {[]rec{{main: 2, kv: kv("a", 2, 2, 1, 77)}}, "000000000000004d", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "built.db")
			db, err := bolt.Open(path, 0o600, &bolt.Options{NoFreelistSync: true, NoSync: true})
			if err != nil {
				t.Fatal(err)
			}
			err = db.Update(func(tx *bolt.Tx) error {
				if _, err := tx.CreateBucket([]byte("meta")); err != nil {
					return err
				}
				b, err := tx.CreateBucket([]byte("key"))
				for _, r := range c.recs {
					key := binary.BigEndian.AppendUint64(nil, uint64(r.main))
					key = binary.BigEndian.AppendUint64(append(key, '_'), 0)
					if r.tombstone {
						key = append(key, 't')
					}
					value := r.raw
					if value == nil {
						value, err = proto.Marshal(r.kv)
					}
					if r.rawKey != nil {
						key = r.rawKey
					}
					if err == nil {
						err = b.Put(key, value)
					}
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			sum := sha256.Sum256(b)
			write(t, path, append(b, sum[:]...))
			r, found := verify(t, path, backup.VerifyOptions{Level: backup.LevelRecords})
			if c.warning && (r.Damage > 0 || r.Warnings != 1) || !c.warning && r.Verdict != backup.Damaged {
				t.Errorf("%s %v", r.Verdict, found)
			}
			if !slices.ContainsFunc(found, func(f backup.Finding) bool { return strings.Contains(f.String(), c.says) }) {
				t.Errorf("%v, want %q", found, c.says)
			}
		})
	}
}

// F22: a value changed and resealed. The manifest finds it, and so does the cluster while
// it can be compared.
func TestChangedAndResealed(t *testing.T) {
	t.Parallel()
	_, c := booted(t)
	for i := range 50 {
		if _, err := c.Put(t.Context(), fmt.Sprintf("k%02d", i), "innocent"); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := os.ReadFile(sourcetest.SaveSnapshot(t, c))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "f.db")
	write(t, path, whole)
	r, _ := verify(t, path, backup.VerifyOptions{Level: backup.LevelHash})
	m := manifestOf(t, whole, r)
	b := bytes.Clone(whole[:len(whole)-sha256.Size])
	for at := 0; ; {
		i := bytes.Index(b[at:], []byte("innocent"))
		if i < 0 {
			break
		}
		copy(b[at+i:], "infected")
		at += i + 1
	}
	sum := sha256.Sum256(b)
	write(t, path, append(b, sum[:]...))
	if r, found := verify(t, path, backup.VerifyOptions{Level: backup.LevelHash}); r.Verdict != backup.Healthy {
		t.Errorf("nothing can be found in the file alone: %v", found)
	}
	if r, found := verify(t, path, backup.VerifyOptions{Level: backup.LevelHash, Manifest: m}); r.Verdict != backup.Damaged || len(found) != 2 {
		t.Errorf("against the manifest: %s %v", r.Verdict, found)
	}
	against := backup.VerifyOptions{Level: backup.LevelHash, Live: liveSource(t, c)}
	if r, found := verify(t, path, against); r.Verdict != backup.Damaged || len(found) != 50 || !strings.Contains(found[0].String(), `key "k00"`) {
		t.Errorf("against the cluster: %s %v", r.Verdict, found)
	}
	write(t, path, whole)
	if r, found := verify(t, path, against); r.Verdict != backup.Healthy {
		t.Errorf("the whole file against the cluster: %v", found)
	}
	// Compacted past the file: there is nothing to compare with, and that is no damage.
	put, err := c.Put(t.Context(), "later", "1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Compact(t.Context(), put.Header.Revision); err != nil {
		t.Fatal(err)
	}
	r, found := verify(t, path, against)
	if r.Verdict != backup.Healthy || !strings.Contains(r.Levels[4].Skipped, "not compared") {
		t.Errorf("%+v %v", r.Levels, found)
	}
}

// F23: a file that nobody may write stays as it is.
func TestReadOnlyFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f.db")
	b := small(t)
	write(t, path, b)
	past := time.Now().Add(-time.Hour).Truncate(time.Second)
	if err := os.Chtimes(path, past, past); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}
	if r, found := verify(t, path, backup.VerifyOptions{Level: backup.LevelDrill, Dir: t.TempDir()}); r.Verdict != backup.Healthy || len(found) > 0 {
		t.Errorf("%s %v", r.Verdict, found)
	}
	after, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(after, b) {
		t.Errorf("the file was changed, %v", err)
	}
	if st, err := os.Stat(path); err != nil || !st.ModTime().Equal(past) {
		t.Errorf("the file was written to, %v", err)
	}
}

// F54: what unpacks to far more than it is, is not unpacked.
func TestBombs(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	head := small(t)[:8192] // the beginning of a database
	if _, err := w.Write(head); err != nil {
		t.Fatal(err)
	}
	zeros := make([]byte, 1<<20)
	for range 2000 {
		if _, err := w.Write(zeros); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "bomb.zst")
	write(t, path, b.Bytes())
	dir := t.TempDir()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, found := verify(t, path, backup.VerifyOptions{Level: backup.LevelHash, File: dbfile.Options{TempDir: dir}})
	runtime.ReadMemStats(&after)
	if r.Verdict != backup.Damaged || len(found) != 1 {
		t.Errorf("%s %v", r.Verdict, found)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<30 {
		t.Errorf("%d bytes were allocated", n)
	}
}

// loneKey tells whether the two differ in the name alone of a key that has one record:
// nothing else in a file knows that name, so that only a checksum can tell.
func loneKey(a, b string) bool {
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	if len(as) != len(bs) {
		return false
	}
	var was, is []string
	for i := range as {
		if as[i] == bs[i] {
			continue
		}
		if was != nil {
			return false
		}
		was, is = strings.Fields(as[i]), strings.Fields(bs[i])
	}
	if len(was) != 5 || len(is) != 5 {
		return false
	}
	return was[0] == is[0] && slices.Equal(was[2:], is[2:]) && was[2] == was[3] && was[4] == "1" &&
		strings.Count(a, " "+was[1]+" ") == 1 && strings.Count(b, " "+is[1]+" ") == 1
}

func diffLines(a, b string) string {
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	var out []string
	for i := range min(len(as), len(bs)) {
		if as[i] != bs[i] {
			out = append(out, as[i]+" -> "+bs[i])
		}
	}
	return strings.Join(out, "\n")
}

// withoutLeases takes the leases out of a snapshot and seals it again.
func withoutLeases(tb testing.TB, path string) string {
	tb.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	out := filepath.Join(tb.TempDir(), "without.db")
	write(tb, out, b[:len(b)-sha256.Size])
	db, err := bolt.Open(out, 0o600, &bolt.Options{NoFreelistSync: true, NoSync: true})
	if err != nil {
		tb.Fatal(err)
	}
	if err := db.Update(func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte("lease")) }); err != nil {
		tb.Fatal(err)
	}
	if err := db.Close(); err != nil {
		tb.Fatal(err)
	}
	if b, err = os.ReadFile(out); err != nil {
		tb.Fatal(err)
	}
	sum := sha256.Sum256(b)
	write(tb, out, append(b, sum[:]...))
	return out
}
