package supervise

import (
	"fmt"
	"os"
	"os/exec"
	"unsafe"

	"golang.org/x/sys/windows"
)

// Forwarded is empty: Windows sends Ctrl-C to all processes of a console itself.
var Forwarded []os.Signal

// IsGuard is never true here: a job object stands for the guard.
func IsGuard([]string) bool { return false }

// Guard is not used here.
func Guard() int { return 1 }

// StartError says that the command could not be started.
type StartError struct{ Err error }

func (e *StartError) Error() string { return e.Err.Error() }
func (e *StartError) Unwrap() error { return e.Err }

// Run runs a command while h holds. A job object ends it and its descendants at once when h
// is lost, and when we end; when we are only stopped, nobody does.
func (h *Hold) Run(c Command, _ <-chan os.Signal) (End, error) {
	job, err := newJob()
	if err != nil {
		return End{}, fmt.Errorf("make a job object: %w", err)
	}
	defer windows.CloseHandle(job) //nolint:errcheck // it ends with us
	cmd := &exec.Cmd{Path: c.Path, Args: c.Args, Env: c.Env, Stdin: c.Files[0], Stdout: c.Files[1], Stderr: c.Files[2]}
	if err := cmd.Start(); err != nil {
		return End{}, &StartError{err}
	}
	if err := join(job, cmd.Process.Pid); err != nil {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
		return End{}, fmt.Errorf("put the command into its job object: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its state tells
		close(ended)
	}()
	var end End
	select {
	case <-ended:
	case <-h.Lost():
		end.Lost = h.Why()
		c.Warn("%v: the command is ended", end.Lost)
		if err := windows.TerminateJobObject(job, 1); err != nil {
			_ = cmd.Process.Kill() // it may have ended
		}
		<-ended
	}
	end.Code = cmd.ProcessState.ExitCode()
	return end, nil
}

func newJob() (windows.Handle, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, err
	}
	var limits windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	if _, err := windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation, uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits))); err != nil {
		_ = windows.CloseHandle(job)
		return 0, err
	}
	return job, nil
}

func join(job windows.Handle, pid int) error {
	p, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, uint32(pid))
	if err != nil {
		return err
	}
	defer windows.CloseHandle(p) //nolint:errcheck // read only
	return windows.AssignProcessToJobObject(job, p)
}
