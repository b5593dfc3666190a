package dbfile_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/server"
)

// acknowledged is what clients were told.
type acknowledged struct {
	mu   sync.Mutex
	puts map[int64]string // revision → key=value
}

// hammer writes with several clients until ctx ends, and notes every answer.
func (a *acknowledged) hammer(ctx context.Context, tb testing.TB, p *server.Process, round int) *sync.WaitGroup {
	tb.Helper()
	var wg sync.WaitGroup
	for i := range 6 {
		c := p.Client(tb)
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(round), uint64(i)))
			for n := 0; ctx.Err() == nil; n++ {
				key, value := fmt.Sprintf("k/%d/%d", i, rng.IntN(50)), fmt.Sprintf("%d.%d", round, n)
				var rev int64
				var err error
				switch rng.IntN(4) {
				case 0:
					var r *clientv3.TxnResponse
					if r, err = c.Txn(ctx).If(clientv3.Compare(clientv3.Version(key), ">", 0)).
						Then(clientv3.OpDelete(key)).Else(clientv3.OpPut(key, value)).Commit(); err == nil && !r.Succeeded {
						rev = r.Header.Revision
					}
				default:
					var r *clientv3.PutResponse
					if r, err = c.Put(ctx, key, value); err == nil {
						rev = r.Header.Revision
					}
				}
				if err != nil {
					return
				}
				if rev > 0 {
					a.mu.Lock()
					a.puts[rev] = key + "=" + value
					a.mu.Unlock()
				}
			}
		})
	}
	return &wg
}

// After kill -9 nothing that was acknowledged is missing, and what is read is what
// etcd has when it starts again.
func TestNothingAcknowledgedIsMissing(t *testing.T) {
	t.Parallel()
	for _, version := range server.Versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			server.Binary(t, version)
			a := &acknowledged{puts: map[int64]string{}}
			o := server.Options{Version: version, Args: []string{"--snapshot-count", "500"}}
			behind := 0
			for round := range 3 {
				p := server.Start(t, o)
				o.DataDir = p.DataDir
				ctx, cancel := context.WithCancel(t.Context())
				wg := a.hammer(ctx, t, p, round)
				time.Sleep(400*time.Millisecond + time.Duration(round*37)*time.Millisecond)
				p.Kill()
				cancel()
				wg.Wait()
				behind += readAfterCrash(t, o, a)
			}
			if behind == 0 {
				t.Error("the database was never behind its log")
			}
			if len(a.puts) < 100 {
				t.Errorf("only %d puts were acknowledged", len(a.puts))
			}
		})
	}
}

// readAfterCrash reads the folder, and holds it against what was acknowledged and
// against the server that starts on a copy. It returns how many revisions only the
// log had.
func readAfterCrash(t *testing.T, o server.Options, a *acknowledged) int {
	t.Helper()
	rest := o.DataDir
	alone := open(t, rest, dbfile.Options{NoWAL: true})
	before, err := alone.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, rest, dbfile.Options{})
	info, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int64]string{}
	for e, err := range s.Events(t.Context(), keyspace.EventRange{Key: []byte{0}, End: []byte{0}}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == keyspace.Put {
			seen[e.Rev.Main] = string(e.Record.Key) + "=" + string(e.Record.Value)
		}
	}
	missing := 0
	for rev, put := range a.puts {
		if seen[rev] != put {
			missing++
		}
	}
	if missing > 0 {
		t.Errorf("%d of %d acknowledged puts are missing (%s)", missing, len(a.puts), info.Note)
	}
	got := records(t, s, keyspace.All())

	o.DataDir = filepath.Join(t.TempDir(), "again")
	if err := os.CopyFS(o.DataDir, os.DirFS(rest)); err != nil {
		t.Fatal(err)
	}
	p := server.Start(t, o)
	defer p.Kill()
	r, err := p.Client(t).Get(t.Context(), "\x00", clientv3.WithFromKey())
	if err != nil {
		t.Fatal(err)
	}
	if r.Header.Revision != info.Revision || r.Header.ClusterId != info.ClusterID || r.Header.MemberId != info.MemberID {
		t.Errorf("revision %d, cluster %x, member %x; etcd has %v", info.Revision, info.ClusterID, info.MemberID, r.Header)
	}
	if len(got) != len(r.Kvs) {
		t.Fatalf("%d keys, etcd has %d", len(got), len(r.Kvs))
	}
	for i, kv := range r.Kvs {
		g := got[i]
		if string(g.Key) != string(kv.Key) || string(g.Value) != string(kv.Value) || g.ModRev != kv.ModRevision || g.CreateRev != kv.CreateRevision || g.Version != kv.Version {
			t.Errorf("%+v, etcd has %v", g, kv)
			break
		}
	}
	if n := info.Revision - before.Revision; n > 0 {
		t.Logf("%s: %d of %d revisions were in the log only: %s", o.Version, n, info.Revision, info.Note)
		return int(n)
	}
	return 0
}

