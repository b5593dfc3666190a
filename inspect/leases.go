package inspect

import (
	"cmp"
	"context"
	"slices"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// LeaseTTL is a lease as a cluster or a file knows it.
type LeaseTTL struct {
	ID      int64
	Granted int64 // seconds
	// Remaining is in seconds; -1: not known, as in a file.
	Remaining int64
}

// LeaseUse is a lease and the keys attached to it.
type LeaseUse struct {
	ID               int64
	GrantedSeconds   int64 // 0 for an orphan
	RemainingSeconds int64 // -1: not known
	Keys             int64
	Bytes            int64
	// Sample holds the first keys, in key order.
	Sample []string
	// Orphan says that keys name this lease and there is no such lease: they never
	// expire. A restored snapshot can have them.
	Orphan bool
}

// leaseSample is how many keys of a lease are named.
const leaseSample = 5

// Leases joins the leases that exist with the keys that name one, by rising id.
// Every key is read once; it holds one LeaseUse per lease.
func Leases(ctx context.Context, src keyspace.Source, rev int64, known []LeaseTTL) ([]LeaseUse, error) {
	uses := make(map[int64]*LeaseUse, len(known))
	for _, l := range known {
		uses[l.ID] = &LeaseUse{ID: l.ID, GrantedSeconds: l.Granted, RemainingSeconds: l.Remaining}
	}
	all := keyspace.All()
	all.Rev = rev
	for rec, err := range src.Records(ctx, all) {
		if err != nil {
			return nil, err
		}
		if rec.Lease == 0 {
			continue
		}
		u := uses[rec.Lease]
		if u == nil {
			u = &LeaseUse{ID: rec.Lease, RemainingSeconds: -1, Orphan: true}
			uses[rec.Lease] = u
		}
		u.Keys++
		u.Bytes += size(rec)
		if len(u.Sample) < leaseSample {
			u.Sample = append(u.Sample, string(rec.Key))
		}
	}
	out := make([]LeaseUse, 0, len(uses))
	for _, u := range uses {
		out = append(out, *u)
	}
	slices.SortFunc(out, func(a, b LeaseUse) int { return cmp.Compare(uint64(a.ID), uint64(b.ID)) })
	return out, nil
}
