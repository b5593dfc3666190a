package commands_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/etcdctl-plus/etcdctl-plus/commands"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sandbox"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/corpus"
)

func TestExitCodes(t *testing.T) {
	t.Parallel()
	s, _ := startSandbox(t, sandbox.Options{From: corpus.Later(t)})
	live := map[string]string{"ETCDCTL_ENDPOINTS": s.Endpoint()}
	dir := t.TempDir()
	write := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	whole, err := os.ReadFile(corpus.Snapshot(t))
	if err != nil {
		t.Fatal(err)
	}
	damaged := append([]byte(nil), whole...)
	damaged[len(damaged)/2] ^= 0x40
	text, flipped, short := write("text", []byte("hello, I am no database")), write("flipped.db", damaged), write("short.db", whole[:len(whole)/2])
	secret := write("secret.db", whole)
	if err := os.Chmod(secret, 0); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		env  map[string]string
		want cli.Code
		args string
	}{
		{live, cli.OK, "get compact_rev_key"},
		{live, cli.Negative, "get nope"},
		{live, cli.Negative, "registry get ns nope"},
		{live, cli.Compacted, "get compact_rev_key --rev 5"},
		{live, cli.Compacted, "registry get pods -A --rev 5"},
		{live, cli.Compacted, "inspect history compact_rev_key --from-rev 5"},
		{live, cli.Compacted, "watch compact_rev_key --rev 5"},
		{live, cli.Usage, "inspect keys --rev 99999"},
		{live, cli.Refused, "put a b --read-only"},
		{live, cli.Usage, "get"},
		{live, cli.Usage, "nonsense"},
		{live, cli.Usage, "get x -w nonsense"},
		{live, cli.Usage, "registry get nonsense"},
		{live, cli.Usage, "get x -w jsonpath={.a"},
		{live, cli.Partial, "registry get secrets -A -o json"},
		{nil, cli.Unavailable, "get x --endpoints 127.0.0.1:1"},
		{nil, cli.Config, "get x --cacert /does/not/exist"},
		{nil, cli.Config, "get x --context nope"},
		{nil, cli.Config, "registry get secrets --encryption-config " + text + " --db " + flipped},
		{nil, cli.Usage, "inspect keys --db " + filepath.Join(dir, "nope")},
		{nil, cli.Usage, "inspect keys --db " + text},
		{nil, cli.Integrity, "inspect keys --db " + flipped},
		{nil, cli.Integrity, "inspect keys --db " + short},
		{nil, cli.Integrity, "sandbox --from " + short},
	}
	if os.Getuid() != 0 && runtime.GOOS != "windows" {
		cases = append(cases, cases[0])
		cases[len(cases)-1] = struct {
			env  map[string]string
			want cli.Code
			args string
		}{nil, cli.Permission, "inspect keys --db " + secret}
	}
	for _, c := range cases {
		r := run(t, c.env, strings.Fields(c.args)...)
		if r.code != int(c.want) {
			t.Errorf("%s: exit code %d, want %d\n%s", c.args, r.code, c.want, r.stderr)
		}
		if c.want == cli.OK {
			continue
		}
		// The same as an object.
		if strings.Contains(c.args, "-w ") || strings.Contains(c.args, "-o ") {
			continue
		}
		r = run(t, c.env, append(strings.Fields(c.args), "-w", "json")...)
		var e struct {
			Code           int
			Class, Message string
		}
		if err := json.Unmarshal([]byte(lastLine(r.stderr)), &e); err != nil && !strings.Contains(c.args, "nonsense") && c.want != cli.Config {
			t.Errorf("%s: stderr is no object: %q", c.args, r.stderr)
		} else if err == nil && (e.Code != r.code || e.Message == "" || e.Class == "") {
			t.Errorf("%s: %+v, exit code %d", c.args, e, r.code)
		}
	}
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// TestSurface keeps every command, flag and default in one golden file, so that
// any change of the surface shows in review.
func TestSurface(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, name := range []string{"etcdctl-plus", "etcdctl"} {
		env := cli.NewEnv(name, strings.NewReader(""), &b, &b, func(string) string { return "" })
		commands.Surface(commands.NewRoot(env), func(c *cobra.Command, flags []*pflag.Flag) {
			b.WriteString(c.CommandPath())
			if len(c.Aliases) > 0 {
				b.WriteString(" (" + strings.Join(c.Aliases, ", ") + ")")
			}
			b.WriteByte('\n')
			for _, f := range flags {
				short := ""
				if f.Shorthand != "" {
					short = ", -" + f.Shorthand
				}
				b.WriteString("  --" + f.Name + short + " " + f.Value.Type() + " [" + f.DefValue + "]\n")
			}
		})
	}
	golden := filepath.Join("..", "testdata", "surface.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the surface changed; go test ./commands -update shows how in git diff\n%s", b.String())
	}
}
