package commands_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/server"
)

// What a client was told is in `get --db DATADIR` after kill -9, also when data and
// log lie apart (case 16).
func TestGetAfterCrash(t *testing.T) {
	t.Parallel()
	wal := filepath.Join(t.TempDir(), "wal")
	p := server.Start(t, server.Options{Args: []string{"--wal-dir", wal}})
	c := p.Client(t)
	for i := range 40 {
		if _, err := c.Put(context.Background(), fmt.Sprintf("key%02d", i), "v"); err != nil {
			t.Fatal(err)
		}
	}
	p.Kill()
	r := run(t, nil, "get", "key", "--prefix", "--keys-only", "--db", p.DataDir, "--wal-dir", wal)
	if r.code != 0 || strings.Count(r.stdout, "key") != 40 {
		t.Errorf("exit code %d, %d keys\n%s", r.code, strings.Count(r.stdout, "key"), r.stderr)
	}
	// Without the log it says that something may be missing.
	r = run(t, nil, "get", "key", "--prefix", "--count-only", "--db", p.DataDir)
	if r.code != 0 || !strings.Contains(r.stderr, "the newest writes may be missing") {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
	for _, wrong := range [][]string{
		{"--wal-dir", wal},
		{"--wal-dir", wal, "--db", filepath.Join("..", "testdata")},
	} {
		if r := run(t, nil, append([]string{"get", "key"}, wrong...)...); r.code != int(cli.Usage) {
			t.Errorf("%v: exit code %d: %s", wrong, r.code, r.stderr)
		}
	}
	// A snapshot has no log.
	snap := filepath.Join(t.TempDir(), "s.db")
	if err := os.WriteFile(snap, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := run(t, nil, "get", "key", "--db", snap, "--wal-dir", wal); r.code != int(cli.Usage) {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
}
