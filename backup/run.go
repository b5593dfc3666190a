package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/backup/place"
	"github.com/etcdctl-plus/etcdctl-plus/backup/retention"
	"github.com/etcdctl-plus/etcdctl-plus/backup/segment"
	"github.com/etcdctl-plus/etcdctl-plus/backup/store"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// errStored makes a StoredError damage.
var errStored = fmt.Errorf("stored: %w", keyspace.ErrCorrupt)

// RunOptions of Run.
type RunOptions struct {
	Save SaveOptions
	// Dir is where the snapshot lies until it is stored; empty: the system's folder for
	// temporary files.
	Dir string
	// ReadBack reads the stored backup in full and compares; else its size, and the
	// checksum where the store has one.
	ReadBack bool
	// Policy is what is kept afterwards; the zero value keeps everything.
	Policy retention.Policy
	Now    func() time.Time
	// Upload is told how many bytes of how many have been stored.
	Upload func(done, total int64)
}

// Run is what one run did.
type Run struct {
	ID       string    `json:"id"`
	Manifest *Manifest `json:"manifest"`
	// Checked tells how what arrived was compared: "size", "checksum" (of the store) or
	// "read back".
	Checked string `json:"checked"`
	// Cleaned are leftovers of runs that were killed.
	Cleaned []string `json:"cleaned,omitempty"`
	Pruned  *Pruned  `json:"pruned,omitempty"`
	Seconds float64  `json:"seconds"`
}

// Run takes one backup into the repository: save, verify, store, compare what arrived,
// write the manifest, then apply the policy. One run works on a repository at a time;
// another one gets store.ErrLocked.
//
// Whatever ends it, the repository stays valid: until its manifest is there a backup does
// not count, and the next run removes what was left. A backup whose manifest was lost is
// not taken for that: it stays. Nothing is removed by the policy
// before the new backup is complete. When only that fails, the run is returned with
// the error.
func (r *Repository) Run(ctx context.Context, client *clientv3.Client, o RunOptions) (_ *Run, err error) {
	start := o.Now()
	lock, err := r.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	ctx = lock.Context()
	file, err := r.spool(o.Dir)
	if err != nil {
		return nil, err
	}
	before, err := r.List(ctx)
	if err != nil {
		return nil, err
	}
	o.Save.NoManifest, o.Save.Force = true, true // what is there is of a run that was killed
	m, err := Save(ctx, client, file, o.Save)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.Remove(file)) }()
	m.Sequence = before.given(m.ClusterID) + 1
	e := &Entry{Cluster: m.ClusterID, Name: nameOf(m), Manifest: m}
	m.File = e.Name
	out := &Run{ID: e.ID(), Manifest: m}
	if err := r.setMark(ctx, e); err != nil {
		return nil, fmt.Errorf("store backup %s: %w", e.ID(), err)
	}
	if err := r.upload(ctx, e, file, o); err != nil {
		return nil, err
	}
	if out.Checked, err = r.arrived(ctx, e, o.ReadBack); err != nil {
		return nil, err
	}
	b, err := m.Encode()
	if err != nil {
		return nil, err
	}
	if err := r.put(ctx, e.manifestName(), b); err != nil {
		return nil, fmt.Errorf("store the manifest of %s: %w", e.ID(), err)
	}
	out.Seconds = o.Now().Sub(start).Seconds()
	if err := r.unmark(ctx, e); err != nil {
		return out, err
	}
	if out.Cleaned, err = r.tidy(ctx, before); err != nil {
		return out, err
	}
	if o.Policy != (retention.Policy{}) {
		if out.Pruned, err = r.Prune(ctx, o.Policy, o, false); err != nil {
			return out, fmt.Errorf("the backup is complete, and old ones were not removed: %w", err)
		}
	}
	return out, nil
}

// spool is where the snapshot lies until it is stored. Runs for the same store have the
// same place, so that what a killed one left is replaced.
func (r *Repository) spool(parent string) (string, error) {
	dir, err := place.PrivateDir(parent)
	if err != nil {
		return "", fmt.Errorf("take a backup: %w", err)
	}
	sum := sha256.Sum256([]byte(r.Store.String()))
	return filepath.Join(dir, "backup-"+hex.EncodeToString(sum[:8])+".db"), nil
}

func nameOf(m *Manifest) string {
	name := fmt.Sprintf("%06d-r%d-%s.db", m.Sequence, m.Revision, m.Started.UTC().Format("20060102T150405Z"))
	for _, p := range m.Packing {
		switch p {
		case "zstd":
			name += ".zst"
		case "age":
			name += ".age"
		}
	}
	return name
}

func (r *Repository) upload(ctx context.Context, e *Entry, file string, o RunOptions) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("store backup %s: %w", e.ID(), err)
	}
	defer f.Close()
	sum, err := sumOf(e.Manifest)
	if err != nil {
		return err
	}
	po := store.PutOptions{}
	if o.Upload != nil {
		po.Progress = func(sent int64) { o.Upload(sent, e.Manifest.Bytes) }
	}
	if err := r.Store.Put(ctx, e.object(), f, e.Manifest.Bytes, sum, po); err != nil {
		return fmt.Errorf("store backup %s: %w", e.ID(), err)
	}
	return nil
}

func sumOf(m *Manifest) (sum [32]byte, err error) {
	b, err := hex.DecodeString(m.SHA256)
	if err != nil || len(b) != len(sum) {
		return sum, fmt.Errorf("%w: its SHA-256 is %q", ErrManifest, m.SHA256)
	}
	return [32]byte(b), nil
}

