package backup_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/backup"
	"github.com/etcdctl-plus/etcdctl-plus/backup/retention"
	"github.com/etcdctl-plus/etcdctl-plus/backup/store"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest"
)

// clock gives times a day apart.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func repository(tb testing.TB) (*backup.Repository, string) {
	tb.Helper()
	dir := filepath.Join(tb.TempDir(), "store")
	s, err := store.Open(dir, store.Options{Create: true})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return &backup.Repository{Store: s}, dir
}

func runOptions(tb testing.TB, now func() time.Time) backup.RunOptions {
	return backup.RunOptions{Save: backup.SaveOptions{Stall: time.Minute, RequestTimeout: 5 * time.Second, Now: now}, Dir: tb.TempDir(), Now: now}
}

func change(tb testing.TB, c *clientv3.Client, key string) {
	tb.Helper()
	if _, err := c.Put(tb.Context(), key, strings.Repeat(key, 100)); err != nil {
		tb.Fatal(err)
	}
}

func list(tb testing.TB, r *backup.Repository) *backup.Listing {
	tb.Helper()
	l, err := r.List(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// files are the paths of all files below a folder, but for locks.
func files(tb testing.TB, dir string) []string {
	tb.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.Contains(p, "/locks/") {
			all = append(all, p)
		}
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

func TestRepository(t *testing.T) {
	t.Parallel()
	c := sourcetest.Sandboxed(t, nil)
	r, dir := repository(t)
	k := &clock{time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	o := runOptions(t, k.Now)
	o.ReadBack = true
	var last *backup.Run
	for i := range 5 {
		change(t, c, fmt.Sprint("k", i))
		run, err := r.Run(t.Context(), c, o)
		if err != nil {
			t.Fatal(err)
		}
		if run.Manifest.Sequence != int64(i+1) || run.Manifest.Revision != int64(i+2) || run.Checked != "read back" || !strings.Contains(run.ID, fmt.Sprintf("/%06d-r%d-2026030%dT120000Z.db", i+1, i+2, i+1)) {
			t.Errorf("%+v %+v", run, run.Manifest)
		}
		last, k.now = run, k.now.Add(24*time.Hour)
	}
	l := list(t, r)
	if len(l.Entries) != 5 || len(l.Foreign)+len(l.Unfinished) != 0 {
		t.Fatalf("%+v", l)
	}
	for _, ref := range []string{"latest", "5", last.ID, last.Manifest.ClusterID + "/latest", strings.SplitN(last.ID, "/", 2)[1]} {
		e, err := l.Find(ref)
		if err != nil || e.ID() != last.ID {
			t.Errorf("%s: %v, %v", ref, e, err)
		}
	}
	if _, err := l.Find("77"); !errors.Is(err, store.ErrNotExist) {
		t.Errorf("what is not there: %v", err)
	}
	if left, _ := os.ReadDir(o.Dir); len(left) != 1 { // the private folder
		t.Errorf("left behind: %v", left)
	}

	// A policy, after a run and by itself.
	pruned, err := r.Prune(t.Context(), retention.Policy{Last: 2}, o, true)
	if err != nil || pruned.Kept != 2 || pruned.Removed != 3 || len(list(t, r).Entries) != 5 {
		t.Errorf("%+v, %v", pruned, err)
	}
	o.Policy = retention.Policy{Last: 2}
	change(t, c, "more")
	if last, err = r.Run(t.Context(), c, o); err != nil || last.Pruned.Removed != 4 {
		t.Fatalf("%+v, %v", last, err)
	}
	if l := list(t, r); len(l.Entries) != 2 || l.Entries[1].ID() != last.ID || len(files(t, dir)) != 4 {
		t.Errorf("%+v", l)
	}
	if _, err := r.Prune(t.Context(), retention.Policy{}, o, false); !errors.Is(err, retention.ErrKeepsNothing) {
		t.Errorf("keep 0: %v", err)
	}

	// Another store gets what it does not have.
	other, _ := repository(t)
	copied, err := r.Copy(t.Context(), other, o.Dir)
	if err != nil || len(copied.Copied) != 2 || copied.There != 0 {
		t.Errorf("%+v, %v", copied, err)
	}
	if copied, err = r.Copy(t.Context(), other, o.Dir); err != nil || len(copied.Copied) != 0 || copied.There != 2 {
		t.Errorf("%+v, %v", copied, err)
	}
	var a, b bytes.Buffer
	if err := r.Fetch(t.Context(), &l.Entries[0], io.Discard); !errors.Is(err, keyspace.ErrCorrupt) {
		t.Error("a backup that was removed was read")
	}
	e, err := list(t, other).Find("latest")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(other.Fetch(t.Context(), e, &a), r.Fetch(t.Context(), e, &b)); err != nil || !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Errorf("the copy differs, %v", err)
	}
}

// Done when 2: a bit flipped anywhere in any stored file is found by reading it.
func TestRepositoryFlips(t *testing.T) {
	t.Parallel()
	c := sourcetest.Sandboxed(t, nil)
	r, dir := repository(t)
	o := runOptions(t, time.Now)
	o.Save.Compress = true
	for i := range 2 {
		change(t, c, fmt.Sprint("k", i))
		if _, err := r.Run(t.Context(), c, o); err != nil {
			t.Fatal(err)
		}
	}
	sound := func() bool {
		l := list(t, r)
		ok := len(l.Entries) == 2 && len(l.Unfinished)+len(l.Foreign) == 0
		for i := range l.Entries {
			ok = ok && l.Entries[i].Problem == "" && r.Fetch(t.Context(), &l.Entries[i], io.Discard) == nil
		}
		return ok
	}
	if !sound() {
		t.Fatal("the whole repository is not sound")
	}
	flips := 0
	for _, path := range files(t, dir) {
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for at := 0; at < len(whole); at += 1 + len(whole)/300 {
			b := bytes.Clone(whole)
			b[at] ^= 1 << (at % 8)
			write(t, path, b)
			if flips++; sound() {
				t.Errorf("%s, byte %d: not found", path, at)
			}
		}
		write(t, path, whole)
	}
	if flips < 500 || !sound() {
		t.Errorf("%d flips", flips)
	}
}

// F26: the newest backup is damaged. What is older and good stays, whatever the policy.
func TestPruneDamaged(t *testing.T) {
	t.Parallel()
	c := sourcetest.Sandboxed(t, nil)
	r, dir := repository(t)
	o := runOptions(t, time.Now)
	var runs []*backup.Run
	for i := range 3 {
		change(t, c, fmt.Sprint("k", i))
		run, err := r.Run(t.Context(), c, o)
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run)
	}
	path := filepath.Join(dir, "snapshots", filepath.FromSlash(runs[2].ID))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	write(t, path, b)
	p, err := r.Prune(t.Context(), retention.Policy{Last: 1}, o, false)
	if err != nil || len(p.Damaged) != 1 {
		t.Fatalf("%+v, %v", p, err)
	}
	left := map[string]bool{}
	for _, e := range list(t, r).Entries {
		left[e.ID()] = true
	}
	if !left[runs[1].ID] || left[runs[0].ID] {
		t.Errorf("left: %v", left)
	}
}

// F27, case 20: the clock was set back, and there are files of others. Only our own go.
func TestPruneForeign(t *testing.T) {
	t.Parallel()
	c := sourcetest.Sandboxed(t, nil)
	r, dir := repository(t)
	k := &clock{time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
	o := runOptions(t, k.Now)
	var newest string
	for i := range 4 {
		change(t, c, fmt.Sprint("k", i))
		run, err := r.Run(t.Context(), c, o)
		if err != nil {
			t.Fatal(err)
		}
		newest = run.ID
		k.now = k.now.Add(-400 * 24 * time.Hour)
	}
	cluster, _, _ := strings.Cut(newest, "/")
	foreign := []string{
		"etcd-snapshot-host-1", "snapshots/README", "snapshots/" + cluster + "/old.db", "snapshots/" + cluster + "/000001-r1-x.db",
		"manifests/" + cluster + "/notes.json", "snapshots/other-prefix/000001-r1-20200101T000000Z.db", "segments/1",
	}
	for _, f := range foreign {
		p := filepath.Join(dir, filepath.FromSlash(f))
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, p, []byte("not ours"))
	}
	for range 2 {
		if _, err := r.Prune(t.Context(), retention.Policy{Last: 1}, o, false); err != nil {
			t.Fatal(err)
		}
	}
	l := list(t, r)
	if len(l.Entries) != 1 || l.Entries[0].ID() != newest || len(l.Foreign) != len(foreign) {
		t.Errorf("%+v", l)
	}
	for _, f := range foreign {
		if b, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(f))); err != nil || string(b) != "not ours" {
			t.Errorf("%s: %q, %v", f, b, err)
		}
	}
}

