package dbfile

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/pipeline"
)

// Buckets of an etcd file and keys in its bucket "meta" (etcd's
// server/storage/schema).
const (
	bucketKey     = "key"
	bucketMeta    = "meta"
	bucketLease   = "lease"
	bucketCluster = "cluster"
	bucketMembers = "members"
	bucketAuth    = "auth"
	bucketAlarm   = "alarm"
)

// marks are etcd's own notes about the state a file is in.
type marks struct {
	finished, scheduled int64 // compactions
	raftIndex, raftTerm uint64
}

// readMarks reads everything Info says, and the place of the records.
func (s *Source) readMarks() error {
	p := &s.pager
	metaBucket, found, err := p.bucket(bucketMeta)
	if err != nil {
		return err
	}
	if found {
		if err := s.readMetaBucket(metaBucket); err != nil {
			return err
		}
		s.marked = true
	}
	key, hasKey, err := p.bucket(bucketKey)
	if err != nil {
		return err
	}
	if !hasKey && !found {
		return &NotDatabaseError{Path: s.file, What: "a bbolt database, but not of etcd: it has no bucket \"key\" and no bucket \"meta\""}
	}
	// etcd makes both before it writes anything. Without one of them the file would
	// look empty, or as if it had never been compacted.
	for name, there := range map[string]bool{bucketKey: hasKey, bucketMeta: found} {
		if !there {
			return p.corrupt(p.meta.root, "bucket %q is missing", name)
		}
	}
	s.key = key
	// An empty keyspace is at revision 1. A compaction mark above the last record
	// means that the last records were tombstones, and are gone.
	s.newest = max(1, s.marks.finished, s.marks.scheduled)
	it, found, err := p.lastItem(s.key)
	if err != nil {
		return err
	}
	if found {
		rev, err := s.revisionOf(it)
		if err != nil {
			return err
		}
		s.newest = max(s.newest, rev.rev.Main)
	}
	if s.version == "" {
		return s.readClusterVersion()
	}
	return nil
}

func (s *Source) readMetaBucket(b bucket) error {
	p := &s.pager
	for _, m := range []struct {
		key string
		to  *int64
	}{
		{"finishedCompactRev", &s.marks.finished},
		{"scheduledCompactRev", &s.marks.scheduled},
	} {
		it, found, err := p.get(b, []byte(m.key))
		if err != nil {
			return err
		}
		if !found || len(it.value) == 0 {
			continue
		}
		rev, _, reason := parseRevision(it.value)
		if reason != "" {
			return p.corrupt(it.page, "%s: %s", m.key, reason)
		}
		*m.to = rev.Main
	}
	for _, m := range []struct {
		key string
		to  *uint64
	}{
		{"consistent_index", &s.marks.raftIndex},
		{"term", &s.marks.raftTerm},
	} {
		it, found, err := p.get(b, []byte(m.key))
		if err != nil {
			return err
		}
		if found && len(it.value) == 8 {
			*m.to = binary.BigEndian.Uint64(it.value)
		}
	}
	it, found, err := p.get(b, []byte("storageVersion"))
	if found {
		s.version = minorVersion(it.value)
	}
	return err
}

// readClusterVersion is for files of etcd 3.5 and older, which do not say what
// version they are of; the version their cluster agreed on comes close.
func (s *Source) readClusterVersion() error {
	b, found, err := s.pager.bucket(bucketCluster)
	if !found || err != nil {
		return err
	}
	it, found, err := s.pager.get(b, []byte("clusterVersion"))
	if found {
		s.version = minorVersion(it.value)
	}
	return err
}

// minorVersion returns "3.7" for "3.7.0"; empty for anything that is no version.
func minorVersion(b []byte) string {
	parts := strings.SplitN(string(b), ".", 3)
	if len(b) > 32 || len(parts) < 2 {
		return ""
	}
	for _, p := range parts[:2] {
		if _, err := strconv.Atoi(p); err != nil {
			return ""
		}
	}
	return parts[0] + "." + parts[1]
}

type revisionKey struct {
	rev       keyspace.Revision
	tombstone bool
}

func (s *Source) revisionOf(it item) (revisionKey, error) {
	rev, tombstone, reason := parseRevision(it.key)
	if reason == "" && it.isBucket {
		reason = "a bucket lies among the records"
	}
	if reason != "" {
		return revisionKey{}, s.pager.corrupt(it.page, "record %s: %s", describeKey(it.key), reason)
	}
	return revisionKey{rev, tombstone}, nil
}