// arrived compares what the store has with what was sent.
func (r *Repository) arrived(ctx context.Context, e *Entry, readBack bool) (how string, err error) {
	if readBack {
		return "read back", r.Fetch(ctx, e, io.Discard)
	}
	st, err := r.Store.Stat(ctx, e.object())
	if err != nil {
		return "", fmt.Errorf("look at backup %s: %w", e.ID(), err)
	}
	if st.Bytes != e.Manifest.Bytes {
		return "", &StoredError{ID: e.ID(), Reason: fmt.Sprintf("%d bytes arrived of %d", st.Bytes, e.Manifest.Bytes)}
	}
	if st.SHA256 == nil {
		return "size", nil
	}
	if got := hex.EncodeToString(st.SHA256); got != e.Manifest.SHA256 {
		return "", &StoredError{ID: e.ID(), Reason: fmt.Sprintf("the store computes SHA-256 %s, it was %s", got, e.Manifest.SHA256)}
	}
	return "checksum", nil
}

// Copied is what Copy did.
type Copied struct {
	Copied []string `json:"copied"`
	There  int      `json:"alreadyThere"`
	Failed []string `json:"failed,omitempty"`
}

// Copy copies the backups that dst does not have into it, each compared with its manifest
// on the way, manifests last. dir holds one backup at a time. A damaged one is left out and
// listed; the others are copied.
func (r *Repository) Copy(ctx context.Context, dst *Repository, dir string) (_ *Copied, err error) {
	lock, err := dst.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	ctx = lock.Context()
	from, err := r.List(ctx)
	if err != nil {
		return nil, err
	}
	to, err := dst.List(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := dst.tidy(ctx, to); err != nil {
		return nil, err
	}
	there, orphans := map[string]bool{}, map[string]bool{}
	for i := range to.Entries {
		there[to.Entries[i].ID()] = true
	}
	for i := range to.Orphans {
		orphans[to.Orphans[i].ID()] = true
	}
	c := &Copied{Copied: []string{}}
	for i := range from.Entries {
		e := &from.Entries[i]
		if there[e.ID()] {
			c.There++
			continue
		}
		err := r.copyOne(ctx, dst, e, dir, orphans[e.ID()])
		switch {
		case errors.Is(err, keyspace.ErrCorrupt), errors.Is(err, ErrManifest):
			c.Failed = append(c.Failed, err.Error())
		case err != nil:
			return c, err
		default:
			c.Copied = append(c.Copied, e.ID())
		}
	}
	return c, r.copySegments(ctx, dst, from, to, dir, c)
}

// copySegments copies the segments that dst does not have. One that can be read and is
// damaged is left out, and listed.
func (r *Repository) copySegments(ctx context.Context, dst *Repository, from, to *Listing, dir string, c *Copied) error {
	there := map[string]bool{}
	for i := range to.Segments {
		there[to.Segments[i].ID()] = true
	}
	for i := range from.Segments {
		s := &from.Segments[i]
		if there[s.ID()] {
			c.There++
			continue
		}
		if _, err := r.CheckSegment(ctx, s); errors.Is(err, keyspace.ErrCorrupt) {
			c.Failed = append(c.Failed, err.Error())
			continue
		} else if err != nil && !errors.Is(err, segment.ErrEncrypted) {
			return err
		}
		if err := r.copySegment(ctx, dst, s, dir); err != nil {
			return err
		}
		c.Copied = append(c.Copied, s.ID())
	}
	return nil
}

func (r *Repository) copySegment(ctx context.Context, dst *Repository, s *Segment, dir string) (err error) {
	private, err := place.PrivateDir(dir)
	if err != nil {
		return fmt.Errorf("copy segment %s: %w", s.ID(), err)
	}
	f, err := os.CreateTemp(private, "segment-*")
	if err != nil {
		return fmt.Errorf("copy segment %s: %w", s.ID(), err)
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	rc, err := r.Store.Get(ctx, s.object())
	if err != nil {
		return fmt.Errorf("copy segment %s: %w", s.ID(), err)
	}
	defer rc.Close()
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, h), ctxReader{ctx, rc})
	if err != nil {
		return fmt.Errorf("copy segment %s: %w", s.ID(), err)
	}
	return dst.Store.Put(ctx, s.object(), f, n, [sha256.Size]byte(h.Sum(nil)), store.PutOptions{})
}

// copyOne copies one backup. Where its snapshot is there already, without a manifest, that
// is compared, and gets the manifest.
func (r *Repository) copyOne(ctx context.Context, dst *Repository, e *Entry, dir string, orphan bool) (err error) {
	b, err := r.read(ctx, e.manifestName(), maxManifest+1)
	if err != nil {
		return err
	}
	if _, err := ParseManifest(b); err != nil {
		return err
	}
	if orphan {
		var stored *StoredError
		if err := dst.Fetch(ctx, e, io.Discard); errors.As(err, &stored) {
			return &StoredError{ID: e.ID(), Reason: fmt.Sprintf("in %s another one has its name and no manifest", dst.Store)}
		} else if err != nil {
			return err
		}
		return dst.put(ctx, e.manifestName(), b)
	}
	file, err := r.FetchFile(ctx, e, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(file)) }()
	if err := dst.setMark(ctx, e); err != nil {
		return err
	}
	if err := dst.upload(ctx, e, file, RunOptions{}); err != nil {
		return err
	}
	if _, err := dst.arrived(ctx, e, false); err != nil {
		return err
	}
	if err := dst.put(ctx, e.manifestName(), b); err != nil {
		return err
	}
	return dst.unmark(ctx, e)
}
