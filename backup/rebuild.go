package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"sync"
	"time"

	"github.com/etcdctl-plus/etcdctl-plus/backup/place"
	"github.com/etcdctl-plus/etcdctl-plus/backup/store"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
)

// nameParts are what the name of a backup says of it.
var nameParts = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^\d+-r(\d+)-(\d{8}T\d{6}Z)\.db`)
})

// Rebuild makes a new manifest for a backup whose own is lost or damaged, of what its file
// and its name say, under the repository's lock, which the caller holds. The backup is
// fetched into dir and verified to LevelHash first: only one whose own checksum vouches
// for it and that has no finding gets a manifest; else the error is a *StoredError with the
// findings. Member, endpoint and versions are not known any more.
//
// An encrypted backup has to be opened for that: o has the identity.
func (r *Repository) Rebuild(ctx context.Context, e *Entry, dir string, o VerifyOptions) (_ *Manifest, err error) {
	file, sum, err := r.fetchAny(ctx, e, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.Remove(file)) }()
	var found []Finding
	o.Level, o.SkipChecksum, o.Manifest = LevelHash, false, nil
	o.Report = func(f Finding) {
		if !f.Warning {
			found = append(found, f)
		}
	}
	v, err := Verify(ctx, file, o)
	switch {
	case err != nil:
		return nil, err
	case len(found) > 0:
		return nil, &StoredError{ID: e.ID(), Reason: fmt.Sprintf("damaged, and gets no manifest: %s", found[0])}
	case v.Verdict != Healthy:
		return nil, fmt.Errorf("backup %s: %w", e.ID(), ErrNotOpened)
	}
	parts := nameParts().FindStringSubmatch(e.Name)
	if parts == nil {
		return nil, fmt.Errorf("backup %s: no run of this program gave that name", e.ID())
	}
	if parts[1] != fmt.Sprint(v.Revision) {
		return nil, &StoredError{ID: e.ID(), Reason: fmt.Sprintf("it is at revision %d, which is not what it is named for", v.Revision)}
	}
	started, err := time.Parse("20060102T150405Z", parts[2])
	if err != nil {
		return nil, fmt.Errorf("backup %s: its name has no time: %w", e.ID(), err)
	}
	m := &Manifest{
		File: e.Name, Bytes: v.Bytes, SHA256: sum, Packing: v.Packing, Revision: v.Revision, CompactRev: max(v.CompactRev, v.CompactScheduled),
		RaftIndex: v.RaftIndex, RaftTerm: v.RaftTerm, HashKV: v.HashKV, Keys: v.Keys, Records: v.Records, Leases: v.Leases,
		Encryption: v.Encryption, ClusterID: e.Cluster, Verified: LevelHash, Started: started, Finished: started,
		Sequence: e.sequence(), Rebuilt: true,
	}
	if m.DatabaseSHA256, m.DatabaseBytes, err = trailer(ctx, file, o.File); err != nil {
		return nil, err
	}
	b, err := m.Encode()
	if err != nil {
		return nil, err
	}
	if err := r.Store.Put(ctx, e.manifestName(), bytes.NewReader(b), int64(len(b)), sha256.Sum256(b), store.PutOptions{Replace: true}); err != nil {
		return nil, fmt.Errorf("store the manifest of %s: %w", e.ID(), err)
	}
	return m, nil
}

// ErrNotOpened says that nothing vouches for a backup: it is encrypted and was not opened.
var ErrNotOpened = errors.New("it was not opened: it is encrypted, and only what is inside vouches for it")

// fetchAny is FetchFile without a manifest to compare with. It returns the SHA-256 of what
// came, in hex.
func (r *Repository) fetchAny(ctx context.Context, e *Entry, parent string) (file, sum string, err error) {
	dir, err := place.PrivateDir(parent)
	if err != nil {
		return "", "", fmt.Errorf("fetch backup %s: %w", e.ID(), err)
	}
	f, err := os.CreateTemp(dir, "fetched-*-"+path.Base(e.Name))
	if err != nil {
		return "", "", fmt.Errorf("fetch backup %s: %w", e.ID(), err)
	}
	h := sha256.New()
	if err := errors.Join(r.fetchRaw(ctx, e, io.MultiWriter(f, h)), f.Close()); err != nil {
		return "", "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), hex.EncodeToString(h.Sum(nil)), nil
}

// trailer returns the checksum behind the pages, hex, and the size of the pages of a
// snapshot, which is unpacked for that.
func trailer(ctx context.Context, file string, o dbfile.Options) (sum string, pages int64, err error) {
	plain := file + ".plain"
	if err := Unpack(ctx, file, plain, o); err != nil {
		return "", 0, err
	}
	defer func() { err = errors.Join(err, os.Remove(plain)) }()
	f, err := os.Open(plain)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", 0, err
	}
	pages = st.Size() - sha256.Size
	b := make([]byte, sha256.Size)
	if _, err := f.ReadAt(b, pages); err != nil {
		return "", 0, fmt.Errorf("read %s: %w", plain, err)
	}
	return hex.EncodeToString(b), pages, nil
}
