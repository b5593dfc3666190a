package store_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

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
			Many: 40, // each is five runs of rclone
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
