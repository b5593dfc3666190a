package walfile_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/walfile"
)

func TestMain(m *testing.M) {
	wal.SegmentSizeBytes = 32 << 10 // so that every log has several segments
	m.Run()
}

func seed(tb testing.TB) *rand.Rand {
	tb.Helper()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv(sourcetest.SeedVariable); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			tb.Fatal(err)
		}
	}
	tb.Logf("repeat with %s=%d", sourcetest.SeedVariable, seed)
	return rand.New(rand.NewPCG(seed, 7))
}

// written is what a test wrote into a log.
type written struct {
	dir       string
	snapshots []*walpb.Snapshot
	commit    uint64
}

// write makes a log with etcd's own writer: entries of all sizes, leaders that
// overwrite what others had left uncommitted, snapshots, segments.
func write(tb testing.TB, rng *rand.Rand, rounds int) written {
	tb.Helper()
	w := written{dir: filepath.Join(tb.TempDir(), "wal"), snapshots: []*walpb.Snapshot{{Index: new(uint64(0)), Term: new(uint64(0))}}}
	meta, err := proto.Marshal(&pb.Metadata{NodeID: new(uint64(0xfedcba9876543210)), ClusterID: new(uint64(42))})
	if err != nil {
		tb.Fatal(err)
	}
	l, err := wal.Create(zap.NewNop(), w.dir, meta)
	if err != nil {
		tb.Fatal(err)
	}
	l.SetUnsafeNoFsync()
	last, term := uint64(0), uint64(2) // as the first leader of a cluster
	for range rounds {
		if rng.IntN(5) == 0 && last > w.commit {
			term++
			last = w.commit + rng.Uint64N(last-w.commit+1)
		}
		var ents []*raftpb.Entry
		for range rng.IntN(8) {
			last++
			data := make([]byte, rng.IntN(200))
			if rng.IntN(20) == 0 {
				data = make([]byte, rng.IntN(20_000))
			}
			for i := range data {
				data[i] = byte(rng.Uint32()) | 1 // no sector of zeros by chance
			}
			typ := raftpb.EntryNormal
			if w.commit > 0 && rng.IntN(2) == 0 {
				typ = raftpb.EntryConfChange
			}
			ents = append(ents, &raftpb.Entry{Index: new(last), Term: new(term), Type: new(typ), Data: data})
		}
		if last > w.commit {
			w.commit += rng.Uint64N(last - w.commit + 1)
		}
		if err := l.Save(&raftpb.HardState{Term: new(term), Vote: new(uint64(0xfedcba9876543210)), Commit: new(w.commit)}, ents); err != nil {
			tb.Fatal(err)
		}
		if rng.IntN(10) == 0 && w.commit > *w.snapshots[len(w.snapshots)-1].Index {
			s := &walpb.Snapshot{Index: new(w.commit), Term: new(term), ConfState: &raftpb.ConfState{Voters: []uint64{1}}}
			if err := l.SaveSnapshot(s); err != nil {
				tb.Fatal(err)
			}
			w.snapshots = append(w.snapshots, s)
		}
	}
	if err := l.Close(); err != nil {
		tb.Fatal(err)
	}
	return w
}

func entries(tb testing.TB, l *walfile.Log) []walfile.Entry {
	tb.Helper()
	var out []walfile.Entry
	for e, err := range l.Entries(context.Background()) {
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, e)
	}
	if n := uint64(len(out)); l.Last-l.First+1 != n {
		tb.Errorf("entries %d to %d, but %d of them", l.First, l.Last, n)
	}
	return out
}

func read(tb testing.TB, dir string, after uint64) *walfile.Log {
	tb.Helper()
	l, err := walfile.Read(tb.Context(), dir, after)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.Close() })
	return l
}

// truth reads with etcd.
func truth(tb testing.TB, dir string, snap *walpb.Snapshot) ([]*raftpb.Entry, *raftpb.HardState, []byte, error) {
	tb.Helper()
	w, err := wal.OpenForRead(zap.NewNop(), dir, snap)
	if err != nil {
		return nil, nil, nil, err
	}
	defer w.Close()
	meta, state, ents, err := w.ReadAll()
	if errors.Is(err, wal.ErrSnapshotNotFound) {
		err = nil // entries are there all the same
	}
	return ents, state, meta, err
}

