package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// ErrNoSuccessor says that there is no other voting member that could lead.
var ErrNoSuccessor = errors.New("no other voting member answers that could lead")

// MoveLeader asks the leader to hand over to a member. etcd takes the request from the
// leader alone, and answers when the other one leads.
func MoveLeader(ctx context.Context, dial Dialer, leader *Member, to uint64, timeout time.Duration) (*clientv3.MoveLeaderResponse, error) {
	r, err := with(ctx, dial, leader.State.Endpoint, timeout, func(ctx context.Context, c *clientv3.Client) (*clientv3.MoveLeaderResponse, error) {
		return c.MoveLeader(ctx, to)
	})
	if err != nil {
		return nil, fmt.Errorf("move the leadership from %s to %x: %w", leader.Label(), to, err)
	}
	return r, nil
}
