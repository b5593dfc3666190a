//go:build unix

package backup_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/etcdctl-plus/etcdctl-plus/backup/retention"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest"
)

// What is no file is told and left alone, and no link is followed.
func TestStrangers(t *testing.T) {
	t.Parallel()
	c := sourcetest.Sandboxed(t, nil)
	r, dir := repository(t)
	o := runOptions(t, time.Now)
	change(t, c, "k")
	run, err := r.Run(t.Context(), c, o)
	if err != nil {
		t.Fatal(err)
	}
	cluster, name, _ := strings.Cut(run.ID, "/")
	outside := filepath.Join(t.TempDir(), "outside.db")
	write(t, outside, []byte("not ours"))
	link := filepath.Join("snapshots", cluster, "000009-r9-20260101T000000Z.db")
	pipe := filepath.Join("manifests", cluster, "000009-r9-20260101T000000Z.db.json")
	folder := filepath.Join("snapshots", cluster, "000008-r9-20260101T000000Z.db")
	err = errors.Join(os.Symlink(outside, filepath.Join(dir, link)), os.Symlink(filepath.Dir(outside), filepath.Join(dir, "elsewhere")),
		os.Mkdir(filepath.Join(dir, folder), 0o700), unix.Mkfifo(filepath.Join(dir, pipe), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"elsewhere (a symbolic link)", filepath.ToSlash(pipe) + " (a named pipe)", filepath.ToSlash(folder) + "/ (an empty folder)", filepath.ToSlash(link) + " (a symbolic link)"}
	o.Policy = retention.Policy{Last: 1}
	change(t, c, "k2")
	if run, err = r.Run(t.Context(), c, o); err != nil || run.Pruned.Removed != 1 {
		t.Fatalf("%+v, %v", run, err)
	}
	if _, err := r.RemoveOrphans(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	l := list(t, r)
	if !slices.Equal(l.Foreign, want) || len(l.Entries) != 1 || len(l.Orphans)+len(l.Unfinished) != 0 {
		t.Errorf("%q\nwant\n%q, %+v", l.Foreign, want, l)
	}
	for _, p := range []string{link, pipe, folder, "elsewhere"} {
		if _, err := os.Lstat(filepath.Join(dir, p)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "snapshots", cluster, name)); err == nil {
		t.Error("the old one is still there")
	}
	// The one folder that a last backup leaves empty is our own.
	if err := os.RemoveAll(filepath.Join(dir, "snapshots", cluster)); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "snapshots", cluster), 0o700); err != nil {
		t.Fatal(err)
	}
	if l := list(t, r); len(l.Foreign) != 2 {
		t.Errorf("%q", l.Foreign)
	}
}
