//go:build unix

package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcdctl-plus/etcdctl-plus/backup/store"
	"github.com/etcdctl-plus/etcdctl-plus/backup/store/storetest"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/server"
)

// rclone returns a program that is Debian's rclone with a configuration.
func rclone(t *testing.T, config string) string {
	t.Helper()
	bin := server.Binary(t, "rclone")
	dir := t.TempDir()
	conf, path := filepath.Join(dir, "rclone.conf"), filepath.Join(dir, "rclone")
	script := fmt.Sprintf("#!/bin/sh\nexec env -i HOME=/nonexistent PATH=\"$PATH\" RCLONE_CONFIG='%s' '%s' \"$@\"\n", conf, bin)
	for _, f := range []struct {
		path, text string
		mode       os.FileMode
	}{{conf, config, 0o600}, {path, script, 0o700}} {
		if err := os.WriteFile(f.path, []byte(f.text), f.mode); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func TestRcloneFolder(t *testing.T) {
	t.Parallel()
	bin := rclone(t, "[disk]\ntype = local\n")
	storetest.Run(t, func(t *testing.T) storetest.Place {
		dir := t.TempDir()
		return storetest.Place{
			Open: func() (store.Store, error) { return store.Open("rclone:disk:"+dir, store.Options{Rclone: bin}) },
			Left: leftIn(dir), Part: 1 << 20, Races: true, TTL: 6e9,
			// Each object is a handful of runs of rclone.
			Many: 40, Odd: []string{"-rf", "~u/x", "trail ", "..a", ".hid/.x", "plus+and&equals=", "percent%41%2F", "quote'\"`", "$(id)", "{a,b}", "*", "co:lon:", "at@x", "comma,x", "ünïcödé/日本語", "e\u0301", "Case", "case"},
		}
	})
}

func TestRcloneS3(t *testing.T) {
	t.Parallel()
	srv := server.StartS3(t)
	bin := rclone(t, fmt.Sprintf("[cloud]\ntype = s3\nprovider = Other\naccess_key_id = %s\nsecret_access_key = %s\nendpoint = %s\nno_check_bucket = true\n", srv.AccessKey, srv.Secret, srv.URL))
	// What differs from a folder; the rest is the same rclone.
	checks := []string{"round trip", "no overwrite", "replace", "list", "concurrent puts", "cancelled", "wrong checksum", "source fails", "absent", "lock at once"}
	storetest.Run(t, func(t *testing.T) storetest.Place {
		bucket := newBucket(t, srv)
		return storetest.Place{
			Open: func() (store.Store, error) {
				return store.Open("rclone:cloud:"+bucket+"/etcd", store.Options{Rclone: bin})
			},
			Left: leftIn(filepath.Join(srv.Dir, bucket, "etcd")), Part: 1 << 20, Races: true,
		}
	}, checks...)
}

// TestRcloneErrors: what rclone says is in the error, and its end is understood.
func TestRcloneErrors(t *testing.T) {
	t.Parallel()
	nobody := server.Ports(t, 1)[0]
	bin := rclone(t, fmt.Sprintf("[disk]\ntype = local\n[gone]\ntype = webdav\nurl = http://127.0.0.1:%d\n", nobody))
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		where string
		kind  error
		say   string
	}{
		{"rclone:none:x", store.ErrConfig, "didn't find section in config file"},
		{"rclone:disk:" + file + "/below", nil, "not a directory"},
		{"rclone:gone:x", store.ErrUnreachable, "connection refused"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		s := open(t, c.where, store.Options{Rclone: bin})
		err := storetest.Put(ctx, s, "x", []byte("x"), store.PutOptions{Replace: true})
		cancel()
		if err == nil || c.kind != nil && !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: %v; want %v, %q", c.where, err, c.kind, c.say)
		}
	}
}

// TestRcloneEnds: with the context, or the reader, the rclone that runs ends too.
func TestRcloneEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pids := filepath.Join(dir, "pids")
	// Its own number, then a read or write that would last for ever.
	path := filepath.Join(dir, "rclone")
	script := fmt.Sprintf(`#!/bin/sh
case "$1 $2" in
"lsjson --stat") echo '{"Path":"x","Size":1000000}';;
"cat "*) echo $$ >>'%[1]s'; echo begun; exec sleep 1000;;
"rcat "*) echo $$ >>'%[1]s'; exec sleep 1000;;
esac
`, pids)
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	s := open(t, "rclone:x:", store.Options{Rclone: path})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	if err := storetest.Put(ctx, s, "x", make([]byte, 1<<20), store.PutOptions{Replace: true}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Put: %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if b, err := storetest.Get(ctx, s, "x"); !errors.Is(err, context.DeadlineExceeded) || string(b) != "begun\n" {
		t.Errorf("Get: %q, %v", b, err)
	}
	r, err := s.Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(r, make([]byte, 6)); err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > 4*time.Second {
		t.Errorf("it took %s", took)
	}
	b, err := os.ReadFile(pids)
	if err != nil || len(strings.Fields(string(b))) != 3 {
		t.Fatalf("processes %q, %v", b, err)
	}
	for _, pid := range strings.Fields(string(b)) {
		n, err := strconv.Atoi(pid)
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(n, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d still runs: %v", n, err)
		}
	}
}

// TestRcloneDamage: what the remote stored is compared, by size and by hashes.
func TestRcloneDamage(t *testing.T) {
	t.Parallel()
	bin := rclone(t, "[disk]\ntype = local\n")
	for name, change := range map[string]string{"shorter": "head -c 999", "changed": "tr '\\000' '\\001'"} {
		dir := t.TempDir()
		path := filepath.Join(dir, "rclone")
		script := fmt.Sprintf("#!/bin/sh\nif [ \"$1\" = rcat ]; then %s | exec '%s' rcat \"$4\"; fi\nexec '%s' \"$@\"\n", change, bin, bin)
		if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
		where := filepath.Join(dir, "store")
		s := open(t, "rclone:disk:"+where, store.Options{Rclone: path})
		if err := storetest.Put(t.Context(), s, "x", make([]byte, 1000), store.PutOptions{}); !errors.Is(err, store.ErrChecksum) {
			t.Errorf("%s on the way: %v", name, err)
		}
		if entries, err := os.ReadDir(where); err != nil || len(entries) > 0 {
			t.Errorf("%s: left are %v, %v", name, entries, err)
		}
	}
}
