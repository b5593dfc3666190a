package backup

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/live"
)

// callOptions lift gRPC's own limit of 4 MB an answer.
var callOptions = []grpc.CallOption{grpc.MaxCallRecvMsgSize(math.MaxInt32)}

// Errors that say why no snapshot is taken. The first three have a flag that allows it.
var (
	// ErrCorruptAlarm: the cluster itself says that a member's data is damaged.
	ErrCorruptAlarm = errors.New("the cluster has raised the alarm CORRUPT")
	// ErrLearner: only a learner is there to ask.
	ErrLearner = errors.New("the member is a learner, which may be far behind")
	// ErrNoQuorum: the member has no leader, so nobody knows what it lacks.
	ErrNoQuorum = errors.New("the member has no leader")
	// ErrNoSnapshots: the server speaks a part of etcd's API alone, as Kine does.
	ErrNoSnapshots = errors.New("the server is no etcd, as Kine is none, and has no snapshots")
)

// member is one endpoint over one connection, so that every answer is one member's.
type member struct {
	endpoint    string
	conn        *grpc.ClientConn
	kv          pb.KVClient
	maintenance pb.MaintenanceClient
	status      *pb.StatusResponse
	err         error // why there is no status
}

func (m *member) leader() bool {
	return m.status.Leader != 0 && m.status.Leader == m.status.Header.GetMemberId()
}

func (m *member) close() {
	if m.conn != nil {
		_ = m.conn.Close() // nothing was written over it
	}
}

// askAll asks every endpoint who it is. An endpoint that does not answer within patience
// of the first one that can be used is not waited for.
func askAll(ctx context.Context, client *clientv3.Client, timeout, patience time.Duration) []*member {
	endpoints := client.Endpoints()
	ctx, cancel := context.WithCancel(ctx)
	if timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, timeout)
	}
	defer cancel()
	answers := make(chan *member, len(endpoints))
	for _, ep := range endpoints {
		go func() {
			m := &member{endpoint: ep}
			conn, err := client.Dial(ep)
			if err == nil {
				m.conn, m.kv, m.maintenance = conn, pb.NewKVClient(conn), pb.NewMaintenanceClient(conn)
				m.status, err = m.maintenance.Status(ctx, &pb.StatusRequest{}, callOptions...)
			}
			if m.err = err; err == nil && m.status.Header == nil {
				m.err = errors.New("its answer has no header")
			}
			answers <- m
		}()
	}
	var all []*member
	var late <-chan time.Time
	for range endpoints {
		select {
		case m := <-answers:
			all = append(all, m)
			if m.err == nil && m.status.Leader != 0 && !m.status.IsLearner && late == nil {
				late = time.After(patience)
			}
		case <-late:
			cancel() // the others answer at once now, with an error
			late = nil
			m := <-answers
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b *member) int {
		return slices.Index(endpoints, a.endpoint) - slices.Index(endpoints, b.endpoint)
	})
	return all
}

// choose picks the member to save: a follower before the leader, a voter before
// a learner, one with a leader before one without.
func choose(ctx context.Context, client *clientv3.Client, o *SaveOptions) (*member, error) {
	all := askAll(ctx, client, o.RequestTimeout, 500*time.Millisecond)
	var best *member
	rank := func(m *member) int {
		r := 0
		if m.status.IsLearner {
			r += 4
		}
		if m.status.Leader == 0 {
			r += 2
		}
		if m.leader() {
			r++
		}
		return r
	}
	for _, m := range all {
		if m.err == nil && (best == nil || rank(m) < rank(best)) {
			best = m
		}
	}
	for _, m := range all {
		if m != best {
			m.close()
		}
	}
	if best == nil {
		return nil, noAnswer(ctx, all)
	}
	switch {
	case live.IsPartial(best.status.Header):
		best.close()
		return nil, fmt.Errorf("save a snapshot of %s: %w", best.endpoint, ErrNoSnapshots)
	case best.status.IsLearner && !o.AllowLearner:
		best.close()
		return nil, fmt.Errorf("save a snapshot of %s: %w", best.endpoint, ErrLearner)
	case best.status.Leader == 0 && !best.status.IsLearner && !o.AllowStale:
		best.close()
		return nil, fmt.Errorf("save a snapshot of %s: %w", best.endpoint, ErrNoQuorum)
	}
	return best, nil
}

