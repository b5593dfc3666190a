package dbfile

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// applier does with requests from the log what etcd does with them: the same
// checks in the same order, the same revisions, versions and tombstones. Requests
// that etcd refuses (a lease that is gone, no permission, no space) change nothing.
//
// It knows the state of those keys alone that the requests depend on.
type applier struct {
	s       *Source
	tail    *tail
	keys    map[string]*cell
	sorted  []string // of keys
	leases  map[int64]Lease
	members map[int64]map[string]struct{} // keys of the leases that matter
	alarms  map[string]pb.AlarmType
	auth    *permissions

	rev     int64 // newest
	compact int64
	sub     int64 // changes of the revision in the making
}

// cell is a key's newest record.
type cell struct {
	place uint64
	live  bool
	lease int64
}

// newApplier reads from the file what requests depend on: one walk over its
// records, and one entry for each key that is touched.
func newApplier(ctx context.Context, s *Source, requests []*pb.InternalRaftRequest) (*applier, error) {
	a := &applier{
		s: s, tail: s.tail, keys: map[string]*cell{}, leases: map[int64]Lease{}, members: map[int64]map[string]struct{}{},
		alarms: map[string]pb.AlarmType{}, rev: s.newest, compact: max(s.marks.finished, s.marks.scheduled),
	}
	leases, err := s.Leases(ctx)
	if err != nil {
		return nil, err
	}
	for _, l := range leases {
		a.leases[l.ID] = l
	}
	err = s.each(ctx, bucketAlarm, func(it item) error {
		var m pb.AlarmMember
		if err := proto.Unmarshal(it.key, &m); err != nil {
			return s.pager.corrupt(it.page, "alarm %s does not decode", describeKey(it.key))
		}
		a.alarms[alarmName(m.MemberID, m.Alarm)] = m.Alarm
		return nil
	})
	if err != nil {
		return nil, err
	}
	if a.auth, err = readPermissions(ctx, s); err != nil {
		return nil, err
	}
	var touched keySet
	for _, r := range requests {
		touches(r, touched.add)
		if r.LeaseRevoke != nil {
			a.members[r.LeaseRevoke.ID] = map[string]struct{}{}
		}
		if a.auth.enabled {
			// Who puts with a lease must be allowed to put all its keys.
			puts(r, func(p *pb.PutRequest) {
				if p.Lease != 0 {
					a.members[p.Lease] = map[string]struct{}{}
				}
			})
		}
	}
	touched.seal()
	// Keys that come to be are among these: every put names its key.
	for key := range touched.single {
		a.keys[key] = &cell{}
	}
	err = s.eachRecord(ctx, func(place uint64, tombstone bool, key, value []byte) error {
		var lease int64
		if len(a.members) > 0 {
			rec, _ := decodeRecord(value) // what does not decode is found when it is read
			lease = rec.Lease
		}
		c := a.keys[string(key)]
		if c == nil {
			if _, matters := a.members[lease]; !matters && !touched.has(key) {
				return nil
			}
			c = &cell{}
			a.keys[string(key)] = c
		}
		*c = cell{place: place, live: !tombstone, lease: lease}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for key, c := range a.keys {
		if set, ok := a.members[c.lease]; ok && c.live {
			set[key] = struct{}{}
		}
	}
	a.sorted = slices.Sorted(maps.Keys(a.keys))
	return a, nil
}

func alarmName(member uint64, alarm pb.AlarmType) string { return fmt.Sprintf("%x/%d", member, alarm) }

func (a *applier) alarmed(t pb.AlarmType) bool {
	for _, have := range a.alarms {
		if have == t {
			return true
		}
	}
	return false
}

// longestLease is the longest time to live that etcd grants, in seconds.
const longestLease = 9_000_000_000

// errCannotTell is why the rest of a log is not read.
var errCannotTell = errors.New("what etcd made of it cannot be told from this member's files")

// apply takes one request. An error means that it cannot be told what etcd made of
// it, or that the file is damaged; the request has then changed nothing.
func (a *applier) apply(r *pb.InternalRaftRequest) error {
	before := len(a.tail.items)
	err := a.take(r)
	if err != nil {
		a.tail.items = a.tail.items[:before]
	} else if a.sub > 0 {
		a.rev++
	}
	a.sub = 0
	return err
}

func (a *applier) take(r *pb.InternalRaftRequest) error {
	if a.alarmed(pb.AlarmType_CORRUPT) && (r.Put != nil || r.DeleteRange != nil || r.Txn != nil || r.Compaction != nil || r.LeaseGrant != nil || r.LeaseRevoke != nil) {
		return nil // refused
	}
	full := a.alarmed(pb.AlarmType_NOSPACE)
	who := a.auth.user(r.Header)
	switch {
	case r.Put != nil:
		if full || !a.mayPut(who, r.Put) || !a.possible(r.Put) {
			return nil
		}
		return a.put(r.Put)
	case r.DeleteRange != nil:
		if !a.mayDelete(who, r.DeleteRange) {
			return nil
		}
		return a.deleteRange(r.DeleteRange)
	case r.Txn != nil:
		if full && hasPut(r.Txn) || !a.mayTxn(who, r.Txn) {
			return nil
		}
		return a.txn(r.Txn)
	case r.Compaction != nil:
		if rev := r.Compaction.Revision; rev > a.compact && rev <= a.rev {
			a.compact = rev
		}
	case r.LeaseGrant != nil:
		if id := r.LeaseGrant.ID; !full && id != 0 && r.LeaseGrant.TTL <= longestLease {
			if _, exists := a.leases[id]; !exists {
				a.leases[id] = Lease{ID: id, TTL: r.LeaseGrant.TTL}
			}
		}
	case r.LeaseRevoke != nil:
		return a.revoke(who, r.LeaseRevoke.ID)
	case r.Alarm != nil:
		switch name := alarmName(r.Alarm.MemberID, r.Alarm.Alarm); r.Alarm.Action {
		case pb.AlarmRequest_ACTIVATE:
			a.alarms[name] = r.Alarm.Alarm
		case pb.AlarmRequest_DEACTIVATE:
			delete(a.alarms, name)
		}
	case changesAuth(r):
		// As long as authentication is off nobody asks who may do what.
		if a.auth.enabled || r.AuthEnable != nil {
			return fmt.Errorf("a change of users, roles or authentication: %w", errCannotTell)
		}
	}
	return nil
}

func changesAuth(r *pb.InternalRaftRequest) bool {
	return r.AuthEnable != nil || r.AuthDisable != nil || r.AuthUserAdd != nil || r.AuthUserDelete != nil || r.AuthUserChangePassword != nil ||
		r.AuthUserGrantRole != nil || r.AuthUserRevokeRole != nil || r.AuthRoleAdd != nil || r.AuthRoleDelete != nil ||
		r.AuthRoleGrantPermission != nil || r.AuthRoleRevokePermission != nil
}

// hasPut tells whether a transaction may take space, on either branch.
func hasPut(t *pb.TxnRequest) (has bool) {
	txnPuts(t, func(*pb.PutRequest) { has = true })
	return has
}

// record returns the newest record of a live key; ok is false when there is none.
func (a *applier) record(key string) (rec keyspace.Record, ok bool, err error) {
	c := a.keys[key]
	if c == nil || !c.live {
		return rec, false, nil
	}
	k, v, ok := a.s.itemAt(c.place)
	rev, _, reason := parseRevision(k)
	if !ok || reason != "" {
		return rec, false, a.s.unstable()
	}
	rec, err = a.s.record(c.place/a.s.pager.meta.pageSize, rev, false, v)
	return rec, err == nil, err
}

// set makes a record the newest of its key.
func (a *applier) set(key string, c cell) {
	old := a.keys[key]
	if set, ok := a.members[old.lease]; ok {
		delete(set, key)
	}
	if set, ok := a.members[c.lease]; ok && c.live {
		set[key] = struct{}{}
	}
	*old = c
}

// next returns the stored form of the next change's revision.
func (a *applier) next(tombstone bool) []byte {
	b := appendRevision(make([]byte, 0, tombstoneLen), keyspace.Revision{Main: a.rev + 1, Sub: a.sub})
	a.sub++
	if tombstone {
		b = append(b, 't')
	}
	return b
}

// possible tells whether etcd takes a put: its lease is there, and the key when
// parts of its old record are to stay.
func (a *applier) possible(p *pb.PutRequest) bool {
	if p.Lease != 0 {
		if _, ok := a.leases[p.Lease]; !ok {
			return false
		}
	}
	if p.IgnoreValue || p.IgnoreLease {
		c := a.keys[string(p.Key)]
		return c != nil && c.live
	}
	return true
}

func (a *applier) put(p *pb.PutRequest) error {
	key := string(p.Key)
	old, exists, err := a.record(key)
	if err != nil {
		return err
	}
	main := a.rev + 1
	rec := keyspace.Record{Key: p.Key, Value: p.Value, CreateRev: main, ModRev: main, Version: 1, Lease: p.Lease}
	if exists {
		rec.CreateRev, rec.Version = old.CreateRev, old.Version+1
	}
	if p.IgnoreValue {
		rec.Value = old.Value
	}
	if p.IgnoreLease {
		rec.Lease = old.Lease
	}
	size := len(rec.Key) + len(rec.Value) + 64
	place := a.tail.add(a.next(false), appendRecord(make([]byte, 0, size), rec))
	a.set(key, cell{place: place, live: true, lease: rec.Lease})
	return nil
}

func (a *applier) delete(key string) {
	place := a.tail.add(a.next(true), appendRecord(nil, keyspace.Record{Key: []byte(key)}))
	a.set(key, cell{place: place})
}

// living returns the keys that exist in a range, in order.
func (a *applier) living(key, end []byte) []string {
	var out []string
	i, _ := slices.BinarySearch(a.sorted, string(key))
	for ; i < len(a.sorted) && selects(key, end, a.sorted[i]); i++ {
		if a.keys[a.sorted[i]].live {
			out = append(out, a.sorted[i])
		}
	}
	return out
}

func (a *applier) deleteRange(d *pb.DeleteRangeRequest) error {
	for _, key := range a.living(d.Key, d.RangeEnd) {
		a.delete(key)
	}
	return nil
}

// revoke ends a lease, and its keys in their order.
func (a *applier) revoke(who user, id int64) error {
	if _, ok := a.leases[id]; !ok {
		return nil
	}
	keys := slices.Sorted(maps.Keys(a.members[id]))
	if !a.mayRevoke(who, id) {
		return nil
	}
	for _, key := range keys {
		a.delete(key)
	}
	delete(a.leases, id)
	return nil
}

// txn takes a transaction: all comparisons are of the state before it, those of
// transactions inside it too, and it is refused as a whole when one of the changes
// on its way is.
func (a *applier) txn(t *pb.TxnRequest) error {
	var ops []*pb.RequestOp
	ok, err := a.plan(t, &ops)
	if !ok || err != nil {
		return err
	}
	for _, op := range ops {
		switch {
		case op.GetRequestPut() != nil:
			err = a.put(op.GetRequestPut())
		case op.GetRequestDeleteRange() != nil:
			err = a.deleteRange(op.GetRequestDeleteRange())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// plan collects what a transaction does, in order; false when etcd refuses it.
func (a *applier) plan(t *pb.TxnRequest, ops *[]*pb.RequestOp) (bool, error) {
	branch := t.Success
	for _, c := range t.Compare {
		holds, err := a.compare(c)
		if err != nil {
			return false, err
		}
		if !holds {
			branch = t.Failure
			break
		}
	}
	for _, op := range branch {
		switch {
		case op.GetRequestRange() != nil:
			if rev := op.GetRequestRange().Revision; rev > a.rev || rev > 0 && rev < a.compact {
				return false, nil
			}
		case op.GetRequestPut() != nil:
			if !a.possible(op.GetRequestPut()) {
				return false, nil
			}
			*ops = append(*ops, op)
		case op.GetRequestDeleteRange() != nil:
			*ops = append(*ops, op)
		case op.GetRequestTxn() != nil:
			if ok, err := a.plan(op.GetRequestTxn(), ops); !ok || err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// compare tells whether a comparison holds for every key it is about. A value that
// is not there compares with nothing; a number that is not there is 0.
func (a *applier) compare(c *pb.Compare) (bool, error) {
	keys := a.living(c.Key, c.RangeEnd)
	if len(keys) == 0 {
		return c.Target != pb.Compare_VALUE && holds(c, keyspace.Record{}), nil
	}
	for _, key := range keys {
		rec, _, err := a.record(key)
		if err != nil || !holds(c, rec) {
			return false, err
		}
	}
	return true, nil
}

func holds(c *pb.Compare, r keyspace.Record) bool {
	var d int
	switch c.Target {
	case pb.Compare_VALUE:
		d = bytes.Compare(r.Value, c.GetValue())
	case pb.Compare_CREATE:
		d = cmp.Compare(r.CreateRev, c.GetCreateRevision())
	case pb.Compare_MOD:
		d = cmp.Compare(r.ModRev, c.GetModRevision())
	case pb.Compare_VERSION:
		d = cmp.Compare(r.Version, c.GetVersion())
	case pb.Compare_LEASE:
		d = cmp.Compare(r.Lease, c.GetLease())
	}
	switch c.Result {
	case pb.Compare_EQUAL:
		return d == 0
	case pb.Compare_NOT_EQUAL:
		return d != 0
	case pb.Compare_GREATER:
		return d > 0
	case pb.Compare_LESS:
		return d < 0
	}
	return true
}

// uint64Of decodes a number as etcd stores it in a bucket.
func uint64Of(b []byte) uint64 {
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}
