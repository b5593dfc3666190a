package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// spool is a snapshot of the cluster in a private file.
type spool struct {
	src    *spooled
	rev    int64
	users  int // iterations that run
	marked bool
}

// spooled removes its file on Close, where an open file could not be removed.
type spooled struct {
	*dbfile.Source
	leftover string
}

func (s *spooled) Close() error {
	err := s.Source.Close()
	if s.leftover != "" {
		if rerr := os.Remove(s.leftover); !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}
	return err
}

// Events yields the changes of r in the order in which they happened; see
// dbfile.Source.Events for what happens at the ends of the history.
//
// Before the first event a snapshot of the whole database is streamed into
// a private file in TempDir: the server reads it without holding up writers, and
// the file is gone on Close at the latest. It is used again as long as it reaches
// far enough. MaxRev 0 is the cluster's newest revision when the iteration starts.
// Snapshots need root's permission where authentication is on.
func (s *Source) Events(ctx context.Context, r keyspace.EventRange) iter.Seq2[keyspace.Event, error] {
	return func(yield func(keyspace.Event, error) bool) {
		sp, newest, err := s.history(ctx, r.MaxRev)
		if err != nil {
			yield(keyspace.Event{}, err)
			return
		}
		defer s.leave(sp)
		// The snapshot may be newer than the revision that was asked for.
		if r.MinRev > newest+1 {
			yield(keyspace.Event{}, &keyspace.FutureError{Rev: r.MinRev, Newest: newest})
			return
		}
		if r.MaxRev <= 0 {
			r.MaxRev = newest
		}
		for ev, err := range sp.src.Events(ctx, r) {
			if !yield(ev, err) {
				return
			}
		}
	}
}

// history returns a snapshot that has all revisions up to one, 0: up to the newest, and
// the newest revision.
func (s *Source) history(ctx context.Context, upTo int64) (sp *spool, newest int64, err error) {
	s.spooling.Lock()
	defer s.spooling.Unlock()
	b := s.budget()
	for a := s.attempts(); ; {
		sp, newest, err = s.historyOnce(ctx, b, upTo)
		if err == nil || !a.again(ctx, err) {
			return sp, newest, err
		}
	}
}

func (s *Source) historyOnce(ctx context.Context, b *budget, upTo int64) (*spool, int64, error) {
	var m *member
	var newest int64
	err := b.spend(ctx, func(ctx context.Context) (err error) {
		if m, err = s.choose(ctx); err != nil {
			return err
		}
		newest, err = s.newest(ctx, m, everything.Key)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	if upTo <= 0 || upTo > newest {
		upTo = newest
	}
	if sp := s.enter(upTo); sp != nil {
		return sp, newest, nil
	}
	src, err := s.spool(ctx, m)
	if err != nil {
		return nil, 0, err
	}
	info, err := src.Info(ctx)
	if err == nil && info.Revision < upTo {
		err = fmt.Errorf("the snapshot from %s ends at revision %d, before %d", m.endpoint, info.Revision, upTo)
	}
	if err != nil {
		return nil, 0, errors.Join(err, src.Close())
	}
	sp := &spool{src: src, rev: info.Revision}
	if err := s.keep(sp); err != nil {
		return nil, 0, errors.Join(err, src.Close())
	}
	return sp, newest, nil
}

// enter returns the newest spool if it reaches a revision.
func (s *Source) enter(upTo int64) *spool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.spools) == 0 || s.spools[len(s.spools)-1].rev < upTo {
		return nil
	}
	sp := s.spools[len(s.spools)-1]
	sp.users++
	return sp
}

func (s *Source) leave(sp *spool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sp.users--
}

// keep adds a spool with one user. Older ones that have been idle since the last
// one came are given back; whoever still looks at their events had time until now.
func (s *Source) keep(sp *spool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("read the history: %w", ErrClosed)
	}
	kept := s.spools[:0]
	var errs []error
	for _, old := range s.spools {
		if old.users == 0 && old.marked {
			errs = append(errs, old.src.Close())
			continue
		}
		old.marked = old.users == 0
		kept = append(kept, old)
	}
	sp.users = 1
	kept = append(kept, sp)
	s.spools = kept
	return errors.Join(errs...)
}

// spool streams a snapshot into a private file and opens it.
func (s *Source) spool(ctx context.Context, m *member) (_ *spooled, err error) {
	f, err := os.CreateTemp(s.o.TempDir, "etcdctl-plus-*.db") // 0600
	if err != nil {
		return nil, fmt.Errorf("keep a snapshot of %s: %w", m.endpoint, err)
	}
	name := f.Name()
	defer func() {
		if err != nil {
			os.Remove(name)
		}
	}()
	if err := errors.Join(s.save(ctx, m, f), f.Close()); err != nil {
		return nil, err
	}
	src, err := dbfile.Open(ctx, name, dbfile.Options{})
	if err != nil {
		return nil, fmt.Errorf("read the snapshot of %s: %w", m.endpoint, err)
	}
	info, err := src.Info(ctx) // compares the checksum
	if err == nil && info.Kind != keyspace.Snapshot {
		err = fmt.Errorf("it ended without its checksum: %w", keyspace.ErrCorrupt)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the snapshot of %s: %w", m.endpoint, err), src.Close())
	}
	sp := &spooled{Source: src}
	// Without a name the file is gone when the process is, however it ends.
	// Windows does not allow that.
	if os.Remove(name) != nil {
		sp.leftover = name
	}
	return sp, nil
}

// save streams a snapshot, checksum and all, into w.
func (s *Source) save(ctx context.Context, m *member, w io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	st, err := m.maintenance.Snapshot(ctx, &pb.SnapshotRequest{}, callOptions...)
	if err != nil {
		return m.explain(err, "stream a snapshot")
	}
	p := Progress{Snapshot: true}
	for {
		part, err := st.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return m.explain(err, "stream a snapshot")
		}
		n := int64(len(part.Blob))
		if err := s.limit.take(ctx, n); err != nil {
			return err
		}
		if _, err := w.Write(part.Blob); err != nil {
			return fmt.Errorf("keep a snapshot of %s: %w", m.endpoint, err)
		}
		p.Bytes += n
		p.Total = max(p.Total, p.Bytes+int64(part.RemainingBytes))
		if s.o.Progress != nil {
			s.o.Progress(p)
		}
	}
}
