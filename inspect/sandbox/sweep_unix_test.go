//go:build unix

package sandbox

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// What a killed sandbox left is removed by the next one; what lives, is young or
// is not ours stays.
func TestSweep(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	mkdir := func(name string, owner bool) string {
		dir := filepath.Join(parent, name)
		if err := os.MkdirAll(filepath.Join(dir, "data"), 0o700); err != nil {
			t.Fatal(err)
		}
		if owner {
			release, err := own(dir)
			if err != nil {
				t.Fatal(err)
			}
			release()
		}
		old := time.Now().Add(-time.Hour)
		if err := os.Chtimes(dir, old, old); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	dead, foreign := mkdir("etcdctl-plus-sandbox-1", true), mkdir("etcdctl-plus-sandbox-2", false)
	other, young := mkdir("somebody-else-3", true), mkdir("etcdctl-plus-sandbox-4", true)
	live := mkdir("etcdctl-plus-sandbox-5", false)
	release, err := own(live)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(live, old, old); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(young, time.Now(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dead, filepath.Join(parent, "etcdctl-plus-sandbox-6")); err != nil {
		t.Fatal(err)
	}
	sweep(parent)
	for dir, want := range map[string]bool{dead: false, foreign: true, other: true, young: true, live: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s there: %t, want %t", filepath.Base(dir), err == nil, want)
		}
	}
}
