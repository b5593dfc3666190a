//go:build unix

package commands_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/sandbox"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/server"
)

// Killed at any moment, a run leaves a valid repository, and the next one is clean.
func TestBackupRunKilled(t *testing.T) {
	t.Parallel()
	s, c := startSandbox(t, sandbox.Options{})
	load(t, c, 2)
	p := server.NewProxy(t, s.Endpoint())
	where, tmp := filepath.Join(t.TempDir(), "store"), t.TempDir()
	if err := os.Chmod(tmp, 0o700); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"ETCDCTL_ENDPOINTS": s.Endpoint(), "ETCDCTL_PLUS_STORE": where}
	start := func() *exec.Cmd {
		cmd := exec.Command(ours(t, "etcdctl-plus"), "backup", "run", "--keep-last", "3", "--read-back", "-w", "json", "--dir", tmp)
		cmd.Env = []string{"ETCDCTL_ENDPOINTS=" + p.Endpoint, "ETCDCTL_PLUS_STORE=" + where}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	rng := rand.New(rand.NewPCG(50, 50))
	killed := 0
	for i := range 50 {
		p.Throttle(16 << 20)
		if _, err := c.Put(t.Context(), "n", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
		cmd := start()
		time.Sleep(time.Duration(rng.IntN(400)) * time.Millisecond)
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
		if cmd.ProcessState.ExitCode() == -1 {
			killed++
		}
		if r := run(t, env, "backup", "verify"); r.code != 0 && r.code != 3 && r.code != 4 && !(r.code == 78 && strings.Contains(r.stderr, "no such folder")) {
			t.Fatalf("after kill %d: exit code %d\n%s%s", i, r.code, r.stdout, r.stderr)
		}
	}
	if killed < 10 {
		t.Errorf("only %d of 50 runs were killed", killed)
	}
	p.Throttle(0)
	var result struct {
		ID     string
		Pruned struct{ Kept int }
	}
	if err := json.Unmarshal([]byte(ok(t, env, "backup", "run", "--keep-last", "3", "-w", "json", "--dir", tmp)), &result); err != nil {
		t.Fatal(err)
	}
	list := run(t, env, "backup", "list", "-w", "jsonl")
	if list.code != 0 || list.stderr != "" || !strings.Contains(list.stdout, result.ID[strings.Index(result.ID, "/")+1:]) {
		t.Errorf("exit code %d\n%s%s", list.code, list.stdout, list.stderr)
	}
	ok(t, env, "backup", "verify", "--level", "4")
	// Nothing lies about: two files for each backup, and nothing in the temporary folder.
	n := 0
	for _, dir := range []string{where, tmp} {
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() && !strings.Contains(path, "/locks/") {
				n++
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if want := 2 * strings.Count(list.stdout, "\n"); n != want {
		t.Errorf("%d files for %d", n, want)
		out, _ := exec.Command("find", where, tmp, "-type", "f").CombinedOutput()
		t.Logf("%s", out)
	}
}

// The same commands with a bucket and with rclone.
func TestBackupStores(t *testing.T) {
	t.Parallel()
	s, c := startSandbox(t, sandbox.Options{})
	load(t, c, 12) // more than one part
	s3 := server.StartS3(t)
	s3.Bucket(t, "backups")
	folder := t.TempDir()
	conf := filepath.Join(t.TempDir(), "rclone.conf")
	if err := os.WriteFile(conf, []byte("[box]\ntype = local\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, where := range map[string]string{"s3": "s3://backups/etcd/prod", "rclone": "rclone:box:" + folder} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			vars := map[string]string{
				"ETCDCTL_ENDPOINTS": s.Endpoint(), "ETCDCTL_PLUS_STORE": where, "HOME": t.TempDir(), "PATH": os.Getenv("PATH"), "RCLONE_CONFIG": conf,
				"AWS_ENDPOINT_URL_S3": s3.URL, "AWS_ACCESS_KEY_ID": s3.AccessKey, "AWS_SECRET_ACCESS_KEY": s3.Secret, "TMPDIR": t.TempDir(),
			}
			if name == "rclone" {
				bin := t.TempDir()
				if err := os.Symlink(server.Binary(t, "rclone"), filepath.Join(bin, "rclone")); err != nil {
					t.Fatal(err)
				}
				vars["PATH"] = bin + ":" + vars["PATH"]
			}
			command := func(want int, args ...string) string {
				t.Helper()
				cmd := exec.Command(ours(t, "etcdctl-plus"), args...)
				for k, v := range vars {
					cmd.Env = append(cmd.Env, k+"="+v)
				}
				var errs strings.Builder
				cmd.Stderr = &errs
				out, _ := cmd.Output() // the code counts
				if got := cmd.ProcessState.ExitCode(); got != want {
					t.Fatalf("%v: exit code %d, want %d\n%s%s", args, got, want, out, &errs)
				}
				for _, secret := range []string{s3.Secret} {
					if strings.Contains(string(out)+errs.String(), secret) {
						t.Errorf("%v shows a secret", args)
					}
				}
				return string(out)
			}
			command(0, "backup", "run", "--read-back")
			command(0, "backup", "run", "--keep-last", "5", "-w", "jsonl")
			if out := command(0, "backup", "list", "-w", "jsonl"); strings.Count(out, "\n") != 2 {
				t.Errorf("%s", out)
			}
			command(0, "backup", "verify", "--level", "4")
			command(0, "backup", "status", "--max-age", "1h")
			dir := filepath.Join(t.TempDir(), "restored")
			command(0, "backup", "restore", "latest", "--data-dir", dir)
			if out := command(0, "get", "big/", "--prefix", "--count-only", "--db", dir); strings.TrimSpace(out) != "12" {
				t.Errorf("restored: %s", out)
			}
			command(0, "backup", "prune", "--keep-last", "1", "--yes")
			command(0, "backup", "copy", "--to", filepath.Join(t.TempDir(), "copy"))
			if name == "s3" {
				vars["AWS_SECRET_ACCESS_KEY"] = "wrong"
				command(22, "backup", "list")
				vars["AWS_SECRET_ACCESS_KEY"] = s3.Secret
				command(78, "backup", "list", "--store", "s3://nothing/here")
				command(20, "backup", "list", "--s3-endpoint", "http://127.0.0.1:1")
			}
		})
	}
}

// Who is to be told is told.
func TestBackupPing(t *testing.T) {
	t.Parallel()
	s, _ := startSandbox(t, sandbox.Options{})
	var mu sync.Mutex
	var asked []string
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.URL.Path)
		if r.URL.Path == "/broken" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer h.Close()
	env := map[string]string{"ETCDCTL_ENDPOINTS": s.Endpoint(), "ETCDCTL_PLUS_STORE": filepath.Join(t.TempDir(), "store")}
	ok(t, env, "backup", "run", "--ping-url", h.URL+"/check")
	if r := run(t, env, "backup", "run", "--ping-url", h.URL+"/broken"); r.code != 0 || !strings.Contains(r.stderr, "500") {
		t.Errorf("exit code %d\n%s", r.code, r.stderr)
	}
	env["ETCDCTL_ENDPOINTS"] = "127.0.0.1:1"
	if r := run(t, env, "backup", "run", "--ping-url", h.URL+"/check"); r.code != 20 {
		t.Errorf("exit code %d\n%s", r.code, r.stderr)
	}
	if got := strings.Join(asked, " "); got != "/check /broken /check/fail" {
		t.Errorf("asked %s", got)
	}
}
