package lock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli/reply"
	"github.com/etcdctl-plus/etcdctl-plus/supervise"
)

// candidate is what lock and elect share: waiting for a place, holding it, and a command
// that runs meanwhile.
type candidate struct {
	what      string // "lock"
	variable  string // "ETCD_LOCK", what the names of the command's variables begin with
	ttl       int
	try       bool
	wait      time.Duration
	margin    time.Duration
	killAfter time.Duration
	value     string
	command   []string
}

// killAfter is how long a command may take to end by itself, unless a flag says otherwise.
const killAfter = 2 * time.Second

// dropInTTL is what etcdctl takes in the place of a time to live that is not positive.
const dropInTTL = 60

// define adds the flags that etcdctl does not have.
func (c *candidate) define(f *pflag.FlagSet) {
	f.BoolVar(&c.try, "try", false, "do not wait: end when it is not free")
	f.DurationVar(&c.wait, "wait", 0, "wait at most this long (0: without end)")
	f.DurationVar(&c.margin, "margin", 0, "count it as lost this long before the lease ends (0: a quarter of --ttl, at least 1.5s, at most half)")
	f.DurationVar(&c.killAfter, "kill-after", killAfter, "how long the command may take to end when it is told to")
}

func (c *candidate) complete(env *cli.Env) error {
	if env.DropIn() {
		c.killAfter = killAfter
		if c.ttl <= 0 {
			c.ttl = dropInTTL
		}
		return nil // etcdctl looks for the command when the lock is held
	}
	switch {
	case c.ttl <= 0:
		return cli.Usagef("--ttl %d: it has to be positive, in seconds", c.ttl)
	case c.margin < 0 || c.margin > time.Duration(c.ttl)*time.Second/2:
		return cli.Usagef("--margin %s: it can be at most half of --ttl, %ds", c.margin, c.ttl)
	case c.wait < 0 || c.killAfter < 0:
		return cli.Usagef("--wait and --kill-after cannot be negative")
	case c.try && c.wait > 0:
		return cli.Usagef("--try and --wait exclude each other")
	case len(c.command) == 0:
		return nil
	}
	_, err := exec.LookPath(c.command[0])
	return cli.ChildEnded(env, c.command[0], err)
}

// client connects. What goes wrong before a command could run has its own code.
func (c *candidate) client(ctx context.Context, env *cli.Env) (*clientv3.Client, error) {
	client, err := env.Client(ctx)
	return client, c.toolFailed(ctx, env, err)
}

// toolFailed gives an error the code that tells it from the command's own.
func (c *candidate) toolFailed(ctx context.Context, env *cli.Env, err error) error {
	if err == nil || len(c.command) == 0 || env.DropIn() || ctx.Err() != nil {
		return err
	}
	d := *cli.Describe(err)
	if d.Code != cli.Usage {
		d.Code = cli.ToolFailed
	}
	return &d
}

var errWaited = errors.New("not free in time")

// hold waits for a place and holds it, until it is lost or we are told to end; or as long
// as the command runs.
func (c *candidate) hold(ctx context.Context, env *cli.Env, client *clientv3.Client, p *reply.Printer, name string) error {
	// A second signal must not end us before what is held is given back: whoever ends a job
	// often sends two, to the process and to its group.
	again := make(chan os.Signal, 1)
	signal.Notify(again, cli.Caught(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)...)
	defer func() {
		if ctx.Err() == nil { // else until the process ends: the last one may come late
			signal.Stop(again)
		}
	}()
	// Go ends a program at QUIT with a dump of its stacks.
	quit, stop := signal.NotifyContext(ctx, syscall.SIGQUIT)
	defer stop()
	h, err := c.acquire(quit, env, client, name)
	if err == nil && len(c.command) > 0 {
		stop()
		return c.run(ctx, env, name, h)
	}
	if err == nil {
		err = c.show(quit, env, client, p, name, h)
		if err == nil {
			select {
			case <-quit.Done():
				err = context.Cause(ctx)
			case <-h.Lost():
				err = c.lost(name, h.Why())
			}
		}
		_ = c.release(env, h) // that it had been lost already changes nothing now
	}
	switch {
	case ctx.Err() != nil:
		return c.interrupted(ctx, env, h != nil)
	case quit.Err() != nil:
		return &cli.ExitError{Code: 128 + int(syscall.SIGQUIT)}
	}
	return err
}

// interrupted is the end by a signal, which is raised again. etcdctl ends in order at INT
// and TERM, and with an error when it was waiting.
func (c *candidate) interrupted(ctx context.Context, env *cli.Env, held bool) error {
	if env.DropIn() && orderly(ctx) {
		env.TakeSignals(nil)
		if held {
			return nil
		}
		return fmt.Errorf("%s: interrupted while waiting", c.what)
	}
	return context.Cause(ctx)
}

// orderly tells whether it was INT or TERM that ended ctx.
func orderly(ctx context.Context) bool {
	var s *cli.SignalError
	return errors.As(context.Cause(ctx), &s) && (s.Signal == os.Interrupt || s.Signal == syscall.SIGTERM)
}

