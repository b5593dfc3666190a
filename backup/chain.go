package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"filippo.io/age"

	"github.com/etcdctl-plus/etcdctl-plus/backup/segment"
	"github.com/etcdctl-plus/etcdctl-plus/backup/store"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// segmentForm are the names of segments: FIRST-LAST-TIME.seg, with the revisions that are in
// it and the time when it was sealed.
var segmentForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^\d{12,19}-\d{12,19}-\d{8}T\d{6}Z\.seg(\.age)?$`)
})

const segmentTime = "20060102T150405Z"

// Segment is a stretch of the revision stream in a repository, by what its name says.
type Segment struct {
	Cluster string    `json:"cluster"`
	Name    string    `json:"name"`
	First   int64     `json:"first"`
	Last    int64     `json:"last"`
	Sealed  time.Time `json:"sealed"`
	Bytes   int64     `json:"bytes"`
}

// ID names the segment in its repository: CLUSTER/NAME.
func (s *Segment) ID() string { return s.Cluster + "/" + s.Name }

func (s *Segment) object() string { return segmentsDir + s.ID() }

func segmentName(first, last int64, sealed time.Time, encrypted bool) string {
	name := fmt.Sprintf("%012d-%012d-%s.seg", first, last, sealed.UTC().Format(segmentTime))
	if encrypted {
		name += ".age"
	}
	return name
}

// segmentOf reads a name below segments/; false: it is none of ours.
func segmentOf(o store.Object) (Segment, bool) {
	cluster, name, ok := strings.Cut(strings.TrimPrefix(o.Name, segmentsDir), "/")
	if !ok || !strings.HasPrefix(o.Name, segmentsDir) || !isHex(cluster) || !segmentForm().MatchString(name) {
		return Segment{}, false
	}
	s := Segment{Cluster: cluster, Name: name, Bytes: o.Bytes}
	var sealed string
	if _, err := fmt.Sscanf(strings.ReplaceAll(strings.TrimSuffix(strings.TrimSuffix(name, ".age"), ".seg"), "-", " "), "%d %d %s", &s.First, &s.Last, &sealed); err != nil {
		return Segment{}, false
	}
	t, err := time.Parse(segmentTime, sealed)
	s.Sealed = t
	return s, err == nil && s.First > 0 && s.Last >= s.First
}

// bySpan orders segments by cluster and first revision, the longer ones first.
func bySpan(a, b Segment) int {
	return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.First, b.First), cmp.Compare(b.Last, a.Last), cmp.Compare(a.Name, b.Name))
}

// Chain is a backup and the segments behind it, each of which goes on where the one before
// ends, or earlier.
type Chain struct {
	Base     *Entry
	Segments []Segment
}

// Last is the newest revision of the chain.
func (c *Chain) Last() int64 {
	if n := len(c.Segments); n > 0 {
		return c.Segments[n-1].Last
	}
	return c.Base.Manifest.Revision
}

// GapError says that no chain reaches a revision or a time.
type GapError struct {
	Want string // "revision 7", "2026-…"
	Have string // how far the best chain goes
}

func (e *GapError) Error() string {
	return fmt.Sprintf("no chain of a backup and segments reaches %s: %s", e.Want, e.Have)
}

// chain extends a backup by segments up to a revision, 0: as far as they go. A segment that
// was sealed before the backup was taken cannot go on behind it: it is of another history.
func (l *Listing) chain(base *Entry, to int64) *Chain {
	c := &Chain{Base: base}
	at := base.Manifest.Revision
	for to == 0 || at < to {
		var best *Segment
		for i := range l.Segments {
			s := &l.Segments[i]
			if s.Cluster == base.Cluster && s.First <= at+1 && s.Last > at && !s.Sealed.Before(base.Manifest.Started.Truncate(time.Second)) && (best == nil || s.Last > best.Last) {
				best = s
			}
		}
		if best == nil {
			break
		}
		c.Segments = append(c.Segments, *best)
		at = best.Last
	}
	return c
}

// bases are the backups of a cluster that can be read, the last one taken first.
func (l *Listing) bases(cluster string) (out []*Entry) {
	for i := len(l.Entries) - 1; i >= 0; i-- {
		if e := &l.Entries[i]; e.Cluster == cluster && e.Manifest != nil && e.Problem == "" {
			out = append(out, e)
		}
	}
	return out
}

// Newest returns the chain that goes on from the last backup of a cluster; nil: there is none.
func (l *Listing) Newest(cluster string) *Chain {
	for _, e := range l.bases(cluster) {
		return l.chain(e, 0)
	}
	return nil
}

// Moment is a point in the history: a revision or, where that is 0, a time.
type Moment struct {
	Rev  int64
	Time time.Time
}

func (m Moment) String() string {
	if m.Rev > 0 {
		return fmt.Sprintf("revision %d", m.Rev)
	}
	return m.Time.UTC().Format(time.RFC3339)
}

// At returns the shortest chain of a cluster to a moment. For a time it holds everything up
// to there, and what came later at the end. The error is a *GapError.
func (l *Listing) At(cluster string, m Moment) (*Chain, error) {
	have := "there is no backup of cluster " + cluster
	for _, e := range l.bases(cluster) {
		if m.Rev > 0 && e.Manifest.Revision > m.Rev || m.Rev == 0 && e.Manifest.Finished.After(m.Time) {
			if strings.HasPrefix(have, "there is no") {
				have = fmt.Sprintf("the oldest backup is of revision %d, finished at %s", e.Manifest.Revision, e.Manifest.Finished.UTC().Format(time.RFC3339))
			}
			continue
		}
		c := l.chain(e, m.Rev)
		switch {
		case m.Rev > 0 && c.Last() >= m.Rev:
			return c, nil
		case m.Rev == 0:
			// Names tell the second, no more: one of the same second may end before the moment.
			second := m.Time.Truncate(time.Second)
			for i := range c.Segments {
				if c.Segments[i].Sealed.After(second) {
					c.Segments = c.Segments[:i+1]
					return c, nil
				}
			}
			if n := len(c.Segments); n > 0 && c.Segments[n-1].Sealed.Equal(second) {
				return c, nil
			}
		}
		sealed := e.Manifest.Finished
		if n := len(c.Segments); n > 0 {
			sealed = c.Segments[n-1].Sealed
		}
		return nil, &GapError{Want: m.String(), Have: fmt.Sprintf("the one from backup %s ends with revision %d, at %s", e.ID(), c.Last(), sealed.UTC().Format(time.RFC3339))}
	}
	return nil, &GapError{Want: m.String(), Have: have}
}

// CheckSegment reads a segment in full, and compares it with its name.
func (r *Repository) CheckSegment(ctx context.Context, s *Segment, identities ...age.Identity) (segment.Info, error) {
	var info segment.Info
	err := r.readSegment(ctx, s, identities, func(*segment.Revision) error { return nil }, &info)
	return info, err
}

// readSegment calls each for every revision of a segment.
func (r *Repository) readSegment(ctx context.Context, s *Segment, identities []age.Identity, each func(*segment.Revision) error, info *segment.Info) error {
	rc, err := r.Store.Get(ctx, s.object())
	if err != nil {
		return fmt.Errorf("read segment %s: %w", s.ID(), err)
	}
	defer rc.Close()
	fail := func(err error) error {
		if errors.Is(err, keyspace.ErrCorrupt) {
			return &StoredError{ID: s.ID(), Reason: err.Error()}
		}
		return fmt.Errorf("read segment %s: %w", s.ID(), err)
	}
	in, err := segment.NewReader(ctxReader{ctx, rc}, identities...)
	if err != nil {
		return fail(err)
	}
	if i := in.Info(); i.First != s.First || fmt.Sprintf("%x", i.Cluster) != s.Cluster {
		return &StoredError{ID: s.ID(), Reason: fmt.Sprintf("it is of cluster %x, from revision %d on, and has the name of another one", i.Cluster, i.First)}
	}
	for rev, err := range in.Revisions() {
		if err != nil {
			return fail(err)
		}
		if err := each(&rev); err != nil {
			return err
		}
	}
	i := in.Info()
	if i.Last != s.Last {
		return &StoredError{ID: s.ID(), Reason: fmt.Sprintf("it ends with revision %d, and has the name of another one", i.Last)}
	}
	if info != nil {
		*info = i
	}
	return nil
}

// spare returns the segments that no kept backup needs: all they have is in the oldest one.
// removed are the ids of backups that go.
func (l *Listing) spare(removed map[string]bool) (out []Segment) {
	oldest := map[string]*Manifest{}
	for i := range l.Entries {
		e := &l.Entries[i]
		if e.Manifest == nil || e.Problem != "" || removed[e.ID()] {
			continue
		}
		if m := oldest[e.Cluster]; m == nil || e.Manifest.Started.Before(m.Started) {
			oldest[e.Cluster] = e.Manifest
		}
	}
	for _, s := range l.Segments {
		if m := oldest[s.Cluster]; m != nil && s.Last <= m.Revision && s.Sealed.Before(m.Started) {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, bySpan)
	return out
}
