package backup_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/backup"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/live"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/corpus"
	"github.com/etcdctl-plus/etcdctl-plus/registry"
)

// objects opens the corpus's objects with its encryption keys.
func objects(tb testing.TB) func(context.Context, keyspace.Source) (*backup.ObjectReader, error) {
	tb.Helper()
	c, err := registry.LoadEncryptionConfig(corpus.EncryptionConfig())
	if err != nil {
		tb.Fatal(err)
	}
	return func(context.Context, keyspace.Source) (*backup.ObjectReader, error) {
		o := registry.Options{Encryption: c, Mapper: registry.NewMapper("")}
		return &backup.ObjectReader{Mapper: o.Mapper, NewDecoder: func() *registry.Decoder { return registry.NewDecoder(o) }}, nil
	}
}

// verify runs Verify and returns the findings that were told as well.
func verify(tb testing.TB, path string, o backup.VerifyOptions) (*backup.Report, []backup.Finding) {
	tb.Helper()
	var found []backup.Finding
	o.Report = func(f backup.Finding) { found = append(found, f) }
	r, err := backup.Verify(tb.Context(), path, o)
	if err != nil {
		tb.Fatal(err)
	}
	if len(found) != r.Damage+r.Warnings {
		tb.Errorf("%d findings were told, the report counts %d and %d", len(found), r.Damage, r.Warnings)
	}
	return r, found
}

func TestHealthy(t *testing.T) {
	t.Parallel()
	for _, path := range []string{corpus.Snapshot(t), corpus.Later(t)} {
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
		r, found := verify(t, path, backup.VerifyOptions{Level: backup.LevelPolicy, Objects: objects(t), MaxAge: time.Hour, Now: time.Now(), Dir: t.TempDir()})
		for _, f := range found {
			t.Errorf("a finding in a whole file: %v", f)
		}
		if r.Verdict != backup.Healthy || r.Objects < 300 || r.SealedValues != 0 || len(r.Encryption) == 0 || r.Drill.Objects != r.Objects || r.Drill.Keys != r.Keys {
			t.Errorf("%+v, %+v", r, r.Drill)
		}
	}
}

// A snapshot without its checksum is told from a member's own file.
func TestUnsealed(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(corpus.Snapshot(t))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "stripped.db")
	if err := os.WriteFile(path, b[:len(b)-32], 0o600); err != nil {
		t.Fatal(err)
	}
	if r, found := verify(t, path, backup.VerifyOptions{Level: backup.LevelRecords}); r.Verdict != backup.Damaged || len(found) != 1 {
		t.Errorf("a stripped snapshot: %v %v", r.Verdict, found)
	}
	if r, _ := verify(t, corpus.Snapshot(t), backup.VerifyOptions{Level: backup.LevelRecords, SkipChecksum: true}); r.Verdict != backup.Unsealed {
		t.Errorf("without looking at the checksum: %v", r.Verdict)
	}
}

// A flipped bit of a value is found by the checksum, and the levels behind go on.
func TestFlippedValue(t *testing.T) {
	t.Parallel()
	path := corpus.Snapshot(t)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(b, []byte("kube-system"))
	b[at] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	r, found := verify(t, path, backup.VerifyOptions{Level: backup.LevelObjects, Objects: objects(t)})
	if r.Verdict != backup.Damaged || found[0].Level != backup.LevelSeal && found[len(found)-1].Level != backup.LevelSeal {
		t.Errorf("%v %v", r.Verdict, found)
	}
	if r.Objects < 300 {
		t.Errorf("%d objects were looked at behind a wrong checksum: %v", r.Objects, found)
	}
}

func liveSource(tb testing.TB, c *clientv3.Client) keyspace.Source {
	tb.Helper()
	s := live.New(c, live.Options{})
	tb.Cleanup(func() { s.Close() })
	return s
}
