package commands_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sandbox"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/corpus"
)

// readers are all commands that read a file.
var readers = []string{
	"get /registry/ --prefix --count-only",
	"get /registry/ --prefix --decode -w jsonl",
	"inspect keys",
	"inspect usage",
	"inspect history --prefix --values --diff -w jsonl",
	"registry ls -A",
	"registry get pods -A",
	"registry get secrets -A -o wide",
	"registry dump --encryption-config " + corpus.EncryptionConfig(),
	"registry resources",
}

// Case 1: no reading command changes a byte of a snapshot or its times, and the
// snapshot restores afterwards. The file is read-only and so is its folder.
func TestReadingChangesNothing(t *testing.T) {
	t.Parallel()
	db := corpus.Snapshot(t)
	if err := os.Chmod(db, 0o400); err != nil {
		t.Fatal(err)
	}
	sourcetest.Untouched(t, filepath.Dir(db))
	for _, r := range readers {
		if out := ok(t, nil, append(strings.Fields(r), "--db", db)...); out == "" {
			t.Errorf("%s printed nothing", r)
		}
	}
	ok(t, nil, "sandbox", "--from", db, "--dir", t.TempDir(), "--", "true")
	err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: db, Name: "m", OutputDataDir: filepath.Join(t.TempDir(), "restored"), PeerURLs: []string{"http://127.0.0.1:1"}, InitialCluster: "m=http://127.0.0.1:1", InitialClusterToken: "t",
	})
	if err != nil {
		t.Errorf("restore after reading: %v", err)
	}
}

// The file of a running etcd is refused, with what to do; a private copy of it
// can be read, and a folder at rest too.
func TestMemberFolder(t *testing.T) {
	t.Parallel()
	s, c := startSandbox(t, sandbox.Options{From: corpus.Snapshot(t)})
	if _, err := c.Put(context.Background(), "fresh", "1"); err != nil {
		t.Fatal(err)
	}
	r := run(t, nil, "get", "compact_rev_key", "--db", s.DataDir())
	if r.code != int(cli.Busy) || !strings.Contains(r.stderr, "--db-copy") {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
	for _, args := range readers {
		if out := ok(t, nil, append(strings.Fields(args), "--db", s.DataDir(), "--db-copy")...); out == "" {
			t.Errorf("%s printed nothing", args)
		}
	}
	rest := filepath.Join(t.TempDir(), "etcd")
	if err := os.CopyFS(rest, os.DirFS(s.DataDir())); err != nil {
		t.Fatal(err)
	}
	sourcetest.Untouched(t, rest)
	for _, place := range []string{"", "member", "member/snap", "member/snap/db"} {
		if out := ok(t, nil, "inspect", "keys", "/registry/pods/", "--db", filepath.Join(rest, place)); strings.Count(out, "\n") != 14 {
			t.Errorf("%q: %s", place, out)
		}
	}
}
