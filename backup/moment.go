package backup

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"filippo.io/age"
	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdctl-plus/etcdctl-plus/backup/place"
	"github.com/etcdctl-plus/etcdctl-plus/backup/segment"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// Built is a snapshot that was made of a chain.
type Built struct {
	Path      string
	Base      string // id of the backup
	Segments  int
	Revision  int64
	Time      time.Time // when Revision came; zero: it is the backup's own
	Revisions int64     // that were applied
	Changes   int64
	Leases    int // that came with segments
}

// errPast ends the reading of segments.
var errPast = errors.New("past the moment")

// prior is a key as it stands while changes are applied.
type prior struct {
	created, version int64 // version 0: it is not there
}

// Build makes a snapshot, of a chain, of the state at a moment: revisions, sub-revisions,
// versions and leases are those that the cluster had. Users, members and alarms are the
// backup's. The file is a private one that the caller removes; it has a checksum as saved
// snapshots do.
//
// Memory grows with the number of keys that the segments change. Each change is held against
// the key's state before: what does not follow is another history's, and a *StoredError.
func (r *Repository) Build(ctx context.Context, c *Chain, m Moment, dir string, o dbfile.Options) (_ *Built, err error) {
	b := &builder{r: r, chain: c, moment: m, ids: o.Identities, keys: map[string]*prior{}, out: &Built{Base: c.Base.ID(), Segments: len(c.Segments), Revision: c.Base.Manifest.Revision}}
	if err := b.base(ctx, dir, o); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(b.out.Path))
		}
	}()
	// Once to see which keys matter, and once to apply.
	if err := b.each(ctx, func(rev *segment.Revision) error {
		for i := range rev.Events {
			if key := string(rev.Events[i].Record.Key); b.keys[key] == nil {
				b.keys[key] = &prior{}
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	if err := b.state(ctx); err != nil {
		return nil, err
	}
	if err := b.apply(ctx); err != nil {
		return nil, err
	}
	return b.out, b.seal()
}

type builder struct {
	r      *Repository
	chain  *Chain
	moment Moment
	ids    []age.Identity
	keys   map[string]*prior
	out    *Built
}

// base puts the backup, unpacked and without its checksum, into a private file.
func (b *builder) base(ctx context.Context, dir string, o dbfile.Options) (err error) {
	fetched, err := b.r.FetchFile(ctx, b.chain.Base, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(fetched)) }()
	src, err := dbfile.Open(ctx, fetched, o)
	if err != nil {
		return fmt.Errorf("open backup %s: %w", b.chain.Base.ID(), err)
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	private, err := place.PrivateDir(dir)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(private, "moment-*.db")
	if err != nil {
		return err
	}
	b.out.Path = f.Name()
	err = errors.Join(src.WritePages(ctx, f), f.Close())
	if err != nil {
		err = errors.Join(fmt.Errorf("unpack backup %s: %w", b.chain.Base.ID(), err), os.Remove(b.out.Path))
	}
	return err
}

// each calls f for every revision behind the backup up to the moment, each once.
func (b *builder) each(ctx context.Context, f func(*segment.Revision) error) error {
	at := b.chain.Base.Manifest.Revision
	for i := range b.chain.Segments {
		s := &b.chain.Segments[i]
		err := b.r.readSegment(ctx, s, b.ids, func(rev *segment.Revision) error {
			if b.moment.Rev > 0 && rev.Rev > b.moment.Rev || b.moment.Rev == 0 && rev.Time.After(b.moment.Time) {
				return errPast
			}
			if rev.Rev <= at && len(rev.Leases) == 0 {
				return nil
			}
			if rev.Rev <= at { // its leases may be named later
				rev.Events = nil
			} else {
				at = rev.Rev
			}
			return f(rev)
		}, nil)
		if errors.Is(err, errPast) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// state looks up how the keys stand in the backup.
func (b *builder) state(ctx context.Context) error {
	if len(b.keys) == 0 {
		return nil
	}
	src, err := dbfile.Open(ctx, b.out.Path, dbfile.Options{IgnoreChecksum: true, NoWAL: true})
	if err != nil {
		return err
	}
	defer src.Close()
	r := keyspace.All()
	r.KeysOnly = true
	for rec, err := range src.Records(ctx, r) {
		if err != nil {
			return err
		}
		if p := b.keys[string(rec.Key)]; p != nil {
			p.created, p.version = rec.CreateRev, rec.Version
		}
	}
	return nil
}

// applyBatch is how many changes are written in one transaction of the file.
const applyBatch = 10_000

// apply writes the changes into the file.
func (b *builder) apply(ctx context.Context) (err error) {
	db, err := bolt.Open(b.out.Path, 0o600, &bolt.Options{NoSync: true, NoFreelistSync: true, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return fmt.Errorf("apply segments: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	tx, err := db.Begin(true)
	if err != nil {
		return fmt.Errorf("apply segments: %w", err)
	}
	n := 0
	err = b.each(ctx, func(rev *segment.Revision) error {
		if n += len(rev.Events); n > applyBatch {
			if err := tx.Commit(); err != nil {
				return err
			}
			if tx, err = db.Begin(true); err != nil {
				return err
			}
			n = 0
		}
		return b.write(tx, rev)
	})
	if err != nil {
		return errors.Join(fmt.Errorf("apply segments: %w", err), tx.Rollback())
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("apply segments: %w", err)
	}
	return db.Sync()
}

// write writes one revision.
func (b *builder) write(tx *bolt.Tx, rev *segment.Revision) error {
	leases, err := tx.CreateBucketIfNotExists([]byte("lease"))
	if err != nil {
		return err
	}
	for id, ttl := range rev.Leases {
		k := binary.BigEndian.AppendUint64(nil, uint64(id)) //nolint:gosec // as etcd has it
		if leases.Get(k) != nil {
			continue
		}
		if err := leases.Put(k, encodeLease(id, ttl)); err != nil {
			return err
		}
		b.out.Leases++
	}
	if len(rev.Events) == 0 {
		return nil
	}
	keys := tx.Bucket([]byte("key"))
	if keys == nil {
		return &StoredError{ID: b.chain.Base.ID(), Reason: "it has no keys"}
	}
	keys.FillPercent = 0.9 // revisions only grow
	for i := range rev.Events {
		e := &rev.Events[i]
		if err := b.follows(rev.Rev, e); err != nil {
			return err
		}
		k := revisionKey(e.Rev)
		kv := &mvccpb.KeyValue{Key: e.Record.Key}
		if e.Type == keyspace.Delete {
			k = append(k, 't')
		} else {
			kv.Value, kv.CreateRevision, kv.ModRevision, kv.Version, kv.Lease = e.Record.Value, e.Record.CreateRev, rev.Rev, e.Record.Version, e.Record.Lease
		}
		v, err := proto.Marshal(kv)
		if err != nil {
			return err
		}
		if err := keys.Put(k, v); err != nil {
			return err
		}
	}
	b.out.Revision, b.out.Time = rev.Rev, rev.Time
	b.out.Revisions++
	b.out.Changes += int64(len(rev.Events))
	return nil
}

// follows holds a change against the state before.
func (b *builder) follows(rev int64, e *keyspace.Event) error {
	p := b.keys[string(e.Record.Key)]
	was := *p
	if e.Type == keyspace.Delete {
		*p = prior{}
		if was.version > 0 {
			return nil
		}
		return b.foreign(rev, e, "deletes a key that is not there")
	}
	*p = prior{created: e.Record.CreateRev, version: e.Record.Version}
	switch {
	case was.version == 0 && e.Record.Version == 1 && e.Record.CreateRev == rev,
		was.version > 0 && e.Record.Version == was.version+1 && e.Record.CreateRev == was.created:
		return nil
	}
	return b.foreign(rev, e, fmt.Sprintf("writes version %d, created at %d, behind version %d, created at %d", e.Record.Version, e.Record.CreateRev, was.version, was.created))
}

func (b *builder) foreign(rev int64, e *keyspace.Event, what string) error {
	return &StoredError{ID: b.chain.Base.ID(), Reason: fmt.Sprintf("the segments behind it are of another history: revision %d %s (%q)", rev, what, e.Record.Key)}
}

// revisionKey is the key of a record in etcd's database: main and sub-revision, eight bytes
// each, the largest first, with "_" between.
func revisionKey(r keyspace.Revision) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 18), uint64(r.Main)) //nolint:gosec // revisions are positive
	return binary.BigEndian.AppendUint64(append(b, '_'), uint64(r.Sub))     //nolint:gosec // as are these
}

// encodeLease is etcd's message of a lease: 1 id · 2 granted time to live in seconds.
func encodeLease(id, ttl int64) []byte {
	b := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(id))          //nolint:gosec // protobuf's int64
	return protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), uint64(max(ttl, 1))) //nolint:gosec // protobuf's int64
}

// seal puts a checksum behind the pages.
func (b *builder) seal() error {
	f, err := os.OpenFile(filepath.Clean(b.out.Path), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	h := sha256.New()
	_, err = io.Copy(h, f)
	if err == nil {
		_, err = f.Write(h.Sum(nil))
	}
	return errors.Join(err, f.Close())
}