// Info describes the file. It waits for the checksum of a snapshot. BytesInUse is
// 0: etcd keeps no count of its free pages; see BytesInUse.
func (s *Source) Info(ctx context.Context) (keyspace.Info, error) {
	if err := s.acquire(); err != nil {
		return keyspace.Info{}, err
	}
	defer s.release()
	if err := s.trusted(ctx); err != nil {
		return keyspace.Info{}, err
	}
	info := keyspace.Info{
		Kind:       s.kind,
		Location:   s.file,
		Revision:   s.newest,
		CompactRev: s.marks.finished,
		ClusterID:  s.clusterID,
		MemberID:   s.memberID,
		Bytes:      int64(len(s.pager.data)),
		Version:    s.version,
		Note:       s.Note(),
	}
	if s.marks.scheduled > s.marks.finished {
		info.CompactScheduled = s.marks.scheduled
	}
	return info, nil
}

// Note says what about the source a reader should know, as Info does, without waiting
// for the checksum of a snapshot; empty: nothing.
func (s *Source) Note() string {
	if s.kind == keyspace.Member && !s.withLog {
		return s.lag()
	}
	return s.note
}

// Lacks tells whether writes that were acknowledged may be missing: the write-ahead
// log of a data folder is damaged, cut, or of another history. Note says which.
func (s *Source) Lacks() bool { return s.lacks }

// trusted waits for the checksum and looks whether the file is still the same.
func (s *Source) trusted(ctx context.Context) error {
	if err := s.seal(ctx); err != nil {
		return err
	}
	return pipeline.Guard(func() error { return s.check(ctx) })
}

// lag says what a member's file may lack. etcd writes to it in batches and only
// the write-ahead log has everything that was acknowledged.
func (s *Source) lag() string {
	if s.Stripped() {
		return "it looks like a snapshot whose checksum was cut off"
	}
	note := fmt.Sprintf("a member's own file, written up to raft index %d; the newest writes may be only in its write-ahead log", s.marks.raftIndex)
	if first := lastSegment(s.walDir); first > s.marks.raftIndex {
		note = fmt.Sprintf("a member's own file, written up to raft index %d; its write-ahead log goes on past %d, so the newest writes are missing here", s.marks.raftIndex, first)
	}
	return note
}

// lastSegment returns the raft index at which the newest file of a write-ahead
// log starts, 0 when there is none. Their names are sequence-index.wal, in hex.
func lastSegment(dir string) (index uint64) {
	if dir == "" {
		return 0
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	for _, e := range entries {
		var seq, at uint64
		if n, err := fmt.Sscanf(e.Name(), "%016x-%016x.wal", &seq, &at); n == 2 && err == nil {
			index = max(index, at)
		}
	}
	return index
}

// Lease is a lease as the file holds it. What is left of it at the time of the
// save is not known, unless etcd wrote it down as RemainingTTL.
type Lease struct {
	ID           int64
	TTL          int64 // seconds, as granted
	RemainingTTL int64 // seconds left at the last checkpoint; 0: not noted
}

// Leases returns all leases by rising id.
func (s *Source) Leases(ctx context.Context) ([]Lease, error) {
	var leases []Lease
	if s.leases != nil {
		for _, l := range s.leases {
			leases = append(leases, l)
		}
		slices.SortFunc(leases, func(a, b Lease) int { return cmp.Compare(a.ID, b.ID) })
		return leases, nil
	}
	err := s.each(ctx, bucketLease, func(it item) error {
		l, ok := decodeLease(it.value)
		if !ok || len(it.key) != 8 || int64(binary.BigEndian.Uint64(it.key)) != l.ID {
			return s.pager.corrupt(it.page, "lease %x does not decode", it.key)
		}
		leases = append(leases, l)
		return nil
	})
	// The bucket is ordered as unsigned numbers.
	slices.SortFunc(leases, func(a, b Lease) int { return cmp.Compare(a.ID, b.ID) })
	return leases, err
}

// decodeLease decodes etcd's leasepb.Lease (server/lease/leasepb/lease.proto):
// id, TTL and remaining TTL as varints 1, 2 and 3.
func decodeLease(b []byte) (l Lease, ok bool) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return l, false
		}
		b = b[n:]
		if typ == protowire.VarintType && num <= 3 {
			x, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return l, false
			}
			switch num {
			case 1:
				l.ID = int64(x)
			case 2:
				l.TTL = int64(x)
			case 3:
				l.RemainingTTL = int64(x)
			}
			b = b[n:]
			continue
		}
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return l, false
		}
		b = b[n:]
	}
	return l, true
}

// Member is a member of the cluster as the file names it.
type Member struct {
	ID         string   `json:"-"` // in hex, as etcdctl prints it
	Name       string   `json:"name"`
	PeerURLs   []string `json:"peerURLs"`
	ClientURLs []string `json:"clientURLs"`
	IsLearner  bool     `json:"isLearner"`
}

// Members returns the members by rising id, as the database has them; what only
// the write-ahead log says of members, users and alarms is not in it. A restored file that was never
// started names the members it was restored for.
func (s *Source) Members(ctx context.Context) ([]Member, error) {
	var members []Member
	err := s.each(ctx, bucketMembers, func(it item) error {
		m := Member{ID: string(it.key)}
		if err := json.Unmarshal(it.value, &m); err != nil {
			return s.pager.corrupt(it.page, "member %s: %v", describeKey(it.key), err)
		}
		members = append(members, m)
		return nil
	})
	return members, err
}