// noAnswer joins what the endpoints failed with.
func noAnswer(ctx context.Context, all []*member) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if len(all) == 1 {
		return fmt.Errorf("save a snapshot of %s: %w", all[0].endpoint, rpctypes.Error(all[0].err))
	}
	var reasons []string
	for _, m := range all {
		reasons = append(reasons, m.endpoint+": "+m.err.Error())
	}
	return fmt.Errorf("save a snapshot: no endpoint answers (%s): %w", strings.Join(reasons, "; "), rpctypes.Error(all[0].err))
}

// alarms refuses a cluster that calls itself corrupt, and tells of one that is full. It
// returns what is to be warned of. Without a quorum only the member's own word counts.
func (m *member) alarms(ctx context.Context, stale bool, o *SaveOptions) (warnings []string, err error) {
	if stale {
		for _, e := range m.status.Errors {
			if strings.Contains(e, "CORRUPT") && !o.AllowCorrupt {
				return nil, fmt.Errorf("save a snapshot of %s: %s: %w", m.endpoint, e, ErrCorruptAlarm)
			}
			warnings = append(warnings, "the member reports: "+e)
		}
		return warnings, nil
	}
	ctx, cancel := o.request(ctx)
	defer cancel()
	resp, err := m.maintenance.Alarm(ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_GET}, callOptions...)
	if err != nil {
		if m.status.IsLearner && strings.Contains(err.Error(), "not supported for learner") {
			return []string{"a learner does not say whether there is an alarm, nor what the newest revision is: neither was checked"}, nil
		}
		return nil, fmt.Errorf("ask %s for alarms: %w", m.endpoint, rpctypes.Error(err))
	}
	for _, a := range resp.Alarms {
		switch a.Alarm {
		case pb.AlarmType_CORRUPT:
			if !o.AllowCorrupt {
				return nil, fmt.Errorf("save a snapshot of %s: member %x: %w", m.endpoint, a.MemberID, ErrCorruptAlarm)
			}
			warnings = append(warnings, fmt.Sprintf("member %x has raised the alarm CORRUPT", a.MemberID))
		case pb.AlarmType_NOSPACE:
			warnings = append(warnings, fmt.Sprintf("member %x has raised the alarm NOSPACE: the cluster takes no more writes", a.MemberID))
		}
	}
	return warnings, nil
}

// floor is the newest revision that the cluster had before the snapshot was asked for;
// 0 when there is no quorum to say so, and that is allowed.
func (m *member) floor(ctx context.Context, o *SaveOptions) (rev int64, stale bool, err error) {
	if m.status.IsLearner {
		return 0, false, nil
	}
	req, cancel := o.request(ctx)
	defer cancel()
	resp, err := m.kv.Range(req, &pb.RangeRequest{Key: []byte{0}, CountOnly: true}, callOptions...)
	if err == nil {
		return resp.Header.GetRevision(), false, nil
	}
	err = rpctypes.Error(err)
	if ctx.Err() != nil {
		return 0, false, context.Cause(ctx)
	}
	lost := errors.Is(err, rpctypes.ErrNoLeader) || req.Err() != nil || isUnavailable(err)
	switch {
	case lost && o.AllowStale:
		return 0, true, nil
	case lost:
		return 0, false, fmt.Errorf("ask %s for the newest revision: %w (%w)", m.endpoint, ErrNoQuorum, err)
	}
	return 0, false, fmt.Errorf("ask %s for the newest revision: %w", m.endpoint, err)
}
