package watchtail

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/coreos/go-semver/semver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// History is by what a cluster's history is known again: one that was restored from an older
// state can have the same ids, and any revision.
type History struct {
	Cluster uint64 // id; 0: nothing is known
	Rev     int64  // up to which it was followed
	// Ahead is a lower bound of how far the raft log's applied index is ahead of the revision.
	// In one history that never falls: each entry of the log makes one revision or none. A
	// cluster made of a snapshot begins a new log.
	Ahead int64
	// Digest is one of the events of Rev, as selected; 0: it had none.
	Digest uint64
}

// DivergedError says that the cluster's history is not the one that was followed.
type DivergedError struct{ Reason string }

func (e *DivergedError) Error() string {
	return "the cluster's history is not the one that was followed: " + e.Reason
}

// History is what is known after the step that was given last, or before the first one.
func (t *Stream) History() History {
	h := t.known
	if t.next > 0 {
		h.Rev = t.next - 1
	}
	if t.step != nil {
		h.Digest = Digest(t.step.Events)
	}
	return h
}

// Digest is one of the events of a revision; 0: there are none.
func Digest(events []keyspace.Event) uint64 {
	if len(events) == 0 {
		return 0
	}
	var h xxhash.Digest
	var b []byte
	for i := range events {
		e := &events[i]
		b = append(b[:0], byte(e.Type))
		for _, n := range []int64{e.Record.ModRev, e.Record.CreateRev, e.Record.Version, e.Record.Lease, int64(len(e.Record.Key)), int64(len(e.Record.Value))} {
			b = binary.BigEndian.AppendUint64(b, uint64(n)) //nolint:gosec // its bits are what counts
		}
		_, _ = h.Write(b) // never fails
		_, _ = h.Write(e.Record.Key)
		_, _ = h.Write(e.Record.Value)
	}
	return max(h.Sum64(), 1)
}

// member is one that answered.
type member struct {
	endpoint string
	client   *clientv3.Client
	cluster  uint64
	rev      int64
	low      int64 // bounds of how far its applied index is ahead of its revision
	high     int64
	leader   bool
	progress bool // what it says of its progress is true
}

const (
	askTimeout = 5 * time.Second
	// suspicion is for how long another history is not believed: a member that was away
	// catches up.
	suspicion = 10 * time.Second
)

// errors of members that answer and cannot be followed.
var (
	errLearner  = errors.New("it is a learner, which has no watches")
	errNoLeader = errors.New("it has no leader")
)

// ask looks at one member.
func (t *Stream) ask(ctx context.Context, endpoint string) (m *member, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	client, err := t.o.Dial(ctx, endpoint)
	if err != nil {
		return nil, err
	}
	defer func() {
		if m == nil {
			client.Close()
		}
	}()
	var s [2]*clientv3.StatusResponse
	for i := range s { // what they say was true at some moment between the two
		if s[i], err = client.Status(ctx, endpoint); err != nil {
			return nil, err
		}
	}
	if s[1].IsLearner {
		return nil, errLearner
	}
	if s[1].Leader == 0 {
		return nil, errNoLeader
	}
	return &member{
		endpoint: endpoint, client: client, cluster: s[1].Header.GetClusterId(), rev: s[1].Header.GetRevision(),
		low: applied(s[0]) - s[1].Header.GetRevision(), high: applied(s[1]) - s[0].Header.GetRevision(),
		leader: s[1].Leader == s[1].Header.GetMemberId(), progress: progressIsTrue(s[1].Version),
	}, nil
}

func applied(s *clientv3.StatusResponse) int64 {
	return int64(s.RaftAppliedIndex) //nolint:gosec // a log has not that many entries
}

// progressIsTrue tells whether a server of that version does not run ahead of what it has
// sent (etcd issue 15220).
func progressIsTrue(version string) bool {
	v, err := semver.NewVersion(version)
	if err != nil {
		return false
	}
	least := semver.Version{Major: 3, Minor: 5, Patch: 8}
	if v.Major == 3 && v.Minor == 4 {
		least = semver.Version{Major: 3, Minor: 4, Patch: 25}
	}
	return !v.LessThan(least)
}

