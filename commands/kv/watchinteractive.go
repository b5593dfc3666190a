package kv

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli/reply"
)

// conversation is an interactive watch: several watches on one stream, whose answers are
// printed as they come.
type conversation struct {
	o      *watchOptions
	client *clientv3.Client
	p      *reply.Printer

	mu   sync.Mutex // one answer is printed at a time
	wg   sync.WaitGroup
	errs chan error
}

// runInteractive reads requests until the input ends. As etcdctl that is an error; under
// our own name the watches go on until they are interrupted.
func (o *watchOptions) runInteractive(ctx context.Context) error {
	p, err := reply.New(o.env, reply.Fields|reply.Protobuf)
	if err != nil {
		return err
	}
	client, err := o.env.Client(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	c := &conversation{o: o, client: client, p: p, errs: make(chan error, 1)}
	defer c.wg.Wait() // nobody prints any more when the output is closed
	defer cancel()
	lines := make(chan string)
	go c.read(ctx, lines)
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-c.errs:
			return err
		case line, more := <-lines:
			if !more {
				return c.wait(ctx)
			}
			if err := c.request(ctx, line); err != nil {
				return err
			}
		}
	}
}

// read sends lines; it ends with the input.
func (c *conversation) read(ctx context.Context, lines chan<- string) {
	r := bufio.NewReader(c.o.env.Stdin)
	for {
		line, err := r.ReadString('\n')
		if err == nil || line != "" && !c.o.env.DropIn() {
			select {
			case lines <- strings.TrimSuffix(line, "\n"):
			case <-ctx.Done():
				return
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF) && !c.o.env.DropIn():
			close(lines)
			return
		default:
			c.fail(&cli.Error{Code: cli.Usage, Err: fmt.Errorf("error reading watch request line: %w", err), DropIn: 3})
			return
		}
	}
}

func (c *conversation) fail(err error) {
	select {
	case c.errs <- err:
	default: // one is enough
	}
}

// wait is for the watches when nothing more is read.
func (c *conversation) wait(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		c.wg.Wait()
		close(done)
	}()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case err := <-c.errs:
		return err
	case <-done:
		return nil
	}
}

// request does what one line asks for. A line that makes no sense is told, and the next
// one read.
func (c *conversation) request(ctx context.Context, line string) error {
	words, err := splitWords(line)
	if err != nil {
		return &cli.Error{Code: cli.Usage, Err: err, DropIn: 3}
	}
	invalid := func(why any) error {
		c.o.env.Say("Invalid command %s (%v)", line, why)
		return nil
	}
	switch {
	case len(words) == 0:
		return invalid("watch and progress supported")
	case words[0] == "progress":
		return c.client.RequestProgress(clientv3.WithRequireLeader(ctx))
	case words[0] != "watch":
		return invalid("only support watch")
	case len(words) < 2 && c.o.env.Getenv("ETCDCTL_WATCH_KEY") == "":
		return invalid("command type or key is not provided")
	}
	one := watchOptions{env: c.o.env, progressNotify: c.o.progressNotify}
	flags := pflag.NewFlagSet("watch", pflag.ContinueOnError)
	flags.Usage = func() {}
	one.define(flags)
	if err := flags.Parse(words[1:]); err != nil {
		return &cli.Error{Code: cli.Usage, Err: err, DropIn: 128}
	}
	if err := one.complete(flags.Args(), flags.ArgsLenAtDash()); err != nil {
		return err
	}
	c.wg.Go(func() { c.follow(ctx, &one) })
	return nil
}

// follow prints one watch.
func (c *conversation) follow(ctx context.Context, o *watchOptions) {
	w := &watchWriter{p: c.p, env: o.env, exec: o.exec}
	for r := range c.client.Watch(clientv3.WithRequireLeader(ctx), string(o.keys.rng.Key), o.ops()...) {
		if r.Canceled {
			o.env.Say("watch was canceled (%v)", r.Err())
		}
		c.mu.Lock()
		err := w.write(ctx, &r)
		c.mu.Unlock()
		if err != nil {
			c.fail(err)
			return
		}
	}
}

func (o *watchOptions) ops() []clientv3.OpOption {
	ops := []clientv3.OpOption{clientv3.WithRev(o.rev)}
	if o.keys.rng.End != nil {
		ops = append(ops, clientv3.WithRange(string(o.keys.rng.End)))
	}
	if o.prevKV {
		ops = append(ops, clientv3.WithPrevKV())
	}
	if o.progressNotify {
		ops = append(ops, clientv3.WithProgressNotify())
	}
	return ops
}
