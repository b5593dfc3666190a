package backup

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/pipeline"
)

// hashed is the outcome of a hash.
type hashed struct {
	dbfile.KVHash
	err error
}

// hashOf hashes in a goroutine of its own. The channel gives the outcome once, then
// nothing more.
func hashOf(ctx context.Context, src *dbfile.Source) <-chan hashed {
	out := make(chan hashed, 1)
	go func() {
		defer close(out)
		var h hashed
		h.err = pipeline.Guard(func() (err error) {
			h.KVHash, err = src.HashKV(ctx, 0)
			return err
		})
		out <- h
	}()
	return out
}

// hash is level 4: etcd's own hash, and whatever there is to compare with.
func (v *verification) hash(ctx context.Context) error {
	var h hashed
	if v.hashing != nil {
		h = <-v.hashing
	}
	switch err := h.err; {
	case v.hashing == nil: // only the cluster is to be compared with
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil && v.unreachable():
		v.skip(LevelHash, "no record can be reached behind the damage")
	case errors.Is(err, keyspace.ErrCorrupt), err != nil && v.r.Damage > 0: // of a damaged file, any
		if v.r.Damage == 0 {
			v.say(LevelHash, "%v", err)
		}
		v.skip(LevelHash, "the records cannot all be read")
	case err != nil:
		return fmt.Errorf("verify the hash: %w", err)
	default:
		v.r.HashKV = &h.Hash
		if m := v.o.Manifest; m != nil && m.HashKV != nil && m.Revision == h.Rev && *m.HashKV != h.Hash {
			v.say(LevelHash, "its hash at revision %d is %08x, the manifest says %08x", h.Rev, h.Hash, *m.HashKV)
		}
	}
	return v.against(ctx)
}

// hash compares what the etcd says of itself: revision and hash, at the same compact
// revision.
func (r *rehearsal) hash(ctx context.Context) error {
	st, err := r.client.Status(ctx, r.client.Endpoints()[0])
	if err != nil {
		return err
	}
	if st.Header.Revision != r.info.Revision {
		r.say(nil, "the restored etcd is at revision %d, the file at %d", st.Header.Revision, r.info.Revision)
		return nil
	}
	ours, err := r.src.HashKV(ctx, r.info.Revision)
	if err != nil {
		return err
	}
	theirs, err := r.client.HashKV(ctx, r.client.Endpoints()[0], r.info.Revision)
	if err != nil {
		return err
	}
	r.HashKV = &theirs.Hash
	switch {
	case theirs.CompactRevision != ours.CompactRev:
		r.say(nil, "the restored etcd is compacted at revision %d, the file at %d", theirs.CompactRevision, ours.CompactRev)
	case theirs.Hash != ours.Hash:
		r.say(nil, "the hash of the restored etcd is %08x, that of the file %08x", theirs.Hash, ours.Hash)
	}
	return nil
}