func same(got []walfile.Entry, want []*raftpb.Entry) string {
	for i := range min(len(got), len(want)) {
		g, w := got[i], want[i]
		if g.Index != w.GetIndex() || g.Term != w.GetTerm() || uint64(g.Type) != uint64(w.GetType()) || !bytes.Equal(g.Data, w.GetData()) {
			return fmt.Sprintf("entry %d: index %d, term %d, type %d, %d bytes; want %d, %d, %d, %d", i, g.Index, g.Term, g.Type, len(g.Data), w.GetIndex(), w.GetTerm(), w.GetType(), len(w.GetData()))
		}
	}
	if len(got) != len(want) {
		return fmt.Sprintf("%d entries, want %d", len(got), len(want))
	}
	return ""
}

// Whatever etcd writes is read as etcd reads it, from every snapshot on. Asked for a
// snapshot whose own entry another leader had rewritten, etcd also returns what stood
// behind the old one; so the whole log is the truth, and its part behind the snapshot.
func TestAsEtcdReadsIt(t *testing.T) {
	t.Parallel()
	rng := seed(t)
	for range 8 {
		w := write(t, rng, 20+rng.IntN(300))
		sourcetest.Untouched(t, w.dir)
		all, state, _, err := truth(t, w.dir, w.snapshots[0])
		if err != nil {
			t.Fatal(err)
		}
		for _, snap := range w.snapshots {
			ents := all[snap.GetIndex():]
			l := read(t, w.dir, snap.GetIndex())
			if d := same(entries(t, l), ents); d != "" {
				t.Errorf("from %d: %s", snap.GetIndex(), d)
			}
			if l.Commit != state.GetCommit() || l.MemberID != 0xfedcba9876543210 || l.ClusterID != 42 || l.Torn != nil || l.Damage != nil {
				t.Errorf("commit %d, member %x, cluster %x, torn %v, damage %v; want commit %d", l.Commit, l.MemberID, l.ClusterID, l.Torn, l.Damage, state.GetCommit())
			}
		}
	}
}

// copyDir copies a log so that it can be damaged.
func copyDir(tb testing.TB, from string) string {
	tb.Helper()
	to := tb.TempDir()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		tb.Fatal(err)
	}
	return to
}

func segments(tb testing.TB, dir string) []string {
	tb.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	if err != nil || len(names) == 0 {
		tb.Fatal(names, err)
	}
	return names
}

func flip(tb testing.TB, rng *rand.Rand, path string) int64 {
	tb.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	end := len(bytes.TrimRight(b, "\x00"))
	at := rng.IntN(end)
	b[at] ^= 1 << rng.IntN(8)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		tb.Fatal(err)
	}
	return int64(at)
}

// A flipped bit is found, or changes nothing; what is read is never more or other
// than what was written.
func TestFlippedBits(t *testing.T) {
	t.Parallel()
	rng := seed(t)
	w := write(t, rng, 150)
	full, _, _, err := truth(t, w.dir, w.snapshots[0])
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for range 150 {
		dir := copyDir(t, w.dir)
		names := segments(t, dir)
		name := names[rng.IntN(len(names))]
		at := flip(t, rng, name)
		l := read(t, dir, 0)
		got := entries(t, l)
		if l.Damage == nil && l.Torn == nil {
			if d := same(got, full); d != "" {
				t.Errorf("%s, byte %d: not noticed, and %s", filepath.Base(name), at, d)
			}
			continue
		}
		found++
		// The log may end where an entry stood that was replaced later.
		for i, e := range got {
			if e.Index != uint64(i)+1 || i < len(full) && e.Index <= w.commit && e.Term == full[i].GetTerm() && !bytes.Equal(e.Data, full[i].GetData()) {
				t.Errorf("%s, byte %d: entry %d is another one", filepath.Base(name), at, e.Index)
				break
			}
		}
		if l.Damage != nil && (filepath.Base(l.Damage.Path) < filepath.Base(name) || l.Damage.Error() == "") {
			t.Errorf("%s, byte %d: found at %v", filepath.Base(name), at, l.Damage)
		}
	}
	if found < 120 { // the rest lies in paddings and in what protobuf ignores
		t.Errorf("%d of 150 flips were found", found)
	}
}

