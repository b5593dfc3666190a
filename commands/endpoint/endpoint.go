// Package endpoint holds the commands that ask every endpoint: health, status and hashkv.
package endpoint

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/cluster"
)

// New returns the noun.
func New(env *cli.Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "endpoint <subcommand>",
		Short: "Endpoint related commands",
		Long: `Asks every endpoint of --endpoints or, with --cluster, every member that the cluster knows
of. An endpoint that fails has a row that says why; the exit code is then 3, or that of
the failure when none answered.`,
	}
	o := &options{env: env}
	c.PersistentFlags().BoolVar(&o.cluster, "cluster", false, "use all endpoints from the cluster member list")
	c.AddCommand(newHealthCmd(o), newStatusCmd(o), newHashKVCmd(o))
	return c
}

// options are what the three commands share.
type options struct {
	env     *cli.Env
	cluster bool
}

// ask finds the endpoints, and how to ask them.
func (o *options) ask(ctx context.Context) (endpoints []string, dial cluster.Dialer, timeout time.Duration, err error) {
	s, err := o.env.Settings()
	if err != nil {
		return nil, nil, 0, err
	}
	endpoints, err = o.env.Endpoints(ctx, o.cluster)
	return endpoints, o.env.ClientOf, s.CommandTimeout, err
}

// standing tells on stderr how the whole cluster is, as far as it can be told: which
// members there are is asked of those that answer. Under the name etcdctl nothing is told.
func (o *options) standing(ctx context.Context, states []cluster.State) (damage bool) {
	if o.env.DropIn() {
		return false
	}
	for i := range states {
		if states[i].Status == nil {
			continue
		}
		members, err := o.members(ctx, states[i].Endpoint)
		if err != nil {
			continue
		}
		q := cluster.Standing(members.Members, states)
		if q.Alive < q.Voters && len(states) >= q.Voters {
			o.env.Warn("%s", q)
		}
		for _, d := range q.Damage {
			o.env.Warn("damage: %s", d)
		}
		return len(q.Damage) > 0
	}
	return false
}

// members asks one endpoint, which may know them without a quorum.
func (o *options) members(ctx context.Context, endpoint string) (*clientv3.MemberListResponse, error) {
	c, err := o.env.ClientOf(ctx, endpoint)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ctx, cancel, err := o.env.CommandContext(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	return c.MemberList(ctx, clientv3.WithSerializable())
}

// outcome is the end of a command that asked n endpoints, of which some failed.
func (o *options) outcome(n int, failed []error) error {
	switch {
	case len(failed) == 0:
		return nil
	case len(failed) == n:
		return failed[0]
	}
	return &cli.Error{Code: cli.Partial, Err: fmt.Errorf("%d of %d endpoints failed", len(failed), n), DropIn: 1}
}