// AuthEnabled tells whether the cluster asked for authentication.
func (s *Source) AuthEnabled(ctx context.Context) (enabled bool, err error) {
	err = s.each(ctx, bucketAuth, func(it item) error {
		if string(it.key) == "authEnabled" {
			enabled = len(it.value) == 1 && it.value[0] == 1
		}
		return nil
	})
	return enabled, err
}

// Alarms returns how many alarms (out of space, damage) were raised.
func (s *Source) Alarms(ctx context.Context) (n int, err error) {
	err = s.each(ctx, bucketAlarm, func(item) error { n++; return nil })
	return n, err
}

// RaftIndex returns the index of the last write that the file holds, and its
// term; zeros when the file says nothing.
func (s *Source) RaftIndex() (index, term uint64) { return s.marks.raftIndex, s.marks.raftTerm }

// Buckets returns the names of the top-level buckets in order.
func (s *Source) Buckets(ctx context.Context) ([]string, error) {
	var names []string
	err := s.walk(ctx, bucket{root: s.pager.meta.root}, func(it item) error {
		names = append(names, string(it.key))
		return nil
	})
	return names, err
}

// Each calls fn with every key and value of a top-level bucket in key order;
// nested buckets are left out. A bucket that is not there has none. Keys and
// values point into the file and stay valid until Close. An error of fn ends the
// walk and is returned.
func (s *Source) Each(ctx context.Context, bucket string, fn func(key, value []byte) error) error {
	return s.each(ctx, bucket, func(it item) error {
		if it.isBucket {
			return nil
		}
		return fn(it.key, it.value)
	})
}

// each calls fn with every element of a bucket; a bucket that is not there has
// none.
func (s *Source) each(ctx context.Context, name string, fn func(item) error) error {
	if err := s.acquire(); err != nil {
		return err
	}
	defer s.release()
	var b bucket
	var found bool
	err := pipeline.Guard(func() (err error) {
		b, found, err = s.pager.bucket(name)
		return err
	})
	if err != nil || !found {
		return err
	}
	return s.walk(ctx, b, fn)
}

func (s *Source) walk(ctx context.Context, b bucket, fn func(item) error) error {
	if err := s.acquire(); err != nil {
		return err
	}
	defer s.release()
	if err := s.trusted(ctx); err != nil {
		return err
	}
	return pipeline.Guard(func() error {
		c := s.pager.cursor(b, nil, nil)
		for n := 1; ; n++ {
			it, err := c.next()
			if errors.Is(err, errEnd) {
				return s.check(ctx)
			}
			if err == nil && n%1024 == 0 {
				err = s.check(ctx)
			}
			if err == nil {
				err = fn(it)
			}
			if err != nil {
				return err
			}
		}
	})
}

// BytesInUse counts the pages that hold data, in bytes. It reads the head of
// every page of the file.
func (s *Source) BytesInUse(ctx context.Context) (int64, error) {
	if err := s.acquire(); err != nil {
		return 0, err
	}
	defer s.release()
	if err := s.trusted(ctx); err != nil {
		return 0, err
	}
	var pages uint64
	err := pipeline.Guard(func() error {
		seen := newBitmap(s.pager.meta.pages)
		n, err := s.countPages(ctx, s.pager.meta.root, seen, 0)
		if err != nil {
			return err
		}
		pages = n + 2 // the meta pages
		if id := s.pager.meta.freelist; id != noFreelist && id >= 2 && id < s.pager.meta.pages {
			pages += 1 + uint64(le.Uint32(s.pager.data[id*s.pager.meta.pageSize+12:]))
		}
		return s.check(ctx)
	})
	return int64(pages * s.pager.meta.pageSize), err
}

func (s *Source) countPages(ctx context.Context, id uint64, seen bitmap, depth int) (uint64, error) {
	p := &s.pager
	if depth > maxDepth {
		return 0, p.corrupt(id, "the tree is more than %d pages deep", maxDepth)
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	pg, err := p.page(id, seen)
	if err != nil {
		return 0, err
	}
	n := uint64(len(pg.body)) / p.meta.pageSize
	for i := range pg.count {
		var child uint64
		if pg.flags == flagBranch {
			if _, child, err = p.branch(&pg, i); err != nil {
				return 0, err
			}
		} else {
			it, err := p.leaf(&pg, i)
			if err != nil {
				return 0, err
			}
			if !it.isBucket {
				continue
			}
			b, err := p.bucketOf(it)
			if err != nil {
				return 0, err
			}
			if child = b.root; child == 0 {
				continue
			}
		}
		m, err := s.countPages(ctx, child, seen, depth+1)
		if err != nil {
			return 0, err
		}
		n += m
	}
	return n, nil
}
