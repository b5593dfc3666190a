package lease

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli/reply"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type revokeOptions struct {
	env   *cli.Env
	id    clientv3.LeaseID
	guard cli.Guard
}

func newRevokeCmd(env *cli.Env) *cobra.Command {
	o := revokeOptions{env: env}
	c := &cobra.Command{
		Use:   "revoke <leaseID>",
		Short: "Revokes leases",
		Long:  "Revokes a lease; its keys are deleted with it, in one transaction.",
		Args:  cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Usagef("lease revoke command needs 1 argument")
			}
			var err error
			if o.id, err = id(env, "revoke", args); err != nil {
				return err
			}
			return o.run(c.Context())
		},
	}
	if !env.DropIn() {
		o.guard.Define(c.Flags())
	}
	return c
}

func (o *revokeOptions) run(ctx context.Context) error {
	p, err := reply.New(o.env, reply.Fields)
	if err != nil {
		return err
	}
	client, err := o.env.Client(ctx)
	if err != nil {
		return err
	}
	if !o.env.DropIn() {
		if keys, err := o.keys(ctx, client); err != nil || o.guard.DryRun {
			if err != nil {
				return err
			}
			return p.Printer.Print(revokeView{Lease: cli.LeaseID(int64(o.id)), WouldDelete: keys, DryRun: true})
		}
	}
	ctx, cancel, err := o.env.CommandContext(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	r, err := client.Revoke(ctx, o.id)
	if err != nil {
		return cli.UnknownOutcome(failed("revoke", o.id, err, 1), "`lease list` tells whether it is still there")
	}
	return p.Print(reply.Answer{
		Header: (*pb.LeaseRevokeResponse)(r).GetHeader(), JSON: r,
		Simple: func(b []byte) []byte { return fmt.Appendf(b, "lease %016x revoked\n", int64(o.id)) },
		Table: func() output.Table {
			return oneRow(o.id, "REVISION", (*pb.LeaseRevokeResponse)(r).GetHeader().GetRevision())
		},
	})
}

type revokeView struct {
	DryRun      bool     `json:"dryRun"`
	Lease       string   `json:"lease"`
	WouldDelete []string `json:"wouldDelete"`
}

func (v revokeView) Table() output.Table {
	t := output.Table{Columns: []output.Column{{Name: "WOULD DELETE"}}, Empty: "no key has this lease"}
	for _, k := range v.WouldDelete {
		t.Rows = append(t.Rows, []string{k})
	}
	return t
}

// keys asks before keys go with the lease, and returns them.
func (o *revokeOptions) keys(ctx context.Context, client *clientv3.Client) ([]string, error) {
	ttl, err := timeToLive(ctx, o.env, client, o.id, true)
	if err != nil {
		return nil, failed("look at", o.id, err, 1)
	}
	keys := []string{}
	for _, k := range ttl.Keys {
		keys = append(keys, string(k))
	}
	if ttl.TTL < 0 {
		return nil, failed("revoke", o.id, errNotThere, 1)
	}
	if len(keys) == 0 || o.guard.DryRun {
		return keys, nil
	}
	name, err := cli.ClusterName(ctx, o.env, client)
	if err != nil {
		return nil, err
	}
	which := fmt.Sprintf("%d keys, %q and others,", len(keys), keys[0])
	if len(keys) == 1 {
		which = fmt.Sprintf("the key %q", keys[0])
	}
	return keys, o.guard.Ask(o.env, fmt.Sprintf("revoke lease %016x and delete %s of %s", int64(o.id), which, name))
}

var errNotThere = errors.New("it is not there")

// timeToLive asks for a lease; TTL is -1 when it is not there.
func timeToLive(ctx context.Context, env *cli.Env, client *clientv3.Client, id clientv3.LeaseID, keys bool) (*clientv3.LeaseTimeToLiveResponse, error) {
	ctx, cancel, err := env.CommandContext(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	var ops []clientv3.LeaseOption
	if keys {
		ops = append(ops, clientv3.WithAttachedKeys())
	}
	return client.TimeToLive(ctx, id, ops...)
}
