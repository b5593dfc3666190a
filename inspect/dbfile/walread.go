package dbfile

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/walfile"
)

// maxTail bounds what is read from a write-ahead log, and what is made of it. etcd
// writes to its database ten times a second, so that a log is rarely more than some
// megabytes ahead.
const maxTail = 1 << 30

// errTailFull is why the rest of a long log is not read.
var errTailFull = fmt.Errorf("what is only in the log takes more than %d MB of memory", maxTail>>20)

// readTail reads from the write-ahead log what the database lacks. A log that is
// missing or damaged is no error: Info.Note says how far the source reaches then.
func (s *Source) readTail(ctx context.Context) error {
	s.withLog = true
	n := tailNote{index: s.marks.raftIndex}
	defer func() { s.note, s.lacks = n.String(), n.lacks() }()
	if s.walDir == "" {
		n.missing = fmt.Errorf("there is no folder %q beside that of the database", "wal")
		return nil
	}
	// With the entry the file ends with, to see that it is the same history.
	log, err := walfile.Read(ctx, s.walDir, max(s.marks.raftIndex, 1)-1)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		n.missing = err
		return nil
	}
	defer log.Close()
	s.clusterID, s.memberID = log.ClusterID, log.MemberID
	voters, err := s.voters(ctx)
	if err != nil {
		return err
	}
	if n.mismatch = s.belongs(log); n.mismatch != nil {
		s.clusterID, s.memberID = 0, 0
		return nil
	}
	if log.Damage != nil {
		n.stopped = log.Damage
	}
	n.torn = log.Torn
	if last := max(log.Last, log.Snapshot); log.Damage == nil && last < s.marks.raftIndex {
		n.ends = fmt.Errorf("the write-ahead log ends before raft index %d, which the database has", s.marks.raftIndex)
	}
	if log.First > s.marks.raftIndex+1 && log.Last >= log.First {
		n.gapFrom, n.gapTo = s.marks.raftIndex+1, log.First-1
		return nil
	}
	requests, err := s.committed(ctx, log, voters, &n)
	if err != nil {
		return err
	}
	return s.applyTail(ctx, requests, &n)
}

// raftRequest is a request and where it stands in the raft log.
type raftRequest struct {
	index   uint64
	request *pb.InternalRaftRequest // nil: nothing that touches the keyspace
	err     error                   // why it is not understood
}

// committed returns the requests behind the database that are committed.
//
// The log notes late what is committed, up to the last request that a client was
// told of. A member that is the only voter needs nobody's consent: what is in its
// log is committed, and etcd too takes it for that when it starts.
func (s *Source) committed(ctx context.Context, log *walfile.Log, voters map[uint64]bool, n *tailNote) ([]raftRequest, error) {
	var out []raftRequest
	var bytes int64
	waiting := false
	for e, err := range log.Entries(ctx) {
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			n.stopped = err
			break
		}
		if e.Index <= s.marks.raftIndex {
			continue
		}
		alone := len(voters) == 1 && voters[log.MemberID]
		if waiting = waiting || e.Index > log.Commit && !alone; waiting {
			if e.Type == walfile.Normal && len(e.Data) > 0 {
				n.waiting++
			}
			continue
		}
		r := raftRequest{index: e.Index}
		switch {
		case e.Type == walfile.ConfChange:
			changeVoters(voters, e.Data)
		case e.Type != walfile.Normal:
			clear(voters) // whoever votes now, it is not known
		case len(e.Data) > 0:
			if bytes += int64(len(e.Data)); bytes > maxTail {
				n.stopped = errTailFull
				return out, nil
			}
			r.request, r.err = decodeRequest(e.Data)
		}
		out = append(out, r)
	}
	return out, nil
}

// applyTail makes records of requests.
func (s *Source) applyTail(ctx context.Context, requests []raftRequest, n *tailNote) error {
	var known []*pb.InternalRaftRequest
	for _, r := range requests {
		if r.request != nil {
			known = append(known, r.request)
		}
	}
	var a *applier
	if len(known) > 0 {
		s.tail = &tail{}
		var err error
		if a, err = newApplier(ctx, s, known); err != nil {
			return err
		}
	}
	for _, r := range requests {
		err := r.err
		if err == nil && r.request != nil {
			if err = errTailFull; s.tail.bytes <= maxTail {
				err = a.apply(r.request)
			}
		}
		if errors.Is(err, keyspace.ErrCorrupt) || errors.Is(err, keyspace.ErrLocked) {
			return err
		}
		if err != nil {
			n.stopped = fmt.Errorf("the request at raft index %d: %w", r.index, err)
			break
		}
		n.index = r.index
	}
	if a == nil {
		return nil
	}
	if a.rev > s.newest {
		n.revisions, n.first, n.last = a.rev-s.newest, s.newest+1, a.rev
	}
	s.newest = max(s.newest, a.rev)
	s.marks.scheduled = max(s.marks.scheduled, a.compact)
	s.leases = a.leases
	return nil
}

// belongs tells whether a log is of the same history as the database.
func (s *Source) belongs(log *walfile.Log) error {
	if term, ok := log.Term(s.marks.raftIndex); ok && s.marks.raftTerm != 0 && term != s.marks.raftTerm {
		return fmt.Errorf("at raft index %d the log is of term %d, the database of term %d", s.marks.raftIndex, term, s.marks.raftTerm)
	}
	if len(s.memberIDs) > 0 && log.MemberID != 0 && !s.memberIDs[log.MemberID] {
		return fmt.Errorf("the log is of member %x, whom the database does not know", log.MemberID)
	}
	return nil
}

// voters returns the members that vote, as the database names them.
func (s *Source) voters(ctx context.Context) (map[uint64]bool, error) {
	voters := map[uint64]bool{}
	members, err := s.Members(ctx)
	if err != nil {
		return nil, err
	}
	s.memberIDs = map[uint64]bool{}
	for _, m := range members {
		id, err := strconv.ParseUint(m.ID, 16, 64)
		if err != nil {
			s.memberIDs = nil
			return map[uint64]bool{}, nil //nolint:nilerr // who votes is not known then, and nothing is taken for granted
		}
		s.memberIDs[id] = true
		if !m.IsLearner {
			voters[id] = true
		}
	}
	return voters, nil
}

// changeVoters takes a raftpb.ConfChange: type and node as varints 2 and 3, and
// what etcd adds to it as bytes 4.
func changeVoters(voters map[uint64]bool, b []byte) {
	var kind, node uint64
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			clear(voters)
			return
		}
		if b = b[n:]; typ == protowire.VarintType && (num == 2 || num == 3) {
			x, m := protowire.ConsumeVarint(b)
			if num == 2 {
				kind = x
			} else {
				node = x
			}
			n = m
		} else {
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			clear(voters)
			return
		}
		b = b[n:]
	}
	const add, remove, update, learner = 0, 1, 2, 3
	switch kind {
	case add:
		voters[node] = true
	case remove, learner:
		delete(voters, node)
	case update:
	default:
		clear(voters)
	}
}