// choose returns the member to follow: a follower, not the one whose stream has ended, and
// of the history that is known.
func (t *Stream) choose(ctx context.Context) (*member, error) {
	for begin := time.Now(); ; {
		members, err := t.members(ctx)
		if err != nil {
			return nil, err
		}
		reason := t.foreign(members)
		if reason == "" {
			for _, m := range members[1:] {
				m.client.Close()
			}
			return members[0], nil
		}
		for _, m := range members {
			m.client.Close()
		}
		if time.Since(begin) > suspicion || t.known.Cluster != members[0].cluster {
			return nil, &DivergedError{Reason: reason}
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(suspicion / 20):
		}
	}
}

// members asks all endpoints, and returns who can be followed, the best first.
func (t *Stream) members(ctx context.Context) ([]*member, error) {
	found, errs := make([]*member, len(t.o.Endpoints)), make([]error, len(t.o.Endpoints))
	var asked sync.WaitGroup
	for i, ep := range t.o.Endpoints {
		asked.Go(func() { found[i], errs[i] = t.ask(ctx, ep) })
	}
	asked.Wait()
	var out []*member
	for i, m := range found {
		switch {
		case m != nil:
			out = append(out, m)
		case fatal(errs[i]):
			for _, m := range found {
				if m != nil {
					m.client.Close()
				}
			}
			return nil, errs[i]
		}
	}
	if len(out) == 0 {
		return nil, errors.Join(errs...)
	}
	rank := func(m *member) int {
		switch {
		case m.endpoint == t.avoid:
			return 2
		case m.leader:
			return 1
		}
		return 0
	}
	slices.SortStableFunc(out, func(a, b *member) int { return cmp.Compare(rank(a), rank(b)) })
	return out, nil
}

// foreign says why the members' history is not the one that is known; "": it may be.
func (t *Stream) foreign(members []*member) string {
	k := t.known
	if k.Cluster == 0 {
		return ""
	}
	rev, high := int64(0), members[0].high
	for _, m := range members {
		if m.cluster != k.Cluster {
			return fmt.Sprintf("the cluster's id is %x, it was %x", m.cluster, k.Cluster)
		}
		rev, high = max(rev, m.rev), max(high, m.high)
	}
	switch {
	case rev < t.next-1:
		return fmt.Sprintf("it is at revision %d, and was followed up to %d: an older state was restored", rev, t.next-1)
	case high < k.Ahead:
		return fmt.Sprintf("its raft log is %d entries ahead of its revision, and was at least %d: a state was restored", high, k.Ahead)
	}
	return ""
}

// compare compares what came again, of the last revision that was given, with what came then.
func (t *Stream) compare(ctx context.Context, m *member, rev int64, events []keyspace.Event) error {
	if t.replayed || rev != t.next-1 {
		return nil
	}
	t.replayed = true
	if Digest(events) == t.known.Digest {
		return nil
	}
	return t.differs(ctx, m, fmt.Sprintf("revision %d holds other changes now", rev))
}

// missed is called when something newer comes first.
func (t *Stream) missed(ctx context.Context, m *member) error {
	if t.replayed {
		return nil
	}
	t.replayed = true
	return t.differs(ctx, m, fmt.Sprintf("revision %d does not hold the changes that it had", t.next-1))
}

// differs tells another history from one that was compacted just there, where deletions may
// be gone.
func (t *Stream) differs(ctx context.Context, m *member, reason string) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	s, err := pb.NewWatchClient(m.client.ActiveConnection()).Watch(clientv3.WithRequireLeader(ctx))
	if err != nil {
		return err
	}
	create := &pb.WatchCreateRequest{StartRevision: max(t.next-2, 1)}
	create.Key, create.RangeEnd = keyspace.Within(t.o.Prefix, t.key, nil)
	if err := s.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}}); err != nil {
		return err
	}
	for {
		r, err := s.Recv()
		switch {
		case err != nil && ctx.Err() != nil: // it stands, and has nothing to say
			return &DivergedError{Reason: reason}
		case err != nil:
			return err
		case r.GetCanceled() && r.GetCompactRevision() >= t.next-1:
			return nil
		case r.GetCanceled():
			return canceled(r.GetCancelReason())
		case !r.GetCreated():
			return &DivergedError{Reason: reason}
		}
	}
}
