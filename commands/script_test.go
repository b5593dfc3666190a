package commands_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/rogpeppe/go-internal/testscript"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sandbox"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/corpus"
)

var update = flag.Bool("update", false, "rewrite golden files")

func TestMain(m *testing.M) {
	// What is started here is to have the system's signals, also when a script or nohup has
	// started the tests with some of them ignored.
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGHUP, syscall.SIGQUIT} {
		if signal.Ignored(s) && strings.HasSuffix(filepath.Base(os.Args[0]), ".test") {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	run := func() { os.Exit(commands.Main(os.Args)) }
	testscript.Main(removing{m}, map[string]func(){"etcdctl-plus": run, "etcdctl": run})
}

// removing removes the programs that the tests built.
type removing struct{ *testing.M }

func (r removing) Run() int {
	defer builds.Range(func(_, p any) bool {
		_ = os.RemoveAll(filepath.Dir(p.(*program).path)) // a leftover in the temporary folder
		return true
	})
	return r.M.Run()
}

// TestScripts runs testdata/script/*.txtar. Besides testscript's own commands
// they have:
//
//	corpus              snapshot.db, later.db and enc.yaml of a real cluster; that
//	                    they are byte-identical at the end is checked by itself
//	packed NAME         copy one packed file of the corpus here
//	truth NAME          copy one file of the corpus's truth here
//	etcd [FILE [VAR]]   start an etcd, empty ("") or from a file; sets ETCDCTL_ENDPOINTS, or VAR
//	seed KEY=VALUE…     put keys; a value such as 10B stands for that many bytes
//	many N              put many/000 and so on
//	pty CMD ARG…        run on a terminal of 80 columns; output in stdout
//	hexfile FILE HEX…   write bytes
//	crlf IN OUT         copy as a terminal would, every LF as CR LF
//	fill FILE N         write N bytes of "x"
//	truncate FILE N     cut a file to N bytes
//	mode FILE OCTAL     fail unless the file has that mode
//	patch FILE OFF HEX  overwrite bytes of a file
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("..", "testdata", "script"),
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("TMPDIR", e.Getenv("TMPDIR"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"corpus": cmdCorpus, "truth": cmdTruth, "etcd": cmdEtcd, "seed": cmdSeed, "many": cmdMany, "pty": cmdPTY, "hexfile": cmdHexfile, "crlf": cmdCRLF, "packed": cmdPacked, "truncate": cmdTruncate, "fill": cmdFill, "patch": cmdPatch, "mode": cmdMode,
		},
	})
}

func must(ts *testscript.TestScript, err error) {
	if err != nil {
		ts.Fatalf("%v", err)
	}
}

func cmdCorpus(ts *testscript.TestScript, _ bool, _ []string) {
	for packed, name := range map[string]string{"snapshot.db.gz": "snapshot.db", "later.db.gz": "later.db"} {
		path := ts.MkAbs(name)
		must(ts, corpus.Unpack(packed, path))
		past := time.Now().Add(-time.Hour).Truncate(time.Second)
		must(ts, os.Chtimes(path, past, past))
		before := sum(ts, path)
		ts.Defer(func() {
			if after := sum(ts, path); after != before {
				ts.Fatalf("%s was changed by a reading command", name)
			}
			if i, err := os.Stat(path); err != nil || !i.ModTime().Equal(past) {
				ts.Fatalf("%s was written to: %v, %v", name, i.ModTime(), err)
			}
		})
	}
	b, err := os.ReadFile(corpus.EncryptionConfig())
	must(ts, err)
	must(ts, os.WriteFile(ts.MkAbs("enc.yaml"), b, 0o600))
}

func cmdPacked(ts *testscript.TestScript, _ bool, args []string) {
	b, err := os.ReadFile(filepath.Join(corpus.Dir(), args[0]))
	must(ts, err)
	must(ts, os.WriteFile(ts.MkAbs(args[0]), b, 0o600))
}

func sum(ts *testscript.TestScript, path string) [32]byte {
	b, err := os.ReadFile(path)
	must(ts, err)
	return sha256.Sum256(b)
}

func cmdTruth(ts *testscript.TestScript, _ bool, args []string) {
	b, err := corpus.File(args[0])
	must(ts, err)
	must(ts, os.WriteFile(ts.MkAbs(filepath.Base(args[0])), b, 0o600))
}

