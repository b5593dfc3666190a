//go:build unix

package supervise

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The guard is a process of this program in the command's process group, whose leader it
// is. It holds one end of a pipe, over which it learns until when the command may run, and
// kills the group at that time, or at once when the pipe closes because we are no more. So
// it does not matter whether we are killed or stopped. It ignores what the terminal sends
// to the command; when it is stopped together with us, nobody is left to keep the promise.

// guardVariable makes a start of this program without arguments the guard.
const guardVariable = "ETCDCTL_PLUS_LOCK_GUARD"

// IsGuard tells whether this process was started as the guard.
func IsGuard(args []string) bool { return len(args) == 1 && os.Getenv(guardVariable) != "" }

// dismissed is what the guard is told when it is no longer needed.
const dismissed Instant = 0

// Guard is the guard's whole life. It returns its exit code.
func Guard() int {
	signal.Ignore(spared...)
	pipe, ready := os.NewFile(3, "holder"), os.NewFile(4, "ready")
	group, holder := unix.Getpgrp(), os.Getppid()
	if group != os.Getpid() { // started by hand: this is not a group to kill
		fmt.Fprintln(os.Stderr, guardVariable+" is set by the program itself, for a process of its own")
		return 1
	}
	moments := make(chan Instant)
	go func() {
		defer close(moments)
		for {
			var b [8]byte
			if _, err := io.ReadFull(pipe, b[:]); err != nil {
				return
			}
			moments <- Instant(binary.NativeEndian.Uint64(b[:]))
		}
	}()
	if _, err := ready.Write([]byte{1}); err != nil {
		return 1
	}
	defer ready.Close() // its end tells of ours: nobody may close it before
	var until Instant
	known := family{}
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case m, open := <-moments:
			if !open {
				awaitEnd(holder)
				known.killAll(group)
			}
			if m == dismissed {
				return 0
			}
			until = m
			known.add(group)
		case <-t.C:
			switch left := until.Sub(Now()); {
			case until == 0:
			case left <= 0:
				known.killAll(group)
			case left <= soon:
				known.add(group)
			}
		}
	}
}

// soon is how long before the end the guard looks again whom it will have to kill: on a busy
// machine looking can take longer than killing may.
const soon = 300 * time.Millisecond

// awaitEnd waits until our parent has ended. Its files are closed a moment before: whoever is
// stopped in its children's groups by then gets a hangup from the kernel, dies of it, and
// what it has started is not found any more.
func awaitEnd(parent int) {
	for begin := Now(); os.Getppid() == parent && Now().Sub(begin) < soon; {
		time.Sleep(time.Millisecond)
	}
}

// spared are the signals to the command's group that the guard outlives.
var spared = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU,
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGPIPE, syscall.SIGALRM,
}

// killAll kills those known to belong to a group at once, then who has joined them, and the
// leader last, since it may be who calls.
func (f family) killAll(group int) {
	f.kill(group)
	_ = unix.Kill(-group, unix.SIGKILL) // nobody is left in it
}

// guard is the guard as its holder sees it.
type guard struct {
	cmd   *exec.Cmd
	pipe  *os.File
	ended chan struct{}
}

// startTimeout is how long the guard may take to be there.
const startTimeout = 20 * time.Second

func startGuard() (*guard, error) {
	in, pipe, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	said, ready, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, pipe.Close())
	}
	defer ready.Close()
	self, err := itself()
	if err != nil {
		return nil, errors.Join(err, pipe.Close(), said.Close())
	}
	g := &guard{pipe: pipe, ended: make(chan struct{}), cmd: &exec.Cmd{
		Path: self, Args: os.Args[:1], Env: []string{guardVariable + "=1"}, Dir: "/",
		ExtraFiles: []*os.File{in, ready}, SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}}
	if err := g.cmd.Start(); err != nil {
		return nil, errors.Join(err, pipe.Close(), said.Close())
	}
	ready.Close()
	there := make(chan error, 1)
	go func() {
		b := make([]byte, 1)
		_, err := io.ReadFull(said, b)
		there <- err
		_, _ = said.Read(b) // until it ends
		said.Close()
		close(g.ended)
	}()
	select {
	case err = <-there:
	case <-time.After(startTimeout):
		err = errors.New("it is not there in time")
	}
	if err != nil {
		_ = g.cmd.Process.Kill() // it may have ended by itself
		g.dismiss()
		return nil, err
	}
	return g, nil
}

// itself is this program's file, also when another one has taken its place.
func itself() (string, error) {
	if runtime.GOOS == "linux" {
		if _, err := os.Stat("/proc/self/exe"); err == nil {
			return "/proc/self/exe", nil
		}
	}
	return os.Executable()
}

// group is the process group of the guard and of the command.
func (g *guard) group() int { return g.cmd.Process.Pid }

// tell says until when the command may run. A guard that is no more is noticed elsewhere.
func (g *guard) tell(until Instant) {
	_, _ = g.pipe.Write(binary.NativeEndian.AppendUint64(nil, uint64(until)))
}

// dismiss ends the guard without harm to the group, and waits for it. After that the
// number of the group may become another's.
func (g *guard) dismiss() {
	g.tell(dismissed)
	_ = g.pipe.Close()
	_ = g.cmd.Wait() // however it ended
}
