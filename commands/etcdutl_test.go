//go:build unix

package commands_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sandbox"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/corpus"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/server"
)

// sameAsEtcdutl are command lines that the real etcdutl and ours under that name run,
// each on its own copies of the files.
const sameAsEtcdutl = `
snapshot status snapshot.db
snapshot status snapshot.db -w json
snapshot status snapshot.db -w fields
snapshot status snapshot.db -w table
snapshot status snapshot.db -w protobuf
snapshot status snapshot.db -w nonsense
snapshot status later.db -w json
snapshot status empty.db -w json
snapshot status member.db -w json
snap stat snapshot.db
snapshot status
snapshot status a b
snapshot status missing.db
snapshot status snapshot.db --endpoints x
hashkv member.db
hashkv member.db -w json
hashkv member.db -w fields
hashkv member.db -w table
hashkv member.db -w protobuf
hashkv member.db --rev 1
hashkv member.db --rev 999999
hashkv empty.db -w json
hashkv
hashkv missing.db
snapshot restore snapshot.db --data-dir plain
snapshot status plain/member/snap/db -w json
hashkv plain/member/snap/db
snapshot restore snapshot.db --data-dir plain
snapshot restore snapshot.db
snapshot status default.etcd/member/snap/db -w json
snapshot restore snapshot.db --data-dir bumped --bump-revision 1000 --mark-compacted --initial-memory-map-size 20000000
snapshot status bumped/member/snap/db -w json
hashkv bumped/member/snap/db -w json
snapshot restore snapshot.db --data-dir x --bump-revision 1000
snapshot restore snapshot.db --data-dir x --mark-compacted
snapshot restore snapshot.db --data-dir x --name y
snapshot restore snapshot.db --data-dir named --name y --initial-cluster y=http://10.0.0.1:2380,z=http://10.0.0.2:2380 --initial-advertise-peer-urls http://10.0.0.1:2380 --initial-cluster-token t --wal-dir named-wal
snapshot status named/member/snap/db -w json
snapshot restore snapshot.db --data-dir another --wal-dir named-wal
snapshot restore member.db --data-dir x
snapshot restore member.db --data-dir unsealed --skip-hash-check
snapshot status unsealed/member/snap/db -w json
snapshot restore missing.db --data-dir x
snapshot restore
defrag --data-dir default.etcd
hashkv default.etcd/member/snap/db -w json
defrag --data-dir missing
defrag
defrag --data-dir default.etcd -w json
hashkv default.etcd/member/snap/db -w json
migrate --data-dir plain --target-version 3.7
migrate --data-dir plain --target-version 3.6
snapshot status plain/member/snap/db -w json
migrate --data-dir plain --target-version 3.6
migrate --data-dir plain --target-version 3.5
snapshot status plain/member/snap/db -w json
migrate --data-dir plain --target-version 3.7
hashkv plain/member/snap/db -w json
migrate --data-dir plain --target-version 3.4
migrate --data-dir plain --target-version 3
migrate --data-dir plain --target-version 3.6.1
migrate --data-dir plain --target-version x.y
migrate --data-dir plain --target-version 9.9
migrate --data-dir plain --target-version 9.9 --force
migrate --data-dir missing --target-version 3.6
migrate --data-dir plain
migrate --target-version 3.6
migrate
nonsense
`

