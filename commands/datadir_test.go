package commands_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/server"
)

// stopped is the data folder of an etcd that has ended, half of which is free pages.
func stopped(t *testing.T, version string) string {
	t.Helper()
	p := server.Start(t, server.Options{Version: version, Args: fast(version)})
	c := p.Client(t)
	for i := range 200 {
		if _, err := c.Put(t.Context(), "k"+string(rune('a'+i%26)), strings.Repeat("x", 20_000)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Compact(t.Context(), 200); err != nil {
		t.Fatal(err)
	}
	p.Stop(t)
	return p.DataDir
}

// Defragmenting a folder wins its free pages, keeps mode and content, and etcd starts on
// it. One in use is busy, and a damaged one is left as it is.
func TestDefragFolder(t *testing.T) {
	t.Parallel()
	dir := stopped(t, "")
	db := filepath.Join(dir, "member", "snap", "db")
	if err := os.Chmod(db, 0o640); err != nil {
		t.Fatal(err)
	}
	before := ok(t, nil, "snapshot", "hashkv", db)
	out := ok(t, nil, "migrate", "--data-dir", dir, "--target-version", "3.6", "--dry-run", "-w", "json")
	if !strings.Contains(out, `"changed": false`) || !strings.Contains(out, `"to": "3.6"`) {
		t.Error(out)
	}
	etcdutl := runAs(t, "etcdutl", nil, "defrag", "--data-dir", dir)
	if etcdutl.code != 0 || etcdutl.stdout != "" {
		t.Fatalf("%+v", etcdutl)
	}
	for _, name := range []string{"etcdctl", "etcdctl-plus"} { // as etcdctl of 3.5
		if r := runAs(t, name, nil, "defrag", "--data-dir", dir); r.code != 0 || (r.stdout == "") != (name == "etcdctl") {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if after := ok(t, nil, "snapshot", "hashkv", db); after != before {
		t.Errorf("hash before %s after %s", before, after)
	}
	st, err := os.Stat(db)
	if err != nil || st.Mode().Perm() != 0o640 || st.Size() > 3<<20 {
		t.Errorf("%v: %v, %d bytes", err, st.Mode(), st.Size())
	}
	p := server.Start(t, server.Options{DataDir: dir, Args: fast("")})
	if r, err := p.Client(t).Get(t.Context(), "ka"); err != nil || len(r.Kvs) != 1 {
		t.Error(r, err)
	}
	if r := runAs(t, "etcdutl", nil, "defrag", "--data-dir", dir, "--timeout", "200ms"); r.code != 1 || !strings.Contains(r.stderr, "in use") {
		t.Errorf("in use: %+v", r)
	}
	if r := run(t, nil, "migrate", "--data-dir", dir, "--target-version", "3.6", "--yes"); r.code != 11 {
		t.Errorf("in use: %+v", r)
	}
	p.Kill()
	b, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(b, []byte("xxxxxxxx"))
	if err := os.WriteFile(db, b[:at], 0o600); err != nil { // cut
		t.Fatal(err)
	}
	if r := runAs(t, "etcdutl", nil, "defrag", "--data-dir", dir); r.code != 1 || r.stderr == "" {
		t.Errorf("damaged: %+v", r)
	}
	if now, err := os.ReadFile(db); err != nil || !bytes.Equal(now, b[:at]) {
		t.Error("the damaged database was changed", err)
	}
	entries, err := os.ReadDir(filepath.Dir(db))
	if err != nil || len(entries) != 1 {
		t.Errorf("something was left behind: %v, %v", entries, err)
	}
}

// A folder of 3.7 is migrated to 3.6, and not without an answer.
func TestMigrateFolder(t *testing.T) {
	t.Parallel()
	dir := stopped(t, "")
	if r := run(t, nil, "migrate", "--data-dir", dir, "--target-version", "3.6"); r.code != 40 {
		t.Errorf("%+v", r)
	}
	var m struct {
		From, To string
		Changed  bool
	}
	if err := json.Unmarshal([]byte(ok(t, nil, "migrate", "--data-dir", dir, "--target-version", "3.6", "--yes", "--force", "-w", "json")), &m); err != nil || m.From != "3.7" || m.To != "3.6" || !m.Changed {
		t.Errorf("%+v, %v", m, err)
	}
	if out := ok(t, nil, "migrate", "--data-dir", dir, "--target-version", "3.6", "--yes", "-w", "table"); !strings.Contains(out, "nothing to do") {
		t.Error(out)
	}
	for _, target := range []string{"3.4", "3", "x", "3.6.1"} {
		if r := run(t, nil, "migrate", "--data-dir", dir, "--target-version", target, "--yes"); r.code != 64 || !strings.Contains(r.stderr, target) {
			t.Errorf("%s: %+v", target, r)
		}
	}
}
