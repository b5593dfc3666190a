package backup

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// against compares every live record of the file with the cluster as it was at the same
// revision. A cluster that has compacted past it, or never came to it, is not compared.
func (v *verification) against(ctx context.Context) error {
	if v.o.Live == nil {
		return nil
	}
	all := keyspace.All()
	all.Rev = v.r.Revision
	differ := 0
	err := Differences(v.o.Live.Records(ctx, all), v.src.Records(ctx, all), func(theirs, ours *keyspace.Record) bool {
		switch {
		case theirs != nil && ours != nil && sameRecord(*theirs, *ours):
			return true
		case theirs == nil:
			v.differs(ours, "the cluster does not have it at that revision")
		case ours == nil:
			v.differs(theirs, "the cluster has it at that revision, the file has not")
		default:
			v.differs(ours, "the cluster has another value or other revisions")
		}
		differ++
		return differ < mostDifferences
	})
	var compacted *keyspace.CompactedError
	var future *keyspace.FutureError
	switch {
	case errors.As(err, &compacted):
		v.skip(LevelHash, fmt.Sprintf("not compared with the cluster: it is compacted at revision %d, the file is at %d", compacted.CompactRev, v.r.Revision))
	case errors.As(err, &future):
		v.say(LevelHash, "the cluster is at revision %d, the file at %d: it is of another cluster, or of one that was restored since", future.Newest, v.r.Revision)
	case errors.Is(err, keyspace.ErrCorrupt):
		v.skip(LevelHash, "not compared with the cluster: the records cannot all be read")
	case err != nil:
		return fmt.Errorf("verify against the cluster: %w", err)
	case differ == mostDifferences:
		v.at(LevelHash).Note = fmt.Sprintf("no more than %d differences are listed", mostDifferences)
	default:
		v.at(LevelHash).Note = "every record is the cluster's"
		if differ > 0 {
			v.at(LevelHash).Note = ""
		}
	}
	return nil
}

func (v *verification) differs(r *keyspace.Record, reason string) {
	v.found(Finding{Level: LevelHash, Page: -1, Rev: keyspace.Revision{Main: r.ModRev}, Key: append([]byte(nil), r.Key...), Reason: reason})
}
