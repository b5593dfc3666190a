// Package commands is the command line: the tree of commands, and the one place
// where an error becomes a message and an exit code.
package commands

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/pipeline"
	"github.com/etcdctl-plus/etcdctl-plus/output"
	"github.com/etcdctl-plus/etcdctl-plus/supervise"
)

// Main runs the program under the name args[0] and returns its exit code. A
// signal that ended the work is raised again, so that a shell loop stops at
// Ctrl-C; then Main does not return.
func Main(args []string) int {
	if supervise.IsGuard(args) {
		return supervise.Guard()
	}
	name := strings.TrimSuffix(filepath.Base(args[0]), ".exe")
	env := cli.SystemEnv(name)
	ctx, caught, stop := withSignals(context.Background())
	code := Run(ctx, env, args[1:])
	stop()
	sig := caught()
	own, taken := env.TakenSignals()
	if taken {
		sig = own
	}
	if sig != nil {
		raise(sig)
	}
	if code == brokenPipe && !taken { // else it is a child's
		raiseBrokenPipe()
	}
	return code
}

// brokenPipe is the exit code of a program whose reader went away, as a shell
// shows it.
const brokenPipe = 141

// withSignals ends ctx at the first INT, TERM or HUP. Further
// signals of the same kind then act as the system has it: a second Ctrl-C kills.
func withSignals(parent context.Context) (ctx context.Context, caught func() os.Signal, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, cli.Caught(endSignals...)...)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case s := <-ch:
			signal.Stop(ch)
			cancel(&cli.SignalError{Signal: s})
		case <-done:
		}
	}()
	caught = func() os.Signal {
		var s *cli.SignalError
		if errors.As(context.Cause(ctx), &s) {
			return s.Signal
		}
		select {
		case s := <-ch:
			return s
		default:
			return nil
		}
	}
	// Stop waits for a signal that is on its way.
	return ctx, caught, func() {
		signal.Stop(ch)
		close(done)
		<-ended
	}
}

// Run executes one command line in env and returns the exit code. It reports
// the error, if any, on env.Stderr.
func Run(ctx context.Context, env *cli.Env, args []string) int {
	root := NewRoot(env)
	root.SetArgs(args)
	if env.Personality != cli.Etcdutl && env.Getenv("ETCDCTL_API") == "2" {
		env.Warn("ETCDCTL_API=2: the v2 API is gone, v3 is used")
	}
	// A database file that is cut short under a running command is an error, not
	// the end of the process.
	err := pipeline.Guard(func() error { return root.ExecuteContext(ctx) })
	if cerr := env.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = env.Incomplete()
	}
	code := finish(ctx, env, err)
	if t, ok := env.Stderr.(*output.Terminal); ok {
		_ = t.Flush() // stderr itself failed: nowhere to say so
	}
	return code
}

func finish(ctx context.Context, env *cli.Env, err error) int {
	if err == nil {
		return 0
	}
	_, taken := env.TakenSignals()
	switch {
	case errors.Is(err, cli.ErrBrokenPipe):
		return brokenPipe
	case isSignal(ctx) && !taken:
		return 1 // the signal is raised again and decides
	}
	var child *cli.ExitError
	if errors.As(err, &child) {
		return child.Code
	}
	d := cli.Describe(err)
	env.Report(d)
	if env.DropIn() {
		if d.DropIn != 0 {
			return d.DropIn
		}
		return 1
	}
	return int(d.Code)
}

func isSignal(ctx context.Context) bool {
	var s *cli.SignalError
	return errors.As(context.Cause(ctx), &s)
}

// group ids of the command list.
const (
	groupData        = "data"
	groupFiles       = "files"
	groupInspect     = "inspect"
	groupConcurrency = "concurrency"
	groupCluster     = "cluster"
	groupAuth        = "auth"
	groupBackup      = "backup"
	groupMore        = "more"
)

// v2 are the commands of etcdctl's first API, which old scripts still have, and what does
// their work now.
var v2 = map[string]string{
	"ls": "get PREFIX --prefix --keys-only", "set": "put KEY VALUE", "mk": `txn, with the comparison create("KEY") = "0"`, "update": `txn, with the comparison create("KEY") > "0"`,
	"mkdir": "nothing, since keys have no folders", "setdir": "nothing, since keys have no folders", "updatedir": "nothing, since keys have no folders",
	"rm": "del KEY", "rmdir": "del PREFIX --prefix", "exec-watch": "watch KEY -- COMMAND", "cluster-health": "endpoint health --cluster", "import": "put, or make-mirror from another cluster",
	"backup": "snapshot save FILE",
}

func wrongCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	if now, ok := v2[args[0]]; ok && !c.HasParent() {
		return &cli.Error{Code: cli.Usage, Err: fmt.Errorf("%q is a command of etcd's v2 API, which is gone; in v3 it is: %s", args[0], now), DropIn: 1}
	}
	msg := fmt.Sprintf("unknown command %q for %q", args[0], c.CommandPath())
	c.SuggestionsMinimumDistance = 2
	if s := c.SuggestionsFor(args[0]); len(s) > 0 {
		msg += "; did you mean " + strings.Join(s, " or ") + "?"
	}
	err := cli.Usagef("%s", msg)
	return cli.WithHint(&cli.Error{Code: cli.Usage, Err: err, DropIn: 1}, fmt.Sprintf("`%s --help` lists the commands", c.CommandPath()))
}