func cmdEtcd(ts *testscript.TestScript, _ bool, args []string) {
	o := sandbox.Options{}
	if len(args) > 0 && args[0] != "" {
		o.From = ts.MkAbs(args[0])
	}
	s, err := sandbox.Start(context.Background(), o)
	must(ts, err)
	ts.Defer(func() { must(ts, s.Close()) })
	name := "ETCDCTL_ENDPOINTS"
	if len(args) > 1 {
		name = args[1]
	}
	ts.Setenv(name, s.Endpoint())
}

func cmdSeed(ts *testscript.TestScript, _ bool, args []string) {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{ts.Getenv("ETCDCTL_ENDPOINTS")}, DialTimeout: 5 * time.Second})
	must(ts, err)
	defer c.Close()
	for _, kv := range args {
		k, v, _ := strings.Cut(kv, "=")
		if n, err := strconv.Atoi(strings.TrimSuffix(v, "B")); err == nil && strings.HasSuffix(v, "B") {
			v = strings.Repeat("x", n)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		_, err := c.Put(ctx, unquote(k), unquote(v))
		cancel()
		must(ts, err)
	}
}

func cmdMany(ts *testscript.TestScript, neg bool, args []string) {
	n, err := strconv.Atoi(args[0])
	must(ts, err)
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("many/%03d=%d", i, i))
	}
	cmdSeed(ts, neg, all)
}

// unquote reads Go escapes such as \x1b.
func unquote(s string) string {
	if u, err := strconv.Unquote(`"` + s + `"`); err == nil {
		return u
	}
	return s
}

func cmdPTY(ts *testscript.TestScript, neg bool, args []string) {
	cmd := exec.Command(filepath.Join(binDir(ts), args[0]), args[1:]...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = []string{"PATH=" + ts.Getenv("PATH"), "HOME=" + ts.Getenv("HOME"), "TERM=xterm", "ETCDCTL_ENDPOINTS=" + ts.Getenv("ETCDCTL_ENDPOINTS"), "NO_COLOR=" + ts.Getenv("NO_COLOR")}
	f, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 80})
	must(ts, err)
	defer f.Close()
	out, _ := io.ReadAll(f) // ends with EIO when the child has ended
	if err := cmd.Wait(); (err != nil) != neg {
		ts.Fatalf("%v ended with %v:\n%s", args, err, out)
	}
	_, err = ts.Stdout().Write(bytes.ReplaceAll(out, []byte("\r\n"), []byte("\n"))) // the terminal's own CR
	must(ts, err)
}

func binDir(ts *testscript.TestScript) string {
	for _, d := range filepath.SplitList(ts.Getenv("PATH")) {
		if _, err := os.Stat(filepath.Join(d, "etcdctl-plus")); err == nil {
			return d
		}
	}
	ts.Fatalf("etcdctl-plus is not in PATH")
	return ""
}

func cmdHexfile(ts *testscript.TestScript, _ bool, args []string) {
	b, err := hex.DecodeString(strings.Join(args[1:], ""))
	must(ts, err)
	must(ts, os.WriteFile(ts.MkAbs(args[0]), b, 0o600))
}

func cmdCRLF(ts *testscript.TestScript, _ bool, args []string) {
	b := bytes.ReplaceAll([]byte(ts.ReadFile(args[0])), []byte("\n"), []byte("\r\n"))
	must(ts, os.WriteFile(ts.MkAbs(args[1]), b, 0o600))
}

func cmdFill(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[1])
	must(ts, err)
	must(ts, os.WriteFile(ts.MkAbs(args[0]), bytes.Repeat([]byte("x"), n), 0o600))
}

func cmdTruncate(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.ParseInt(args[1], 0, 64)
	must(ts, err)
	must(ts, os.Truncate(ts.MkAbs(args[0]), n))
}

func cmdPatch(ts *testscript.TestScript, _ bool, args []string) {
	off, err := strconv.ParseInt(args[1], 0, 64)
	must(ts, err)
	b, err := hex.DecodeString(args[2])
	must(ts, err)
	f, err := os.OpenFile(ts.MkAbs(args[0]), os.O_WRONLY, 0)
	must(ts, err)
	defer f.Close()
	_, err = f.WriteAt(b, off)
	must(ts, err)
}

func cmdMode(ts *testscript.TestScript, _ bool, args []string) {
	st, err := os.Lstat(ts.MkAbs(args[0]))
	must(ts, err)
	if got := fmt.Sprintf("%04o", st.Mode().Perm()); got != args[1] {
		ts.Fatalf("%s has mode %s, want %s", args[0], got, args[1])
	}
}
