// Package lease holds the commands on leases: grant, revoke, timetolive, list, keep-alive
// and of.
package lease

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli/reply"
)

// New returns the noun.
func New(env *cli.Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "lease <subcommand>",
		Short: "Lease related commands",
		Long: `A lease gives keys a time to live: when nobody renews it for that long, its keys are
deleted. (Kubernetes' own Lease objects are plain keys, and not these.)

Server cost: next to nothing, but for a revoke, which deletes the lease's keys in one
transaction.`,
	}
	c.AddCommand(newGrantCmd(env), newRevokeCmd(env), newTimeToLiveCmd(env), newListCmd(env), newKeepAliveCmd(env))
	if !env.DropIn() {
		c.AddCommand(newOfCmd(env))
	}
	return c
}

// As protobuf etcdctl writes the header alone of all but a revoke, and so do we.

// badConnection is etcdctl's exit code for a lease command that fails.
const badConnection = 2

// id reads the one argument, a lease.
func id(env *cli.Env, verb string, args []string) (clientv3.LeaseID, error) {
	if len(args) != 1 {
		return 0, cli.Usagef("lease %s command needs lease ID as argument", verb)
	}
	n, err := cli.ParseID(env, "lease", args[0])
	return clientv3.LeaseID(n), err
}

// failed describes the error of a request about a lease.
func failed(verb string, id clientv3.LeaseID, err error, dropIn int) error {
	d := *cli.Describe(fmt.Errorf("%s lease %016x: %w", verb, int64(id), err))
	d.DropIn = dropIn
	if errors.Is(err, rpctypes.ErrLeaseNotFound) || errors.Is(err, errNotThere) {
		d.Code, d.Hint = cli.Negative, "it has expired, was revoked, or never was: `lease list` shows those that are there"
	}
	return &d
}

// appendID appends the lease's id and time to live in the fields format.
func appendID(b []byte, id clientv3.LeaseID, ttl int64, hexed bool) []byte {
	return fmt.Appendf(reply.AppendLeaseID(b, "ID", int64(id), hexed), "\"TTL\" : %d\n", ttl)
}
