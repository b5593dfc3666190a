// Package sandbox holds `sandbox`: a throw-away etcd to try things in.
package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/config"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sandbox"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type sandboxOptions struct {
	env  *cli.Env
	from string
	dir  string
	file cli.FileFlags
	cmd  []string
}

// New makes `sandbox`.
func New(env *cli.Env) *cobra.Command {
	o := sandboxOptions{env: env}
	c := &cobra.Command{
		Use:   "sandbox [-- CMD ARG…]",
		Short: "Start a throw-away etcd, empty or from a snapshot",
		Long: `Start a throw-away etcd on this machine's loopback, empty or from a private copy
of a snapshot or member file. What was in the file is there at the same
revisions; leases never expire in it, authentication is off, and nothing of it is
left when it ends.

With -- CMD the command runs with ETCDCTL_ENDPOINTS set, and its exit code is
ours. Certificates, users and the context of a real cluster do not count in it.
Without one a shell starts on a terminal; elsewhere the endpoint is printed
and the sandbox runs until it is interrupted.

A sandbox is for looking and trying. Its folder is no way to restore a cluster.`,
		Example: `  etcdctl-plus sandbox --from snapshot.db -- etcdctl-plus registry get pods -A
  etcdctl-plus sandbox -- ./my-integration-test.sh`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 && c.ArgsLenAtDash() != 0 {
				return cli.WithHint(cli.Usagef("unexpected argument %q", args[0]), "a command to run comes after --")
			}
			if c.Flags().Changed("from") && o.from == "" {
				return cli.WithHint(cli.Usagef("--from is empty"), "is a variable in your script unset? For an empty etcd leave --from away")
			}
			if len(args) > 0 && args[0] == "" {
				return cli.Usagef("the command after -- is empty")
			}
			o.cmd = args
			return o.run(c.Context())
		},
	}
	c.Flags().StringVar(&o.from, "from", "", "start from a copy of this snapshot or member file (empty: no data)")
	o.file.Define(c.Flags(), "with --from: ")
	c.Flags().StringVar(&o.dir, "dir", "", "folder for its temporary files (default: the system's)")
	return c
}

func (o *sandboxOptions) run(ctx context.Context) error {
	p, err := o.env.Printer(append([]output.Format{output.Simple}, output.Views()...)...)
	if err != nil {
		return err
	}
	file, err := o.file.Options(o.env)
	if err != nil {
		return err
	}
	s, err := sandbox.Start(ctx, sandbox.Options{From: o.from, Dir: o.dir, File: file})
	if err != nil {
		return withOwnHint(err)
	}
	if note := s.Note(); note != "" {
		o.env.Warn("%s: %s", o.from, note)
	}
	o.env.OnClose(s.Close)
	switch shell := cmp.Or(o.env.Getenv("SHELL"), defaultShell); {
	case len(o.cmd) > 0:
		return o.exec(ctx, s.Endpoint())
	case o.env.StdinTTY && o.env.StdoutTTY:
		fmt.Fprintf(o.env.Stderr, "sandbox at %s; ETCDCTL_ENDPOINTS is set in this shell, and leaving it ends the sandbox\n", s.Endpoint())
		o.cmd = []string{shell}
		return o.exec(ctx, s.Endpoint())
	}
	if err := p.Print(view{Endpoint: s.Endpoint(), PID: os.Getpid()}); err != nil {
		return err
	}
	if err := o.env.Flush(); err != nil {
		return err
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// withOwnHint replaces the hints that name flags of --db, which a sandbox has not.
func withOwnHint(err error) error {
	var sum *dbfile.ChecksumError
	var hint string
	switch {
	case errors.As(err, &sum):
		hint = "use another copy of the snapshot; the reading commands look into this one with --db and --db-skip-hash-check"
	default:
		return err
	}
	d := *cli.Describe(err)
	d.Hint = hint
	return &d
}

type view struct {
	Endpoint string `json:"endpoint"`
	PID      int    `json:"pid"`
}

func (v view) Text() string { return v.Endpoint + "\n" }

func (v view) Table() output.Table {
	return output.Table{Columns: []output.Column{{Name: "ENDPOINT"}, {Name: "PID", Right: true}}, Rows: [][]string{{v.Endpoint, fmt.Sprint(v.PID)}}}
}

// killDelay is how long a child may take to end when it is told to.
const killDelay = 5 * time.Second

// exec runs the command in the foreground and passes its exit code through.
func (o *sandboxOptions) exec(ctx context.Context, endpoint string) error {
	cmd := exec.CommandContext(ctx, o.cmd[0], o.cmd[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = o.env.Stdin, o.env.Stdout, o.env.Stderr
	if f, ok := o.env.Raw(); ok {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = f[0], f[1], f[2]
	}
	mode := "read-write"
	if o.env.Flags.Explicit("read-only") != "" {
		// Asked for here; a context's read-only protects the real cluster.
		if set, err := o.env.Settings(); err != nil {
			return err
		} else if set.ReadOnly {
			mode = config.SandboxReadOnly
		}
	}
	cmd.Env = append(withoutConnection(os.Environ()), "ETCDCTL_ENDPOINTS="+endpoint, config.SandboxVariable+"="+mode)
	cmd.Cancel = func() error { return cmd.Process.Signal(cli.Terminate) }
	cmd.WaitDelay = killDelay
	err := cmd.Run()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return cli.ChildEnded(o.env, o.cmd[0], err)
}

// withoutConnection takes away the settings of the real cluster: what runs in a
// sandbox must not reach it by accident, nor fail because of its certificates.
func withoutConnection(env []string) []string {
	var out []string
	for _, kv := range env {
		if !strings.HasPrefix(kv, "ETCDCTL_") {
			out = append(out, kv)
		}
	}
	return out
}