func (c *candidate) acquire(ctx context.Context, env *cli.Env, client *clientv3.Client, name string) (*supervise.Hold, error) {
	wctx := ctx
	if c.wait > 0 {
		var cancel context.CancelFunc
		wctx, cancel = context.WithTimeoutCause(ctx, c.wait, errWaited)
		defer cancel()
	}
	h, err := supervise.Acquire(wctx, client, supervise.Options{Name: name, Value: c.value, TTL: int64(c.ttl), Try: c.try, Margin: c.margin})
	if err == nil {
		return h, nil
	}
	var left *supervise.LeftError
	if errors.As(err, &left) {
		env.Warn("%v", left.Left)
		err = left.Err
	}
	var gone *supervise.LostError
	switch {
	case ctx.Err() != nil:
		return nil, err
	case errors.Is(err, supervise.ErrNotFree):
		code := cli.Negative
		if len(c.command) > 0 { // a 4 could be the command's
			code = cli.NotAcquired
		}
		return nil, cli.WithHint(cli.Failf(code, "%w", err), fmt.Sprintf("`lock ls %s` shows who has it", name))
	case errors.Is(err, errWaited):
		return nil, cli.WithHint(cli.Failf(cli.NotAcquired, "%s %q: %w, --wait %s", c.what, name, errWaited, c.wait), fmt.Sprintf("`lock ls %s` shows who has it", name))
	case errors.As(err, &gone):
		return nil, cli.Failf(cli.NotAcquired, "%s %q: the place in the queue is lost: %w", c.what, name, gone)
	}
	return nil, c.toolFailed(ctx, env, fmt.Errorf("%s %q: %w", c.what, name, err))
}

// show prints the key that is held.
func (c *candidate) show(ctx context.Context, env *cli.Env, client *clientv3.Client, p *reply.Printer, name string, h *supervise.Hold) error {
	r, err := client.Get(ctx, h.Key)
	if err != nil {
		return fmt.Errorf("%s %q: get its key: %w", c.what, name, err)
	}
	if len(r.Kvs) == 0 {
		return c.lost(name, errors.New("its key is gone"))
	}
	if err := p.Print(keyAnswer(p, r)); err != nil {
		return err
	}
	return env.Flush()
}

func (c *candidate) lost(name string, why error) error {
	return cli.Failf(cli.LockLost, "%s %q is lost: %w", c.what, name, why)
}

// release gives back, and tells what could not be. It reports whether the key was no longer
// ours.
func (c *candidate) release(env *cli.Env, h *supervise.Hold) error {
	err := h.Release()
	var gone *supervise.LostError
	if err == nil || errors.As(err, &gone) {
		return err
	}
	env.Warn("%v", err)
	return nil
}

// run runs the command and ends as it ends.
func (c *candidate) run(ctx context.Context, env *cli.Env, name string, h *supervise.Hold) error {
	signals := make(chan os.Signal, 16)
	if len(supervise.Forwarded) > 0 { // none would be all
		signal.Notify(signals, cli.Caught(supervise.Forwarded...)...)
		defer signal.Stop(signals)
	}
	if ctx.Err() != nil { // just before
		_ = c.release(env, h) // nothing ran under it
		return c.interrupted(ctx, env, true)
	}
	env.TakeSignals(nil)
	path, err := exec.LookPath(c.command[0])
	var end supervise.End
	if err == nil {
		end, err = h.Run(supervise.Command{
			Path: path, Args: c.command, Files: files(env), KillAfter: c.killAfter, Warn: env.Warn,
			Env: append(withoutVariables(env.ChildEnviron(), c.variable), c.variable+"_KEY="+h.Key, fmt.Sprintf("%s_REV=%d", c.variable, h.Rev), fmt.Sprintf("%s_FENCE=%d", c.variable, h.CreateRev)),
		}, signals)
	}
	gone := c.release(env, h)
	var start *supervise.StartError
	switch {
	case errors.As(err, &start), errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist), errors.Is(err, os.ErrPermission):
		if env.DropIn() {
			return &cli.Error{Code: cli.Failure, Err: fmt.Errorf("run %s: %w", c.command[0], err)}
		}
		return cli.ChildEnded(env, c.command[0], err)
	case err != nil:
		return c.toolFailed(context.WithoutCancel(ctx), env, err)
	case end.Lost == nil && gone != nil:
		return c.lost(name, fmt.Errorf("%w, while the command ran", gone))
	}
	return c.ended(env, name, end)
}

// ended passes on how the command ended. As etcdctl one that a signal killed gives 255.
func (c *candidate) ended(env *cli.Env, name string, end supervise.End) error {
	var lost *supervise.LostError
	switch {
	case errors.As(end.Lost, &lost):
		return c.lost(name, lost)
	case end.Lost != nil:
		return c.toolFailed(context.Background(), env, end.Lost)
	case end.Code == 0:
		return nil
	case end.Killed && env.DropIn():
		return &cli.ExitError{Code: 255}
	case end.Code == 128+int(syscall.SIGINT) && end.Killed:
		env.TakeSignals(syscall.SIGINT) // a shell's loop around us has to stop
	}
	return &cli.ExitError{Code: end.Code}
}

// files are the command's standard streams.
func files(env *cli.Env) [3]*os.File {
	if f, ok := env.Raw(); ok {
		return [3]*os.File(f)
	}
	return [3]*os.File{os.Stdin, os.Stdout, os.Stderr}
}

// withoutVariables takes away what an outer lock has left in the environment.
func withoutVariables(environ []string, prefix string) []string {
	return slices.DeleteFunc(environ, func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return name == prefix+"_KEY" || name == prefix+"_REV" || name == prefix+"_FENCE"
	})
}
