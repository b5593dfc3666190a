package watchtail

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// begin gives what comes before anything is watched: a list, or the backlog.
func (t *Stream) begin(ctx context.Context, give func(Step) error) error {
	switch {
	case t.o.Listed:
		return t.list(ctx, Listed, 0, give)
	case t.o.Backlog != nil:
		return t.backlog(ctx, give)
	}
	return nil
}

// meet makes sure of the history without a stream.
func (t *Stream) meet(ctx context.Context) (newest int64, err error) {
	m, err := t.choose(ctx)
	if err != nil {
		return 0, err
	}
	t.met(m)
	return m.rev, m.client.Close()
}

func (t *Stream) backlog(ctx context.Context, give func(Step) error) error {
	newest, err := t.meet(ctx)
	if err != nil {
		return err
	}
	if !t.o.Oldest && newest-t.next < t.o.BacklogRevs {
		return nil
	}
	src, err := t.o.Backlog(ctx)
	if err != nil {
		return err
	}
	defer src.Close()
	from := t.next
	if t.o.Oldest {
		from = 0
	}
	given := false
	for s, err := range Replay(ctx, src, t.o.Ranges, from, t.o.PrevKV) {
		if err != nil && !given && denied(err) {
			t.withoutBacklog(err)
			return nil
		}
		if err != nil {
			return err
		}
		given = true
		t.next, t.known.Digest, t.o.Oldest = s.Rev+1, Digest(s.Events), false
		if err := give(s); err != nil {
			return err
		}
	}
	t.o.Backlog = nil
	return nil
}

// Note is told as trouble that is none: it says why something is done otherwise.
type Note struct{ Text string }

func (n *Note) Error() string { return n.Text }

func denied(err error) bool {
	return errors.Is(rpctypes.Error(err), rpctypes.ErrPermissionDenied) || errors.Is(err, rpctypes.ErrPermissionDenied)
}

// withoutBacklog watches what a user may not read from a snapshot, which is root's.
func (t *Stream) withoutBacklog(why error) {
	t.trouble(t.avoid, &Note{fmt.Sprintf("the history is watched, since this user may not stream a snapshot (%v)", why)})
	t.o.Backlog = nil
	if t.o.Oldest {
		t.next, t.o.Oldest, t.seeking = 1, false, true
	}
}

// Replay gives the steps of a finished history from a revision on, 0: from the oldest of
// which everything is there. The last step says how far it goes. A *keyspace.CompactedError
// says that it begins later.
func Replay(ctx context.Context, src keyspace.HistorySource, ranges []keyspace.Range, from int64, prev bool) iter.Seq2[Step, error] {
	return func(yield func(Step, error) bool) {
		info, err := src.Info(ctx)
		if err != nil {
			yield(Step{}, err)
			return
		}
		gone := max(info.CompactRev, info.CompactScheduled)
		switch {
		case from == 0:
			from = gone + 1
		case from <= gone:
			yield(Step{}, &keyspace.CompactedError{Rev: from, CompactRev: gone})
			return
		}
		if from > info.Revision {
			return
		}
		r := keyspace.EventRange{MinRev: from, MaxRev: info.Revision, Prev: prev}
		r.Key, r.End = hull(ranges)
		var step Step
		for e, err := range src.Events(ctx, r) {
			if err != nil {
				yield(Step{}, err)
				return
			}
			if !selects(ranges, e.Record.Key) {
				continue
			}
			if e.Rev.Main != step.Rev && len(step.Events) > 0 {
				step.More = true
				if !yield(step, nil) {
					return
				}
				step.Events = step.Events[:0]
			}
			step.Rev = e.Rev.Main
			step.Events = append(step.Events, e)
		}
		if len(step.Events) > 0 {
			step.More = true
			if !yield(step, nil) {
				return
			}
		}
		if step.Rev < info.Revision {
			yield(Step{Rev: info.Revision}, nil)
		}
	}
}

func selects(ranges []keyspace.Range, key []byte) bool {
	return slices.ContainsFunc(ranges, func(r keyspace.Range) bool { return keyspace.Contains(r.Key, r.End, key) })
}

// listPart is how many keys of a list are given at once.
const listPart = 256

// list gives all keys as they stand now that were changed at or after a revision, and goes on
// behind that.
func (t *Stream) list(ctx context.Context, origin Origin, changed int64, give func(Step) error) error {
	if _, err := t.meet(ctx); err != nil {
		return err
	}
	src, err := t.o.List(ctx)
	if err != nil {
		return err
	}
	defer src.Close()
	info, err := src.Info(ctx)
	if err != nil {
		return err
	}
	step := Step{Rev: info.Revision, List: ListBegin, Origin: origin, More: true}
	if err := give(step); err != nil {
		return err
	}
	step.List = ListPart
	flush := func() error {
		if len(step.Events) == 0 {
			return nil
		}
		err := give(step)
		step.Events = step.Events[:0]
		return err
	}
	for _, r := range t.o.Ranges {
		r.Rev = info.Revision
		for rec, err := range src.Records(ctx, r) {
			if err != nil {
				return err
			}
			if rec.ModRev < changed {
				continue
			}
			step.Events = append(step.Events, keyspace.Event{Rev: keyspace.Revision{Main: rec.ModRev}, Record: rec})
			if len(step.Events) == listPart {
				if err := flush(); err != nil {
					return err
				}
			}
		}
		if err := flush(); err != nil {
			return err
		}
	}
	t.next, t.known.Digest, t.o.Listed = info.Revision+1, 0, false
	return give(Step{Rev: info.Revision, List: ListEnd, Origin: origin})
}

// resync lists in place of ending where that is wanted. It returns the error that is left.
func (t *Stream) resync(ctx context.Context, why error, give func(Step) error) error {
	var compacted *keyspace.CompactedError
	var diverged *DivergedError
	changed := t.next
	switch {
	case errors.As(why, &compacted) && t.seeking:
		t.next = compacted.CompactRev + 1
		return nil
	case errors.As(why, &compacted) && t.o.ResyncCompacted:
	case errors.As(why, &diverged) && t.o.ResyncDiverged:
		t.known, changed = History{}, 0
	default:
		return why
	}
	t.trouble(t.avoid, why)
	return t.list(ctx, Resynced, changed, give)
}