// The checksum of a record does not cover its type: an entry that turned into the
// state of raft is missed by what comes behind it.
func TestFlippedType(t *testing.T) {
	t.Parallel()
	w := write(t, seed(t), 60)
	full, _, _, err := truth(t, w.dir, w.snapshots[0])
	if err != nil {
		t.Fatal(err)
	}
	name := segments(t, w.dir)[0]
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	entry := []byte{1 << 3, 2} // field 1, the type, of a record
	flipped := 0
	for at := 0; at < len(b); {
		length := binary.LittleEndian.Uint64(b[at:])
		if length == 0 {
			break
		}
		if body := b[at+8:]; bytes.HasPrefix(body, entry) {
			flipped++
			dir := copyDir(t, w.dir)
			c := bytes.Clone(b)
			c[at+9] = 3
			if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), c, 0o600); err != nil {
				t.Fatal(err)
			}
			l := read(t, dir, 0)
			// One that another leader replaced may go missing.
			if d := same(entries(t, l), full); l.Damage == nil && d != "" {
				t.Errorf("entry %d, byte %d: not noticed, and %s", flipped, at, d)
			}
		}
		at += 8 + int(length&^(0xff<<56)) + int(length>>56&7)
	}
	if flipped < 10 {
		t.Errorf("%d entries in the first segment", flipped)
	}
}

// After a crash the last segment ends anywhere. What is read is what etcd reads
// then, which throws the torn record away.
func TestTornTail(t *testing.T) {
	t.Parallel()
	rng := seed(t)
	w := write(t, rng, 60)
	names := segments(t, w.dir)
	last := filepath.Base(names[len(names)-1])
	b, err := os.ReadFile(names[len(names)-1])
	if err != nil {
		t.Fatal(err)
	}
	end := len(bytes.TrimRight(b, "\x00"))
	tornSeen := false
	for range 100 {
		dir := copyDir(t, w.dir)
		cut := 1 + rng.IntN(end)
		c := bytes.Clone(b)
		if rng.IntN(2) == 0 {
			c = c[:cut]
		} else {
			clear(c[cut:]) // never written: zeros up to the end of what was set aside
		}
		if err := os.WriteFile(filepath.Join(dir, last), c, 0o600); err != nil {
			t.Fatal(err)
		}
		ents, state, _, err := truth(t, dir, w.snapshots[0])
		l := read(t, dir, 0)
		got := entries(t, l)
		tornSeen = tornSeen || l.Torn != nil
		if err != nil {
			// A record cut inside a sector is a damaged one to etcd.
			if l.Damage == nil {
				t.Errorf("cut at %d of %d: etcd says %v, nothing here", cut, end, err)
			}
			continue
		}
		if l.Damage != nil {
			t.Errorf("cut at %d of %d: %v", cut, end, l.Damage)
		}
		if d := same(got, ents); d != "" || l.Commit != state.GetCommit() {
			t.Errorf("cut at %d of %d: %s; commit %d, want %d", cut, end, d, l.Commit, state.GetCommit())
		}
	}
	if !tornSeen {
		t.Error("no torn record among 100 cuts")
	}
}

