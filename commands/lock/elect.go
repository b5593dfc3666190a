package lock

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli/reply"
	"github.com/etcdctl-plus/etcdctl-plus/output"
	"github.com/etcdctl-plus/etcdctl-plus/supervise"
)

type electOptions struct {
	env *cli.Env
	candidate
	name   string
	listen bool
}

const electLong = `With a proposal: campaigns to be the leader, prints the key when elected, and leads until
interrupted. With --listen: prints who leads, and again whenever that changes.

An election is a lock whose keys hold the proposals. --command-timeout does not end it.

Server cost: that of lock; listening costs one watch.`

const ownElectLong = `

  elect NAME PROPOSAL           lead until interrupted
  elect NAME PROPOSAL -- CMD …  run CMD while leading; CMD's exit code is ours
  elect NAME --listen           who leads
  lock ls NAME                  who leads, and who waits
`

func newElectCmd(env *cli.Env) *cobra.Command {
	o := electOptions{env: env, candidate: candidate{variable: "ETCD_ELECTION", what: "election", ttl: dropInTTL}}
	c := &cobra.Command{
		Use:   "elect <election-name> [proposal]",
		Short: "Observes and participates in leader election",
		Long:  electLong,
		Args:  cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.complete(args, c.ArgsLenAtDash()); err != nil {
				return err
			}
			if o.listen {
				return o.observe(c.Context())
			}
			return o.run(c.Context())
		},
	}
	f := c.Flags()
	f.BoolVarP(&o.listen, "listen", "l", false, "observation mode")
	if !env.DropIn() {
		c.Use = "elect NAME [PROPOSAL [-- CMD ARG…]]"
		c.Long = electLong + ownElectLong + childHelp(o.variable) + lockCodes
		c.Example = `  etcdctl-plus elect scheduler host-1 -- /usr/local/bin/scheduler
  etcdctl-plus elect scheduler --listen`
		f.IntVar(&o.ttl, "ttl", dropInTTL, "time to live of the lease, in seconds")
		o.define(f)
	}
	return c
}

// complete takes the arguments; those from dash on stood behind --, -1: there was none.
func (o *electOptions) complete(args []string, dash int) error {
	if !o.env.DropIn() && dash >= 0 {
		args, o.command = args[:dash], args[dash:]
		if len(o.command) == 0 {
			return cli.Usagef("there is no command behind --")
		}
	}
	switch {
	case len(args) != 1 && len(args) != 2:
		return cli.Usagef("elect takes one election name argument and an optional proposal argument")
	case len(args) == 1 && !o.listen:
		return cli.Usagef("no proposal argument but -l not set")
	case len(args) == 2 && o.listen:
		return cli.Usagef("proposal given but -l is set")
	case o.listen && len(o.command) > 0:
		return cli.Usagef("a command runs while leading, not while listening")
	}
	o.name = args[0]
	if len(args) == 2 {
		o.value = args[1]
	}
	return o.candidate.complete(o.env)
}

func (o *electOptions) run(ctx context.Context) error {
	p, err := reply.New(o.env, reply.Fields|reply.Protobuf)
	if err != nil {
		return err
	}
	client, err := o.client(ctx, o.env)
	if err != nil {
		return err
	}
	return o.hold(ctx, o.env, client, p, o.name)
}

// observe prints leaders until it is interrupted, which as etcdctl ends with 0.
func (o *electOptions) observe(ctx context.Context) error {
	p, err := reply.New(o.env, reply.Fields|reply.Protobuf)
	if err != nil {
		return err
	}
	client, err := o.env.Client(ctx)
	if err != nil {
		return err
	}
	var stream *output.Stream
	for r, err := range supervise.Leaders(ctx, client, o.name) {
		switch {
		case ctx.Err() != nil && o.env.DropIn() && orderly(ctx):
			o.env.TakeSignals(nil)
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return fmt.Errorf("observe election %q: %w", o.name, err)
		}
		if err := o.print(p, &stream, r); err != nil {
			return err
		}
		if err := o.env.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func (o *electOptions) print(p *reply.Printer, stream **output.Stream, r *clientv3.GetResponse) error {
	switch p.Format {
	case output.Simple, output.Fields, output.JSON, output.Protobuf:
		return p.Print(keyAnswer(p, r))
	}
	if *stream == nil {
		*stream = p.Stream(output.Envelope{})
	}
	if err := (*stream).Write(newKeyView(r)); err != nil {
		return err
	}
	return (*stream).Flush()
}

// childHelp is the help on commands, whose variables begin with prefix.
func childHelp(prefix string) string { return strings.ReplaceAll(childLong, "%[1]s", prefix) }
