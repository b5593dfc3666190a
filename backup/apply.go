package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// Action is what is to be done with one key of a file.
type Action string

// The actions.
const (
	Create  Action = "create"  // the cluster does not have it
	Replace Action = "replace" // the cluster has another value
	Keep    Action = "keep"    // the cluster has another value, which stays
	Skip    Action = "skip"    // it cannot be brought back as it was
	Same    Action = "same"    // the cluster has it
)

// Step is one key of a Plan.
type Step struct {
	Action Action
	Record keyspace.Record // of the file
	Was    keyspace.Record // of the cluster; zero where there is none
	Reason string
}

// PlanOptions of NewPlan.
type PlanOptions struct {
	// Rev is the revision of the file to bring back; 0: the newest.
	Rev int64
	// Overwrite replaces what is different.
	Overwrite bool
	// DropLeases brings a key back without the lease it had, where its lease is not in
	// the file. It then never expires.
	DropLeases bool
}

// Plan is what bringing keys of a file back into a cluster would do. It holds a step for
// every key that is not the same, and the values of the cluster's that differ.
type Plan struct {
	Steps []Step
	Same  int64 // keys that are as they were
	// Leases are those of the file that keys to be written have, by id.
	Leases map[int64]dbfile.Lease
}

// Count returns how many steps have an action.
func (p *Plan) Count(a Action) int {
	n := 0
	for _, s := range p.Steps {
		if s.Action == a {
			n++
		}
	}
	return n
}

// NewPlan compares the keys of a file in some ranges, which must not overlap, with
// a cluster. Records of the file stay valid until it is closed.
//
// Where only a part of the keyspace is meant, prefix is what its keys begin with in the
// file; cluster is that part of the cluster. Keys in the plan are without it.
func NewPlan(ctx context.Context, file *dbfile.Source, prefix []byte, cluster keyspace.Source, ranges []keyspace.Range, o PlanOptions) (*Plan, error) {
	leases, err := file.Leases(ctx)
	if err != nil {
		return nil, fmt.Errorf("read leases: %w", err)
	}
	known := make(map[int64]dbfile.Lease, len(leases))
	for _, l := range leases {
		known[l.ID] = l
	}
	p := &Plan{Leases: map[int64]dbfile.Lease{}}
	part := keyspace.Under(prefix, file)
	for _, r := range ranges {
		there := r
		r.Rev = o.Rev
		err := Differences(cluster.Records(ctx, there), part.Records(ctx, r), func(theirs, ours *keyspace.Record) bool {
			if ours != nil {
				p.add(theirs, *ours, known, o)
			}
			return true
		})
		if err != nil {
			return nil, fmt.Errorf("compare with the cluster: %w", err)
		}
	}
	return p, nil
}

func (p *Plan) add(theirs *keyspace.Record, ours keyspace.Record, known map[int64]dbfile.Lease, o PlanOptions) {
	s := Step{Action: Create, Record: ours}
	if theirs != nil {
		if bytes.Equal(theirs.Value, ours.Value) {
			p.Same++
			return
		}
		s.Was = *theirs
		s.Was.Key, s.Was.Value = bytes.Clone(theirs.Key), bytes.Clone(theirs.Value)
		if s.Action = Replace; !o.Overwrite {
			s.Action, s.Reason = Keep, "the cluster has another value"
		}
	}
	if ours.Lease != 0 && s.Action != Keep {
		l, ok := known[ours.Lease]
		switch {
		case ok:
			p.Leases[l.ID] = l
			s.Reason = fmt.Sprintf("with a new lease of %d s", l.TTL)
		case o.DropLeases:
			s.Record.Lease = 0
			s.Reason = "without a lease, which is not in the file: it will not expire"
		default:
			s.Action, s.Reason = Skip, fmt.Sprintf("its lease %016x is not in the file: it would never expire", uint64(ours.Lease))
		}
	}
	p.Steps = append(p.Steps, s)
}

// Applied is what Apply did.
type Applied struct {
	Created, Replaced int64
	Leases            int64
	// Lost are keys that somebody else changed meanwhile; they are as that left them.
	Lost []string
	// Revision is that of the last write.
	Revision int64
}

// The size of one transaction; etcd takes 128 operations and 1.5 MB unless told
// otherwise.
const (
	applyOps   = 64
	applyBytes = 512 << 10
)

// Apply writes what the plan creates and replaces. Each key is compared with what the
// cluster had when the plan was made, in the transaction that writes it: what somebody
// else has changed since stays. New leases are granted for those of the file, for as long
// as they were granted then.
//
// After an error some of the keys may be written; planning again tells which are not.
func (p *Plan) Apply(ctx context.Context, client *clientv3.Client, progress func(done, total int64)) (Applied, error) {
	var a Applied
	leases := map[int64]clientv3.LeaseID{}
	todo := slices.DeleteFunc(slices.Clone(p.Steps), func(s Step) bool { return s.Action != Create && s.Action != Replace })
	for done := 0; done < len(todo); {
		n, size := 0, 0
		for n < applyOps && done+n < len(todo) && (n == 0 || size+len(todo[done+n].Record.Value) <= applyBytes) {
			size += len(todo[done+n].Record.Value)
			n++
		}
		batch := todo[done : done+n]
		for _, s := range batch {
			if err := p.grant(ctx, client, s.Record.Lease, leases, &a); err != nil {
				return a, err
			}
		}
		if err := a.write(ctx, client, batch, leases); err != nil {
			return a, err
		}
		done += n
		if progress != nil {
			progress(int64(done), int64(len(todo)))
		}
	}
	return a, nil
}

func (p *Plan) grant(ctx context.Context, client *clientv3.Client, id int64, leases map[int64]clientv3.LeaseID, a *Applied) error {
	if id == 0 || leases[id] != 0 {
		return nil
	}
	l, err := client.Grant(ctx, max(1, p.Leases[id].TTL))
	if err != nil {
		return fmt.Errorf("grant a lease: %w", err)
	}
	leases[id] = l.ID
	a.Leases++
	return nil
}

// write writes a batch in one transaction, or key by key when one of them was changed.
func (a *Applied) write(ctx context.Context, client *clientv3.Client, batch []Step, leases map[int64]clientv3.LeaseID) error {
	var cmps []clientv3.Cmp
	var puts []clientv3.Op
	for _, s := range batch {
		key := string(s.Record.Key)
		if s.Action == Create {
			cmps = append(cmps, clientv3.Compare(clientv3.CreateRevision(key), "=", 0))
		} else {
			cmps = append(cmps, clientv3.Compare(clientv3.ModRevision(key), "=", s.Was.ModRev))
		}
		var o []clientv3.OpOption
		if s.Record.Lease != 0 {
			o = append(o, clientv3.WithLease(leases[s.Record.Lease]))
		}
		puts = append(puts, clientv3.OpPut(key, string(s.Record.Value), o...))
	}
	r, err := client.Txn(ctx).If(cmps...).Then(puts...).Commit()
	switch {
	case err != nil:
		return fmt.Errorf("write %d keys from %q on: %w", len(batch), batch[0].Record.Key, err)
	case r.Succeeded:
		a.Revision = r.Header.Revision
		for _, s := range batch {
			if s.Action == Create {
				a.Created++
			} else {
				a.Replaced++
			}
		}
		return nil
	case len(batch) == 1:
		a.Lost = append(a.Lost, string(batch[0].Record.Key))
		return nil
	}
	var errs []error
	for i := range batch {
		errs = append(errs, a.write(ctx, client, batch[i:i+1], leases))
	}
	return errors.Join(errs...)
}