// Two runs at once: one works, the other is told. A leftover of one that was killed goes.
func TestRunLockAndLeftovers(t *testing.T) {
	t.Parallel()
	c := sourcetest.Sandboxed(t, nil)
	r, dir := repository(t)
	o := runOptions(t, time.Now)
	change(t, c, "k")
	first, err := r.Run(t.Context(), c, o)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := r.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Run(t.Context(), c, o); !errors.Is(err, store.ErrLocked) {
		t.Errorf("a second run: %v", err)
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	cluster, _, _ := strings.Cut(first.ID, "/")
	left := filepath.Join(dir, "snapshots", cluster, "000002-r9-20260101T000000Z.db")
	write(t, left, []byte("half"))
	mark := filepath.Join(dir, "unfinished", cluster, filepath.Base(left))
	for _, m := range []string{mark, filepath.Join(filepath.Dir(mark), filepath.Base(first.ID))} { // killed before its end, and after
		if err := os.MkdirAll(filepath.Dir(m), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, m, []byte("x"))
	}
	if l := list(t, r); len(l.Unfinished) != 1 || len(l.Entries) != 1 || len(l.Orphans) != 0 {
		t.Errorf("%+v", l)
	}
	change(t, c, "k2")
	second, err := r.Run(t.Context(), c, o)
	if err != nil || len(second.Cleaned) != 1 || second.Manifest.Sequence != 3 {
		t.Errorf("%+v, %v", second, err)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("what the killed run left is still there")
	}
	if l := list(t, r); len(l.Entries) != 2 || len(files(t, dir)) != 4 {
		t.Errorf("%+v", l)
	}
}

// A backup whose manifest was lost is not taken for what a killed run left: it stays, is
// told, and gets its manifest back by what it says itself, or from a copy.
func TestLostManifest(t *testing.T) {
	t.Parallel()
	c := sourcetest.Sandboxed(t, nil)
	r, dir := repository(t)
	other, _ := repository(t)
	k := &clock{time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	o := runOptions(t, k.Now)
	var runs []*backup.Run
	for i := range 3 {
		change(t, c, fmt.Sprint("k", i))
		o.Save.Compress = i == 1
		run, err := r.Run(t.Context(), c, o)
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run)
	}
	if _, err := r.Copy(t.Context(), other, o.Dir); err != nil {
		t.Fatal(err)
	}
	lose := func(run *backup.Run) {
		if err := os.Remove(filepath.Join(dir, "manifests", filepath.FromSlash(run.ID)+".json")); err != nil {
			t.Fatal(err)
		}
	}
	lose(runs[1])
	lose(runs[2])
	o.Policy = retention.Policy{Last: 1}
	change(t, c, "more")
	run, err := r.Run(t.Context(), c, o)
	if err != nil || len(run.Cleaned) != 0 || run.Manifest.Sequence != 4 {
		t.Fatalf("%+v, %v", run, err)
	}
	l := list(t, r)
	if len(l.Entries) != 1 || len(l.Orphans) != 2 || len(l.Unfinished) != 0 || l.Orphans[0].ID() != runs[1].ID {
		t.Fatalf("%+v", l)
	}
	// Made anew.
	if _, err := l.FindOrphan("latest"); !errors.Is(err, store.ErrNotExist) {
		t.Errorf("the latest orphan: %v", err)
	}
	e, err := l.FindOrphan("2")
	if err != nil {
		t.Fatal(err)
	}
	m, err := r.Rebuild(t.Context(), e, o.Dir, backup.VerifyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := *runs[1].Manifest
	want.Self, want.Rebuilt = m.Self, true
	want.MemberID, want.Endpoint, want.EtcdVersion, want.StorageVersion, want.Host, want.Tool = "", "", "", "", "", ""
	want.FloorRevision, want.DurationSeconds, want.Finished = 0, 0, want.Started
	if !reflect.DeepEqual(*m, want) {
		t.Errorf("%+v\nwant\n%+v", *m, want)
	}
	if e, err := list(t, r).Find("2"); err != nil || r.Fetch(t.Context(), e, io.Discard) != nil {
		t.Errorf("%+v, %v", e, err)
	}
	// From a copy, after a look at every byte.
	copied, err := other.Copy(t.Context(), r, o.Dir)
	if err != nil || len(copied.Failed) != 0 || !slices.Contains(copied.Copied, runs[2].ID) {
		t.Errorf("%+v, %v", copied, err)
	}
	if l := list(t, r); len(l.Orphans) != 0 || len(l.Entries) != 4 {
		t.Errorf("%+v", l)
	}
	// One that is damaged gets none, from nowhere.
	lose(runs[2])
	path := filepath.Join(dir, "snapshots", filepath.FromSlash(runs[2].ID))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	write(t, path, b)
	e, err = list(t, r).FindOrphan("3")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Rebuild(t.Context(), e, o.Dir, backup.VerifyOptions{}); !errors.Is(err, keyspace.ErrCorrupt) {
		t.Errorf("a damaged one: %v", err)
	}
	if copied, err := other.Copy(t.Context(), r, o.Dir); err != nil || len(copied.Failed) != 1 {
		t.Errorf("%+v, %v", copied, err)
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, b) {
		t.Error("the damaged one was touched")
	}
	// They go when they are told to.
	if gone, err := r.RemoveOrphans(t.Context(), true); err != nil || len(gone) != 1 || len(list(t, r).Orphans) != 1 {
		t.Errorf("%+v, %v", gone, err)
	}
	if gone, err := r.RemoveOrphans(t.Context(), false); err != nil || len(gone) != 1 || len(list(t, r).Orphans) != 0 {
		t.Errorf("%+v, %v", gone, err)
	}
	if left, err := os.ReadDir(o.Dir); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestManifestChecksum(t *testing.T) {
	t.Parallel()
	m := &backup.Manifest{File: "x", Bytes: 1, SHA256: strings.Repeat("a", 64), Revision: 1}
	b, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := backup.ParseManifest(b); err != nil {
		t.Fatal(err)
	}
	for at := range b {
		c := bytes.Clone(b)
		c[at] ^= 1 << (at % 7)
		if _, err := backup.ParseManifest(c); !errors.Is(err, backup.ErrManifest) {
			t.Errorf("byte %d (%q): %v", at, b[at], err)
		}
	}
	if !errors.Is(&backup.StoredError{}, keyspace.ErrCorrupt) {
		t.Error("a stored error is no damage")
	}
}

func FuzzManifest(f *testing.F) {
	m := &backup.Manifest{File: "x", Bytes: 1, SHA256: strings.Repeat("a", 64), Revision: 1}
	b, err := m.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := backup.ParseManifest(b)
		if err != nil {
			if !errors.Is(err, backup.ErrManifest) {
				t.Error(err)
			}
			return
		}
		again, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := backup.ParseManifest(again); err != nil {
			t.Error(err)
		}
	})
}
