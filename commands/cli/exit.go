package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// ExitError passes a child's exit code through; nothing is printed for it.
type ExitError struct{ Code int }

func (e *ExitError) Error() string { return fmt.Sprintf("command exited with code %d", e.Code) }

// SignalError is the cause of a context that a signal ended.
type SignalError struct{ Signal os.Signal }

func (e *SignalError) Error() string { return "stopped by signal: " + e.Signal.String() }

// Caught returns those of the signals that are to be caught: all but a HUP that is ignored,
// as nohup has it.
func Caught(signals ...os.Signal) []os.Signal {
	return slices.DeleteFunc(slices.Clone(signals), func(s os.Signal) bool { return s == syscall.SIGHUP && signal.Ignored(s) })
}

// ChildEnded turns what running a command gave into our end: its exit code, 128 and the
// number of the signal that killed it, or, with a line that says why, 127 and 126 for one
// that is not there and one that cannot be run, as shells have it.
func ChildEnded(env *Env, command string, err error) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exit):
		return &ExitError{Code: childCode(exit)}
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist):
		return notRun(env, command, 127, err)
	case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENOEXEC):
		return notRun(env, command, 126, err)
	}
	return fmt.Errorf("run %s: %w", command, err)
}

func notRun(env *Env, command string, code int, err error) error {
	env.Report(&Error{Code: Code(code), Class: "failure", Err: fmt.Errorf("run %s: %w", command, err)})
	return &ExitError{Code: code}
}

// ChildEnviron is the environment for a command that runs for the user: our own, without
// passwords and tokens. As etcdctl it is our own, since scripts of etcdctl's log in with it.
func (e *Env) ChildEnviron() []string {
	if e.DropIn() {
		return os.Environ()
	}
	var out []string
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		short, ours := strings.CutPrefix(name, "ETCDCTL_PLUS_")
		if !ours {
			short, ours = strings.CutPrefix(name, "ETCDCTL_")
		}
		if ours && (short == "PASSWORD" || short == "AUTH_JWT_TOKEN") {
			continue
		}
		if ours && short == "USER" {
			user, _, _ := strings.Cut(value, ":")
			kv = name + "=" + user
		}
		out = append(out, kv)
	}
	return out
}
