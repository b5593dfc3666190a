package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/etcdctl-plus/etcdctl-plus/backup"
)

// SaveFlags say how a snapshot is saved.
type SaveFlags struct {
	stale, learner, corrupt bool
	timeout, stall          time.Duration
	compress                string
	recipients              []string
	hashKV                  bool
}

// Define adds the flags.
func (s *SaveFlags) Define(f *pflag.FlagSet) {
	f.BoolVar(&s.stale, "allow-stale", false, "save from a member without a leader; the manifest says so")
	f.BoolVar(&s.learner, "allow-learner", false, "save from a learner, which may be behind")
	f.BoolVar(&s.corrupt, "allow-corrupt", false, "save although the cluster has raised the alarm CORRUPT")
	f.DurationVar(&s.timeout, "timeout", 0, "longest time for all of it (0: no limit)")
	f.DurationVar(&s.stall, "stall-timeout", 30*time.Second, "longest time without a byte (0: no limit)")
	f.StringVar(&s.compress, "compress", "", "pack the file: zstd")
	f.StringArrayVar(&s.recipients, "recipient", nil, "encrypt the file to this age recipient, or to those in a file of them; may be repeated")
	f.BoolVar(&s.hashKV, "hashkv", false, "also compare with the member's own hash, which stops its writes meanwhile")
}

// AllowAll is etcdctl's way: it asks nothing.
func (s *SaveFlags) AllowAll() { s.stale, s.learner, s.corrupt = true, true, true }

// Complete registers completions.
func (s *SaveFlags) Complete(c *cobra.Command) {
	_ = c.RegisterFlagCompletionFunc("compress", cobra.FixedCompletions([]string{"zstd"}, cobra.ShellCompDirectiveNoFileComp)) // fails only for an unknown flag
}

// Options checks the flags and makes of them what backup wants; progress is the
// caller's.
func (s *SaveFlags) Options(env *Env) (backup.SaveOptions, error) {
	switch {
	case s.compress != "" && s.compress != "zstd":
		return backup.SaveOptions{}, Usagef("--compress %s: it is zstd", s.compress)
	case s.timeout < 0 || s.stall < 0:
		return backup.SaveOptions{}, Usagef("--timeout and --stall-timeout cannot be negative")
	}
	set, err := env.Settings()
	if err != nil {
		return backup.SaveOptions{}, err
	}
	to, err := Recipients(s.recipients)
	if err != nil {
		return backup.SaveOptions{}, err
	}
	host, _ := os.Hostname() // the manifest goes without
	return backup.SaveOptions{
		AllowStale: s.stale, AllowLearner: s.learner, AllowCorrupt: s.corrupt, Stall: s.stall, RequestTimeout: set.CommandTimeout,
		Compress: s.compress != "", Recipients: to, HashKV: s.hashKV, Warn: func(w string) { env.Warn("%s", w) },
		Host: host, Tool: "etcdctl-plus " + env.Version, Now: env.Now,
	}, nil
}

// Context bounds all of the work by --timeout.
func (s *SaveFlags) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.timeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, s.timeout, errSaveTimeout)
}

// errSaveTimeout is the cause of a context that --timeout ended.
var errSaveTimeout = errors.New("the time of --timeout is over")

// Timed says of an error that --timeout led to it, if it did; ctx is Context's.
func (s *SaveFlags) Timed(ctx context.Context, err error) error {
	if err == nil || !errors.Is(context.Cause(ctx), errSaveTimeout) {
		return err
	}
	return &Error{Code: Timeout, Err: fmt.Errorf("not done after %v: %w; nothing of it is left", s.timeout, errSaveTimeout), Hint: "--timeout allows for more time; 0 is no limit, and --stall-timeout ends it when nothing comes"}
}

// ExplainSave adds to the error of a save what the operator can do.
func ExplainSave(err error) error {
	if err == nil {
		return nil
	}
	d := *Describe(err)
	if d.Code != Config {
		d.DropIn = 5 // as etcdctl, for whatever goes wrong with a snapshot
	}
	var stalled *backup.StallError
	switch {
	case errors.Is(err, backup.ErrCorruptAlarm):
		d.Code, d.Hint = Refused, "find the member that differs first; --allow-corrupt saves all the same"
	case errors.Is(err, backup.ErrLearner):
		d.Code, d.Hint = Refused, "name a voting member with --endpoints; --allow-learner saves all the same"
	case errors.Is(err, backup.ErrNoSnapshots):
		d.Hint = "back up the database behind it with that database's own tools; `registry dump` saves the objects"
	case errors.Is(err, backup.ErrNoQuorum):
		d.Code, d.Hint = Unavailable, "name a member that has a leader; --allow-stale saves what this one has"
	case errors.As(err, &stalled):
		d.Code, d.Endpoint, d.Hint = Timeout, stalled.Endpoint, "--stall-timeout allows for longer pauses"
	case errors.Is(err, backup.ErrExists) && d.Hint == "":
		d.Hint = "choose another name, or replace it with --force"
	}
	d.Retryable, d.Class = d.Code.Info().Retryable, d.Code.Info().Class
	return &d
}
