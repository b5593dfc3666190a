package tail

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"time"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/watchtail"
)

// firstPause is before the first retry of a command; each later one is twice as long.
const firstPause = time.Second

const mostPause = time.Minute

// command is a sink that runs a program for each event, or for what has come together. What
// it was given counts as delivered when it ends with 0.
type command struct {
	ctx     context.Context //nolint:containedctx // it lives as long as one run
	env     *cli.Env
	script  string
	batch   bool
	retries int // -1: without end
	buf     []byte
}

func (c *command) Write(lines []byte) error {
	if c.batch {
		c.buf = append(c.buf, lines...)
		return nil
	}
	for line := range bytes.Lines(lines) {
		if err := c.deliver(line); err != nil {
			return err
		}
	}
	return nil
}

func (c *command) Flush() error {
	if len(c.buf) == 0 {
		return nil
	}
	err := c.deliver(c.buf)
	if err == nil {
		c.buf = c.buf[:0]
	}
	return err
}

func (c *command) Sync() (*watchtail.Output, error) { return nil, c.Flush() }
func (c *command) Close() error                     { return nil }

// deliver runs the program until it takes the lines.
func (c *command) deliver(lines []byte) error {
	pause := firstPause
	for try := 0; ; try++ {
		err := c.once(lines)
		switch {
		case err == nil:
			return nil
		case c.ctx.Err() != nil:
			return context.Cause(c.ctx)
		case c.retries >= 0 && try >= c.retries:
			return cli.WithHint(fmt.Errorf("--exec: %w; it was tried %d times, and what it was given is not delivered", err, try+1),
				"the next run with this checkpoint gives it the same events again; --exec-retries -1 tries without end")
		}
		c.env.Warn("--exec: %v; again in %s", err, pause)
		select {
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		case <-time.After(pause):
		}
		pause = min(2*pause, mostPause)
	}
}

func (c *command) once(lines []byte) error {
	name, args := "sh", []string{"-c", c.script}
	if runtime.GOOS == "windows" {
		name, args = "cmd", []string{"/c", c.script}
	}
	cmd := exec.Command(name, args...) //nolint:noctx // what runs is not torn off; it is waited for
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = c.env.ChildEnviron(), bytes.NewReader(lines), c.env.Stdout, c.env.Stderr
	if err := c.env.Flush(); err != nil {
		return err
	}
	err := cmd.Run()
	if ferr := c.env.Flush(); err == nil {
		err = ferr
	}
	return err
}