func TestEqualsEtcdutl(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(corpus.Snapshot(t))
	if err != nil {
		t.Fatal(err)
	}
	later, err := os.ReadFile(corpus.Later(t))
	if err != nil {
		t.Fatal(err)
	}
	_, c := startSandbox(t, sandbox.Options{})
	empty, err := os.ReadFile(sourcetest.SaveSnapshot(t, c))
	if err != nil {
		t.Fatal(err)
	}
	programs := []string{build(t, "go.etcd.io/etcd/etcdutl/v3"), ours(t, "etcdutl")}
	var dirs []string
	for range programs {
		dir := t.TempDir()
		dirs = append(dirs, dir)
		for name, b := range map[string][]byte{"snapshot.db": b, "later.db": later, "empty.db": empty, "member.db": b[:len(b)-32]} {
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for line := range strings.Lines(strings.TrimSpace(sameAsEtcdutl)) {
		var got [2]string
		for i, p := range programs {
			cmd := exec.CommandContext(t.Context(), p, strings.Fields(line)...)
			cmd.Dir = dirs[i]
			cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "ETCDCTL_WRITE_OUT=yaml"}
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			_ = cmd.Run() // the exit code is compared
			got[i] = fmt.Sprintf("exit %d: %s", cmd.ProcessState.ExitCode(), out.String())
			if strings.Contains(errs.String(), "panic") && i == 1 {
				t.Errorf("%s\n%s", line, errs.String())
			}
		}
		if got[0] != got[1] {
			t.Errorf("%s\netcdutl: %q\nours:    %q", line, got[0], got[1])
		}
	}
	// The file that was only looked at is what it was; etcdutl's own is not.
	after, err := os.ReadFile(filepath.Join(dirs[1], "member.db"))
	if err != nil || !bytes.Equal(after, b[:len(b)-32]) {
		t.Errorf("hashkv has changed the file, %v", err)
	}
}

// kill -9 at any moment: what is there is nothing or all of it, etcd starts on all of
// it, and the next restore works and leaves nothing else.
func TestKilledRestore(t *testing.T) {
	t.Parallel()
	db := corpus.Snapshot(t)
	program := ours(t, "etcdctl-plus")
	for _, separate := range []bool{false, true} {
		t.Run(fmt.Sprintf("separate log %t", separate), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			data := filepath.Join(dir, "data")
			args := []string{"snapshot", "restore", db, "--data-dir", data}
			log := filepath.Join(data, "member", "wal")
			if separate {
				log = filepath.Join(dir, "log")
				args = append(args, "--wal-dir", log)
			}
			complete := func() bool {
				src, err := dbfile.Open(t.Context(), data, dbfile.Options{WALDir: log})
				if err != nil {
					return false
				}
				defer src.Close()
				info, err := src.Info(t.Context())
				return err == nil && info.ClusterID != 0
			}
			start := time.Now()
			if out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			whole := time.Since(start)
			killed, left := 0, 0
			for i := range 25 {
				if err := os.RemoveAll(data); err != nil {
					t.Fatal(err)
				}
				if err := os.RemoveAll(log); err != nil {
					t.Fatal(err)
				}
				cmd := exec.CommandContext(t.Context(), program, args...)
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(whole * time.Duration(i) / 20)
				if err := cmd.Process.Kill(); err == nil {
					killed++
				}
				_ = cmd.Wait()
				logs, err := filepath.Glob(filepath.Join(log, "0*.wal"))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := os.Stat(filepath.Join(data, "member")); err == nil && len(logs) == 1 {
					if !complete() {
						t.Errorf("kill %d left half of it", i)
					}
					continue
				} else if err == nil {
					// Data without its log: the guard has to be there.
					if _, err := os.Stat(filepath.Join(log, "restore-unfinished.wal")); err != nil {
						t.Errorf("kill %d left data alone: %v", i, err)
					}
				} else if len(logs) > 0 {
					t.Errorf("kill %d left a log alone", i)
				}
				left++
				out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
				if err != nil || !complete() {
					t.Fatalf("after kill %d: %v\n%s", i, err, out)
				}
			}
			if killed == 0 || left == 0 {
				t.Errorf("%d kills, %d before the end", killed, left)
			}
			entries, err := os.ReadDir(dir)
			if err != nil || len(entries) > 2 {
				t.Errorf("left: %v, %v", entries, err)
			}
			var more []string
			if separate {
				more = []string{"--wal-dir", log}
			}
			c := server.Start(t, server.Options{DataDir: data, Name: "default", Args: more}).Client(t)
			if r, err := c.Get(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithCountOnly()); err != nil || r.Count == 0 {
				t.Errorf("%v, %v", r, err)
			}
		})
	}
}

// TERM, INT and HUP leave nothing and end us as signals do.
func TestSignalledRestore(t *testing.T) {
	t.Parallel()
	db := corpus.Snapshot(t)
	program := ours(t, "etcdctl-plus")
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		caught := false
		for i := 0; i < 40 && !caught; i++ {
			dir := t.TempDir()
			cmd := exec.CommandContext(t.Context(), program, "snapshot", "restore", db, "--data-dir", filepath.Join(dir, "data"), "--wal-dir", filepath.Join(dir, "log"))
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			// When its work has begun.
			for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond / 2) {
				if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
					break
				}
			}
			time.Sleep(time.Duration(i%5) * time.Millisecond)
			_ = cmd.Process.Signal(sig)
			_ = cmd.Wait()
			status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
			if ok && status.Signaled() && status.Signal() == sig {
				entries, err := os.ReadDir(dir)
				if err != nil {
					t.Fatal(err)
				}
				// A signal that comes at the very end finds all of it in place.
				if len(entries) > 0 {
					if _, err := os.Stat(filepath.Join(dir, "log", "0000000000000000-0000000000000000.wal")); err != nil {
						t.Errorf("%v: %v is left", sig, entries)
					}
					continue
				}
				caught = true
			}
		}
		if !caught {
			t.Errorf("%v never came before the end", sig)
		}
	}
}

// A command that nobody knows is said to be unknown, whatever its flags.
func TestUnknownCommand(t *testing.T) {
	t.Parallel()
	if r := run(t, nil, "nonsense", "--flag"); r.code != int(cli.Usage) || !strings.Contains(r.stderr, `unknown command "nonsense"`) {
		t.Errorf("%+v", r)
	}
}
