// Package lock holds lock and elect: what only one may have at a time, and commands that
// run while they have it.
package lock

import (
	"context"
	"encoding/json"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli/reply"
)

// Commands returns the commands of this package.
func Commands(env *cli.Env) []*cobra.Command {
	return []*cobra.Command{newLockCmd(env), newElectCmd(env)}
}

type lockOptions struct {
	env *cli.Env
	candidate
	name string
}

const lockLong = `Waits for a lock, first come first served, holds it, prints its key, and gives it back
when it is interrupted; or runs a command while it holds it.

The lock is the oldest key below NAME/, each with a lease of --ttl seconds, as etcdctl
has it: both can wait for each other. --command-timeout ends neither lock nor command.

Server cost: a lease, two transactions, a renewal every third of --ttl, and while waiting
a watch on one key.`

const ownLockLong = `

  lock NAME             hold it until interrupted
  lock NAME -- CMD …    run CMD while holding it; CMD's exit code is ours
  lock ls NAME          who has it, and who waits (a lock called ls: lock -- ls)
`

const childLong = `

The command's environment has %[1]s_KEY, %[1]s_REV, and %[1]s_FENCE, a number that grows
from holder to holder: what the command writes to elsewhere can refuse a smaller one. Only
a restore without --bump-revision moves it back, with the store's revision.

When the lock is lost (no answer from etcd in time, lease revoked, key deleted) the
command's process group gets TERM, and KILL after a while, always before the lease ends.
A guard process does that when this one is killed or stopped. What it does not reach:
descendants that are in another group (on Linux it finds them by their parents, but for
daemons), and everything when both this process and the guard are stopped (kill -STOP of
the whole group). Windows has no guard: command and descendants end with this process,
but when it is merely suspended nobody ends them in time.

The command gets standard input, the terminal if there is one, and INT, TERM, HUP, QUIT,
USR1 and USR2 that are sent to us. What it leaves running in the background when it ends
is let be. After Ctrl-Z nothing renews the lease: either the job goes on in time, or the
command is killed.`

const lockCodes = `

Exit codes: the command's own, 128 and the signal's number when it was killed, 127 when it
is not there, 126 when it cannot be run; 123 the lock is lost, 124 not acquired within
--wait (with --try: not free), 125 another failure. Without a command --try ends with 4.`

func newLockCmd(env *cli.Env) *cobra.Command {
	o := lockOptions{env: env, candidate: candidate{variable: "ETCD_LOCK", what: "lock"}}
	c := &cobra.Command{
		Use:   "lock <lockname> [exec-command arg1 arg2 ...]",
		Short: "Acquires a named lock",
		Long:  lockLong,
		Args:  cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if !env.DropIn() && len(args) > 0 && args[0] == "ls" && c.ArgsLenAtDash() != 0 {
				return list(c, env, args[1:])
			}
			if err := o.complete(args); err != nil {
				return err
			}
			return o.run(c.Context())
		},
	}
	f := c.Flags()
	f.IntVar(&o.ttl, "ttl", 10, "timeout for session")
	if !env.DropIn() {
		c.Use = "lock NAME [-- CMD ARG…]"
		c.Long = lockLong + ownLockLong + childHelp("ETCD_LOCK") + lockCodes
		c.Example = `  etcdctl-plus lock backup -- /usr/local/bin/backup.sh
  etcdctl-plus lock nightly --try -- ./only-if-nobody-else-does.sh
  etcdctl-plus lock ls backup`
		o.define(f)
	}
	return c
}

func (o *lockOptions) complete(args []string) error {
	if len(args) == 0 {
		return cli.Usagef("lock takes a lock name argument and an optional command to execute")
	}
	o.name, o.command = args[0], args[1:]
	if !o.env.DropIn() {
		o.value = newMark(o.env.Now())
	}
	return o.candidate.complete(o.env)
}

func (o *lockOptions) run(ctx context.Context) error {
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

// mark is the value of a lock's key: for people who look at the queue. etcdctl leaves it
// empty, and as etcdctl so do we.
type mark struct {
	Host  string    `json:"host,omitempty"`
	PID   int       `json:"pid"`
	Since time.Time `json:"since"`
}

func newMark(now time.Time) string {
	host, _ := os.Hostname() // left out when the system does not know it
	b, err := json.Marshal(mark{Host: host, PID: os.Getpid(), Since: now.UTC().Truncate(time.Second)})
	if err != nil {
		return ""
	}
	return string(b)
}