// A log that is damaged, missing, or of another member: the database is read, and
// the note says how far.
func TestLogThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	c, dir := lazyServer(t)
	for i := range 50 {
		if _, err := c.Put(t.Context(), fmt.Sprintf("k%02d", i), strings.Repeat("v", 100)); err != nil {
			t.Fatal(err)
		}
	}
	read := func(t *testing.T, o dbfile.Options, change func(wal string)) (string, int) {
		t.Helper()
		rest := filepath.Join(t.TempDir(), "data")
		s := open(t, dir, dbfile.Options{Copy: true, NoWAL: true})
		if err := os.MkdirAll(filepath.Join(rest, "member", "snap"), 0o700); err != nil {
			t.Fatal(err)
		}
		f, err := os.Create(filepath.Join(rest, "member", "snap", "db"))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.WritePages(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		wal := filepath.Join(rest, "member", "wal")
		if err := os.CopyFS(wal, os.DirFS(filepath.Join(dir, "member", "wal"))); err != nil {
			t.Fatal(err)
		}
		change(wal)
		sourcetest.Untouched(t, rest)
		src := open(t, rest, o)
		info, err := src.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return info.Note, len(records(t, src, keyspace.All()))
	}
	t.Run("whole", func(t *testing.T) {
		note, n := read(t, dbfile.Options{}, func(string) {})
		if n != 50 || note != "revisions 2 to 51 are in the write-ahead log only, and were read from there" {
			t.Errorf("%d records, %q", n, note)
		}
	})
	t.Run("elsewhere", func(t *testing.T) {
		apart := filepath.Join(t.TempDir(), "apart")
		note, n := read(t, dbfile.Options{WALDir: apart}, func(wal string) {
			if err := os.Rename(wal, apart); err != nil {
				t.Fatal(err)
			}
		})
		if n != 50 {
			t.Errorf("%d records, %q", n, note)
		}
	})
	t.Run("missing", func(t *testing.T) {
		note, n := read(t, dbfile.Options{}, func(wal string) { os.RemoveAll(wal) })
		if n != 0 || !strings.Contains(note, "the database alone was read") || !strings.Contains(note, "may be missing") {
			t.Errorf("%d records, %q", n, note)
		}
	})
	t.Run("damaged", func(t *testing.T) {
		note, n := read(t, dbfile.Options{}, func(wal string) {
			name := filepath.Join(wal, "0000000000000000-0000000000000000.wal")
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			at := strings.Index(string(b), "k30")
			b[at+20] ^= 1
			write(t, name, b)
		})
		if n != 30 || !strings.Contains(note, "read up to raft index") || !strings.Contains(note, "checksum") {
			t.Errorf("%d records, %q", n, note)
		}
	})
	t.Run("file", func(t *testing.T) {
		s := open(t, filepath.Join(dir, "member", "snap", "db"), dbfile.Options{Copy: true})
		info, err := s.Info(t.Context())
		if err != nil || !strings.Contains(info.Note, "written up to raft index") {
			t.Errorf("%+v, %v", info, err)
		}
	})
}

// The log of another member is not taken for this one's.
func TestForeignLog(t *testing.T) {
	t.Parallel()
	var dirs []string
	for i := range 2 {
		p := server.Start(t, server.Options{})
		if _, err := p.Client(t).Put(t.Context(), "whose", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
		p.Stop(t)
		dirs = append(dirs, p.DataDir)
	}
	s := open(t, dirs[0], dbfile.Options{WALDir: filepath.Join(dirs[1], "member", "wal")})
	info, err := s.Info(t.Context())
	if err != nil || !strings.Contains(info.Note, "not that of this database") || info.MemberID != 0 {
		t.Errorf("%+v, %v", info, err)
	}
	if got := records(t, s, keyspace.All()); len(got) != 1 || string(got[0].Value) != "0" {
		t.Errorf("%+v", got)
	}
	if s := open(t, dirs[0], dbfile.Options{}); len(records(t, s, keyspace.All())) != 1 {
		t.Error("its own log is refused")
	}
}

// A reader does not hold up the start of the member whose folder it reads.
func TestReaderDoesNotDelayStart(t *testing.T) {
	t.Parallel()
	p := server.Start(t, server.Options{})
	c := p.Client(t)
	for i := range 500 {
		if _, err := c.Put(t.Context(), fmt.Sprint(i), strings.Repeat("x", 1000)); err != nil {
			t.Fatal(err)
		}
	}
	p.Kill()
	start := func(reading bool) time.Duration {
		o := p.Options
		o.DataDir = filepath.Join(t.TempDir(), "data")
		if err := os.CopyFS(o.DataDir, os.DirFS(p.DataDir)); err != nil {
			t.Fatal(err)
		}
		if reading {
			s := open(t, o.DataDir, dbfile.Options{})
			for range s.Records(t.Context(), keyspace.All()) {
				break
			}
		}
		began := time.Now()
		q := server.Start(t, o)
		q.Client(t)
		took := time.Since(began)
		q.Kill()
		return took
	}
	with, without := time.Hour, time.Hour
	for range 3 {
		without = min(without, start(false))
		with = min(with, start(true))
	}
	t.Logf("start: %v alone, %v with a reader", without, with)
	// The reader stays open: if it kept the lock, the start would wait for ever. What is
	// left is what a busy machine does.
	if with > without+5*time.Second {
		t.Errorf("a start took %v with a reader, %v without", with, without)
	}
}
