//go:build unix

package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Forwarded are the signals that a command gets from us.
var Forwarded = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTSTP, syscall.SIGCONT,
}

// StartError says that the command could not be started.
type StartError struct{ Err error }

func (e *StartError) Error() string { return e.Err.Error() }
func (e *StartError) Unwrap() error { return e.Err }

// run is a command under way.
type run struct {
	h      *Hold
	c      Command
	guard  *guard
	tty    *terminal
	group  int
	lost   error
	killAt Instant // 0: it is not to be killed
	family family  // when it was told to end: whose parent has ended is not found later
	// suspended says that we have asked to be stopped with the command, until SIGCONT, or
	// until it shows that nobody stops us.
	suspended <-chan time.Time
}

// Run runs a command in a process group of its own while h holds, and returns when it has
// ended. What comes from signals is passed on to the group. When h is lost the group is told
// to end (SIGTERM), and killed after c.KillAfter, or earlier, so that nothing of it runs when
// the lease ends. A guard process sees to that when we cannot.
//
// If we are in the foreground of a terminal, the command is there while it runs. When the
// terminal stops it (Ctrl-Z), we stop too, so that the shell takes over; whoever stays
// stopped loses what was held.
//
// The error is a StartError when the command could not be started.
func (h *Hold) Run(c Command, signals <-chan os.Signal) (End, error) {
	g, err := startGuard()
	if err != nil {
		return End{}, fmt.Errorf("start the guard process: %w", err)
	}
	r := &run{h: h, c: c, guard: g, group: g.group(), tty: openTerminal()}
	h.onRenewal(func() { g.tell(h.lastMoment()) })
	defer h.onRenewal(nil)
	defer r.tty.close()
	attr := &syscall.SysProcAttr{Setpgid: true, Pgid: r.group}
	if r.tty != nil && r.tty.ours() {
		attr.Foreground, attr.Ctty, r.tty.lent = true, r.tty.fd, true
	}
	cmd := &exec.Cmd{Path: c.Path, Args: c.Args, Env: c.Env, Stdin: c.Files[0], Stdout: c.Files[1], Stderr: c.Files[2], SysProcAttr: attr}
	if err := cmd.Start(); err != nil {
		g.dismiss()
		return End{}, &StartError{err}
	}
	ignoreStops()
	status := r.loop(signals, waitFor(cmd.Process.Pid))
	if r.lost == nil && status.Signal() == syscall.SIGKILL {
		h.checkClock() // then the guard has done it, because we were stopped
		if why := h.Why(); why != nil {
			r.end(why)
		}
	}
	_ = cmd.Process.Release() // it was waited for here
	if r.lost != nil {
		r.awaitGroup()
		r.family.killAll(r.group)
	}
	g.dismiss()
	end := End{Code: status.ExitStatus(), Lost: r.lost}
	if status.Signaled() {
		end.Code, end.Killed = 128+int(status.Signal()), true
	}
	return end, nil
}

// waitFor hands on each stop of a process, and its end.
func waitFor(pid int) <-chan syscall.WaitStatus {
	ch := make(chan syscall.WaitStatus)
	go func() {
		for {
			var s syscall.WaitStatus
			_, err := syscall.Wait4(pid, &s, syscall.WUNTRACED, nil)
			if err == syscall.EINTR {
				continue
			}
			ch <- s
			if err != nil || !s.Stopped() {
				return
			}
		}
	}()
	return ch
}

// loop returns when the command has ended.
func (r *run) loop(signals <-chan os.Signal, states <-chan syscall.WaitStatus) syscall.WaitStatus {
	t := time.NewTicker(tick)
	defer t.Stop()
	lost, guardEnded := r.h.Lost(), r.guard.ended
	for {
		select {
		case s := <-states:
			if !s.Stopped() {
				return s
			}
			r.stopped(s.StopSignal())
		case s := <-signals:
			if s == syscall.SIGCONT {
				r.resume()
			} else if sig, ok := s.(syscall.Signal); ok {
				r.signal(sig)
			}
		case <-r.suspended:
			r.resume()
		case <-lost:
			lost = nil
			r.end(r.h.Why())
		case <-guardEnded:
			guardEnded = nil
			r.h.checkClock()
			if why := r.h.Why(); why != nil { // it did what we were too late for
				r.end(why)
			} else if r.killAt == 0 { // else it died with the group
				r.end(errors.New("the guard process has ended, without which the command may outlive the lock"))
			}
		case <-t.C:
			if r.killAt != 0 && Now() >= r.killAt {
				r.family.killAll(r.group)
			}
		}
	}
}

// signal sends to the group. The guard is in it, so its number is not another's yet.
func (r *run) signal(s syscall.Signal) { _ = unix.Kill(-r.group, s) }

// end tells the group to end, because of why.
func (r *run) end(why error) {
	if r.lost != nil {
		return
	}
	r.lost = why
	r.killAt = min(Now().Add(r.c.KillAfter), r.h.lastMoment())
	r.family = familyOf(r.group)
	r.family.signal(r.group, syscall.SIGTERM)
	r.signal(syscall.SIGTERM)
	r.signal(syscall.SIGCONT) // a stopped process would not notice
	r.c.Warn("%v: the command is told to end", why)
}

// awaitGroup gives what the command has left behind its time to end.
func (r *run) awaitGroup() {
	for Now() < r.killAt && !r.family.empty(r.group) {
		time.Sleep(tick)
	}
}

// orphanDelay is how long it takes at most to be stopped.
const orphanDelay = 300 * time.Millisecond

// stopped stops us too when the terminal has stopped the command.
func (r *run) stopped(by syscall.Signal) {
	if r.h.checkClock(); r.h.Why() != nil { // it is the guard, which kills it next
		return
	}
	if r.tty == nil || r.lost != nil || !r.tty.lent && by != syscall.SIGTTIN && by != syscall.SIGTTOU && by != syscall.SIGTSTP {
		return
	}
	if by == syscall.SIGTTIN && r.tty.ours() { // the shell has put us into the foreground
		r.resume()
		return
	}
	r.tty.takeBack()
	r.c.Warn("stopped; unless it goes on, the command is killed in %s, and the lock is free then", max(0, r.h.lastMoment().Sub(Now())).Round(time.Second))
	// The whole job: a script that started us is to stop too. The system ignores this
	// where nobody could let us go on; then the command goes on at once. It is not SIGTSTP,
	// which Go does not leave to the system again once it was caught.
	r.suspended = time.After(orphanDelay)
	_ = unix.Kill(0, unix.SIGTTIN)
}

// resume lets the command go on, in the foreground if we are there.
func (r *run) resume() {
	r.suspended = nil
	if r.tty != nil && r.tty.ours() && r.tty.give(r.group) == nil {
		r.tty.lent = true
	}
	r.signal(syscall.SIGCONT)
}
