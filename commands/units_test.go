//go:build unix

package commands_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/sandbox"
)

// The packaged units do what they say: the command line of the service, with the packaged
// environment, takes a backup.
func TestUnits(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("..", "backup", "systemd")
	lines := func(name, prefix string) (all []string) {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			if rest, ok := strings.CutPrefix(strings.TrimSpace(line), prefix); ok {
				all = append(all, rest)
			}
		}
		return all
	}
	exe := lines("etcdctl-plus-backup.service", "ExecStart=")
	options := lines("backup.env", "BACKUP_OPTIONS=")
	if len(exe) != 1 || len(options) != 1 {
		t.Fatalf("%q %q", exe, options)
	}
	s, _ := startSandbox(t, sandbox.Options{})
	tmp := t.TempDir()
	line := strings.ReplaceAll(exe[0], "$BACKUP_OPTIONS", options[0])
	line = strings.ReplaceAll(line, "/var/lib/prometheus/node-exporter", tmp)
	args := strings.Fields(line)
	if args[0] != "/usr/bin/etcdctl-plus" {
		t.Errorf("the program is %s", args[0])
	}
	cmd := exec.Command(ours(t, "etcdctl-plus"), args[1:]...)
	store := filepath.Join(tmp, "etcd")
	cmd.Env = []string{"ETCDCTL_ENDPOINTS=" + s.Endpoint(), "ETCDCTL_PLUS_STORE=" + store, "TMPDIR=" + t.TempDir()}
	out, err := cmd.Output()
	if err != nil || strings.Count(string(out), "\n") != 1 || !strings.HasPrefix(string(out), `{"id":"`) {
		t.Errorf("%v: %s", err, out)
	}
	for _, name := range []string{filepath.Join(store, "manifests"), filepath.Join(tmp, "etcd-backup.prom")} {
		if _, err := os.Stat(name); err != nil {
			t.Error(err)
		}
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		return // the rest is for hosts that have it
	}
	for _, unit := range []string{"etcdctl-plus-backup.service", "etcdctl-plus-backup.timer"} {
		if out, err := exec.Command(analyze, "verify", "--man=no", filepath.Join(dir, unit)).CombinedOutput(); err != nil && !strings.Contains(string(out), "is not executable") {
			t.Errorf("%s: %v\n%s", unit, err, out)
		}
	}
}
