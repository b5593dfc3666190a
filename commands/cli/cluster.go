package cli

import (
	"context"
	"errors"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/cluster"
)

// Cluster looks at the whole cluster: its members, found through the endpoints in force,
// and what each says of itself.
func (e *Env) Cluster(ctx context.Context) (*cluster.Cluster, error) {
	s, err := e.Settings()
	if err != nil {
		return nil, err
	}
	endpoints, err := e.Endpoints(ctx, false)
	if err != nil {
		return nil, err
	}
	c, err := cluster.Look(ctx, e.ClientOf, endpoints, s.CommandTimeout)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return c, err
}

// Instead gives a refusal the hint that names the better way.
func Instead(err error, hint string) error {
	var refused *Error
	if !errors.As(err, &refused) || refused.Code != Refused {
		return err
	}
	d := *refused
	d.Hint = hint
	return &d
}