func TestMissing(t *testing.T) {
	t.Parallel()
	rng := seed(t)
	w := write(t, rng, 300)
	names := segments(t, w.dir)
	if len(names) < 4 {
		t.Fatalf("%d segments", len(names))
	}
	t.Run("segment", func(t *testing.T) {
		dir := copyDir(t, w.dir)
		if err := os.Remove(filepath.Join(dir, filepath.Base(names[2]))); err != nil {
			t.Fatal(err)
		}
		l := read(t, dir, 0)
		if l.Damage == nil || filepath.Base(l.Damage.Path) != filepath.Base(names[3]) || len(entries(t, l)) == 0 {
			t.Errorf("damage %v", l.Damage)
		}
	})
	t.Run("swapped", func(t *testing.T) {
		dir := copyDir(t, w.dir)
		if err := os.Rename(filepath.Join(dir, filepath.Base(names[1])), filepath.Join(dir, filepath.Base(names[2]))); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, filepath.Base(names[0])), filepath.Join(dir, filepath.Base(names[1]))); err != nil {
			t.Fatal(err)
		}
		if l := read(t, dir, 0); l.Damage == nil {
			t.Error("another segment under this name was not noticed")
		}
	})
	t.Run("folder", func(t *testing.T) {
		for _, dir := range []string{filepath.Join(t.TempDir(), "none"), t.TempDir()} {
			if _, err := walfile.Read(t.Context(), dir, 0); !errors.Is(err, walfile.ErrNoLog) {
				t.Errorf("%s: %v", dir, err)
			}
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := walfile.Read(ctx, w.dir, 0); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	t.Run("leftovers", func(t *testing.T) {
		dir := copyDir(t, w.dir)
		for _, name := range []string{"0.tmp", "0000000000000009-0000000000000001.wal.broken", "x.wal", "000000000000000g-0000000000000001.wal"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("?"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, _, _, err := truth(t, w.dir, w.snapshots[0])
		if err != nil {
			t.Fatal(err)
		}
		l := read(t, dir, 0)
		if d := same(entries(t, l), want); d != "" || l.Damage != nil {
			t.Errorf("%s, %v", d, l.Damage)
		}
	})
}

// A follower that was sent a snapshot goes on behind it.
func TestGap(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "wal")
	w, err := wal.Create(zap.NewNop(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	put := func(indexes ...uint64) {
		var ents []*raftpb.Entry
		for _, i := range indexes {
			ents = append(ents, &raftpb.Entry{Index: new(i), Term: new(uint64(2)), Data: []byte{byte(i)}})
		}
		if err := w.Save(&raftpb.HardState{Term: new(uint64(2)), Commit: new(indexes[len(indexes)-1])}, ents); err != nil {
			t.Fatal(err)
		}
	}
	put(1, 2, 3)
	if err := w.SaveSnapshot(&walpb.Snapshot{Index: new(uint64(50)), Term: new(uint64(2)), ConfState: &raftpb.ConfState{}}); err != nil {
		t.Fatal(err)
	}
	put(51, 52)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for after, want := range map[uint64][]uint64{0: {51, 52}, 2: {51, 52}, 50: {51, 52}, 51: {52}, 52: nil, 60: nil} {
		l := read(t, dir, after)
		var got []uint64
		for _, e := range entries(t, l) {
			got = append(got, e.Index)
		}
		if !slices.Equal(got, want) || l.Commit != 52 {
			t.Errorf("after %d: %v, commit %d; want %v", after, got, l.Commit, want)
		}
	}
}

// FuzzRead reads a folder of one segment with any content.
func FuzzRead(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := 0; n < 3; {
		w := write(f, rng, 3)
		b, err := os.ReadFile(segments(f, w.dir)[0])
		if err != nil {
			f.Fatal(err)
		}
		// The fuzzer takes long over large seeds.
		if b = bytes.TrimRight(b, "\x00"); len(b) < 1500 {
			f.Add(b)
			f.Add(b[:len(b)/2])
			n++
		}
	}
	f.Add([]byte{})
	f.Add([]byte{255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Add([]byte{2, 0, 0, 0, 0, 0, 0, 0x86, 8, 9, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "0000000000000000-0000000000000000.wal"), b, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := walfile.Read(t.Context(), dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		var n, index int64
		for e, err := range l.Entries(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if index++; index == 1 {
				index = int64(e.Index)
			}
			if int64(e.Index) != index {
				t.Fatalf("entry %d comes where %d should", e.Index, index)
			}
			n += int64(len(e.Data))
		}
		if n != l.Bytes || n > int64(len(b)) {
			t.Fatalf("%d bytes of entries, counted as %d, from %d", n, l.Bytes, len(b))
		}
	})
}
