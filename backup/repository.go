package backup

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/etcdctl-plus/etcdctl-plus/backup/place"
	"github.com/etcdctl-plus/etcdctl-plus/backup/retention"
	"github.com/etcdctl-plus/etcdctl-plus/backup/store"
)

// The names in a repository, below whatever the store is:
//
//	snapshots/CLUSTER/NAME        a backup as it was saved, packed or not
//	manifests/CLUSTER/NAME.json   its manifest: without one a backup does not count
//	unfinished/CLUSTER/NAME       a run is about to store or to remove it
//	segments/CLUSTER/NAME         a stretch of the revision stream; see package segment
//	locks/                        who writes at the moment
//
// What lies below unfinished/ is there before a snapshot comes or goes, and goes after its
// manifest has come or gone: so what a run left that was killed is told from a backup
// whose manifest was lost.
//
// CLUSTER is the cluster's id in hex, and NAME is SEQUENCE-rREVISION-TIME.db, with the
// revision that is in the file, and .zst and .age behind it for what was done to it.
// A segment's name is FIRST-LAST-TIME.seg, with its revisions and when it was sealed.
const (
	snapshotsDir  = "snapshots/"
	manifestsDir  = "manifests/"
	unfinishedDir = "unfinished/"
	segmentsDir   = "segments/"
	lockName      = "locks/repository"
)

// nameForm are the names that a repository gives.
var nameForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^\d{6,}-r\d+-\d{8}T\d{6}Z\.db(\.zst)?(\.age)?$`)
})

// Entry is one backup of a repository.
type Entry struct {
	Cluster  string    `json:"cluster"`
	Name     string    `json:"name"`
	Manifest *Manifest `json:"manifest,omitempty"` // nil: it cannot be read
	Bytes    int64     `json:"bytes"`              // as stored; -1: it is not there
	// Problem is what is wrong at first sight; "": nothing.
	Problem string `json:"problem,omitempty"`
}

// ID names the entry in its repository: CLUSTER/NAME.
func (e *Entry) ID() string { return e.Cluster + "/" + e.Name }

// Is tells whether a reference, other than to the latest, fits the entry: a name,
// CLUSTER/NAME or a sequence, also behind a cluster.
func (e *Entry) Is(ref string) bool {
	cluster, name, qualified := strings.Cut(ref, "/")
	if !qualified {
		cluster, name = e.Cluster, ref
	}
	return cluster == e.Cluster && (name == e.Name || name == fmt.Sprint(e.sequence()))
}

func (e *Entry) object() string       { return snapshotsDir + e.ID() }
func (e *Entry) manifestName() string { return manifestsDir + e.ID() + ".json" }
func (e *Entry) mark() string         { return unfinishedDir + e.ID() }

// Listing is all that lies in a repository.
type Listing struct {
	// Entries are ordered by cluster and sequence, oldest first.
	Entries []Entry
	// Unfinished are snapshots without a manifest that a run left which was killed, or
	// which a run is about to finish. The next run removes them.
	Unfinished []string
	// Orphans are snapshots whose manifest is lost: no run left them so. They may be sound,
	// do not count, and stay; Rebuild makes a new manifest.
	Orphans []Entry
	// Foreign is what no run of this program wrote, with what it is where that is no file:
	// "x (a symbolic link)". It is never touched, and never followed.
	Foreign []string
	// Segments are ordered by cluster and first revision.
	Segments []Segment

	marks []Entry // of all that is below unfinished/
}

// Repository is a store of backups. Its methods may not be called by several goroutines
// at once, and several processes may work on one store.
type Repository struct {
	Store store.Store
}

// List reads every manifest, and looks whether what it describes is there.
func (r *Repository) List(ctx context.Context) (*Listing, error) {
	objects, manifests, marks := map[string]store.Object{}, map[string]store.Object{}, map[string]bool{}
	l := &Listing{}
	for o, err := range r.Store.List(ctx, "") {
		if err != nil {
			return nil, fmt.Errorf("list backups: %w", err)
		}
		switch {
		case strings.HasPrefix(o.Name, "locks/"):
		case ours(o.Name, snapshotsDir, ""):
			objects[strings.TrimPrefix(o.Name, snapshotsDir)] = o
		case ours(o.Name, unfinishedDir, ""):
			marks[strings.TrimPrefix(o.Name, unfinishedDir)] = true
		case ours(o.Name, manifestsDir, ".json"):
			manifests[strings.TrimSuffix(strings.TrimPrefix(o.Name, manifestsDir), ".json")] = o
		default:
			if s, ok := segmentOf(o); ok {
				l.Segments = append(l.Segments, s)
			} else {
				l.Foreign = append(l.Foreign, o.Name)
			}
		}
	}
	slices.SortFunc(l.Segments, bySpan)
	if f, ok := r.Store.(store.Strangers); ok {
		for name, err := range f.Strangers(ctx) {
			if err != nil {
				return nil, fmt.Errorf("list backups: %w", err)
			}
			if !ownFolder(name) {
				l.Foreign = append(l.Foreign, name)
			}
		}
		slices.Sort(l.Foreign)
	}
	for id := range manifests {
		e := entryOf(id, -1)
		cluster, name := e.Cluster, e.Name
		m, err := r.manifest(ctx, &e)
		switch {
		case errors.Is(err, ErrManifest):
			e.Problem = err.Error()
		case err != nil:
			return nil, err
		default:
			e.Manifest = m
		}
		o, there := objects[id]
		if there {
			e.Bytes = o.Bytes
		}
		switch {
		case !there:
			e.Problem = "the backup that the manifest describes is not there"
		case m != nil && (o.Bytes != m.Bytes || m.File != name || m.ClusterID != cluster):
			e.Problem = fmt.Sprintf("it has %d bytes, its manifest is of %s with %d", o.Bytes, m.File, m.Bytes)
		}
		l.Entries = append(l.Entries, e)
		delete(objects, id)
	}
	for id, o := range objects {
		if marks[id] {
			l.Unfinished = append(l.Unfinished, snapshotsDir+id)
		} else {
			l.Orphans = append(l.Orphans, entryOf(id, o.Bytes))
		}
	}
	for id := range marks {
		l.marks = append(l.marks, entryOf(id, -1))
	}
	slices.Sort(l.Unfinished)
	slices.SortFunc(l.Entries, byAge)
	slices.SortFunc(l.marks, byAge)
	slices.SortFunc(l.Orphans, byAge)
	return l, nil
}

// byAge orders by cluster and sequence.
func byAge(a, b Entry) int {
	return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.sequence(), b.sequence()), cmp.Compare(a.Name, b.Name))
}

// Clusters returns the ids of the clusters that have a backup, in order.
func (l *Listing) Clusters() []string {
	var all []string
	for i := range l.Entries {
		all = append(all, l.Entries[i].Cluster)
	}
	return slices.Compact(all) // entries are ordered by cluster
}

func entryOf(id string, bytes int64) Entry {
	cluster, name, _ := strings.Cut(id, "/")
	return Entry{Cluster: cluster, Name: name, Bytes: bytes}
}

// given returns the highest sequence that a name of a cluster has had, whatever became of
// it: a name is given once.
func (l *Listing) given(cluster string) (n int64) {
	for _, all := range [][]Entry{l.Entries, l.Orphans, l.marks} {
		for i := range all {
			if e := &all[i]; e.Cluster == cluster {
				n = max(n, e.sequence())
			}
		}
	}
	return n
}

// ownFolder tells whether an empty folder is one that a repository makes.
func ownFolder(stranger string) bool {
	name, ok := strings.CutSuffix(stranger, "/ (an empty folder)")
	top, cluster, _ := strings.Cut(name, "/")
	switch top + "/" {
	case snapshotsDir, manifestsDir, unfinishedDir, segmentsDir:
		return ok && (cluster == "" || isHex(cluster))
	case "locks/":
		return ok && cluster == ""
	}
	return false
}

// ours tells whether a run of this program gave the name.
func ours(name, dir, end string) bool {
	rest, ok := strings.CutPrefix(name, dir)
	if !ok {
		return false
	}
	rest, ok = strings.CutSuffix(rest, end)
	cluster, base, deeper := strings.Cut(rest, "/")
	return ok && deeper && isHex(cluster) && nameForm().MatchString(base)
}

func isHex(s string) bool {
	return s != "" && len(s) <= 16 && strings.Trim(s, "0123456789abcdef") == ""
}

// sequence is the number of a backup; its name has it where the manifest is lost.
func (e *Entry) sequence() int64 {
	if e.Manifest != nil && e.Manifest.Sequence > 0 {
		return e.Manifest.Sequence
	}
	var n int64
	_, _ = fmt.Sscanf(e.Name, "%d-", &n) // 0 for none
	return n
}

func (r *Repository) manifest(ctx context.Context, e *Entry) (*Manifest, error) {
	b, err := r.read(ctx, e.manifestName(), maxManifest+1)
	if err != nil {
		return nil, fmt.Errorf("read the manifest of %s: %w", e.ID(), err)
	}
	return ParseManifest(b)
}

func (r *Repository) read(ctx context.Context, name string, most int64) ([]byte, error) {
	rc, err := r.Store.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	defer rc.Close()
	return io.ReadAll(io.LimitReader(rc, most))
}

// Find returns the one backup that ref names: "latest", a name, CLUSTER/NAME, a sequence,
// or "latest" of a cluster as CLUSTER/latest. Of several clusters the cluster must be
// named. The latest is the last one that was taken, damaged or not: who wants an older one
// instead says so.
func (l *Listing) Find(ref string) (*Entry, error) {
	return find(l.Entries, ref)
}

// FindOrphan is Find among the snapshots without a manifest; latest is none of them.
func (l *Listing) FindOrphan(ref string) (*Entry, error) {
	if ref == "latest" || strings.HasSuffix(ref, "/latest") {
		return nil, fmt.Errorf("no backup %q without a manifest: %w", ref, store.ErrNotExist)
	}
	return find(l.Orphans, ref)
}

func find(entries []Entry, ref string) (*Entry, error) {
	cluster, name, qualified := strings.Cut(ref, "/")
	if !qualified {
		cluster, name = "", ref
	}
	var found []*Entry
	clusters := map[string]bool{}
	for i := range entries {
		e := &entries[i]
		if qualified && e.Cluster != cluster {
			continue
		}
		latest := name == "latest"
		if latest || e.Is(ref) {
			if latest && clusters[e.Cluster] { // entries come oldest first
				found[len(found)-1] = e
				continue
			}
			clusters[e.Cluster] = true
			found = append(found, e)
		}
	}
	switch {
	case len(found) == 0:
		return nil, fmt.Errorf("no backup %q in the repository: %w", ref, store.ErrNotExist)
	case len(found) > 1:
		var ids []string
		for _, e := range found {
			ids = append(ids, e.ID())
		}
		return nil, &AmbiguousError{Ref: ref, IDs: ids}
	}
	return found[0], nil
}

// AmbiguousError says that a reference fits several backups.
type AmbiguousError struct {
	Ref string
	IDs []string
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("%q is any of %s", e.Ref, strings.Join(e.IDs, ", "))
}

// Fetch writes a backup into w and compares it with its manifest.
func (r *Repository) Fetch(ctx context.Context, e *Entry, w io.Writer) error {
	if e.Manifest == nil || e.Problem != "" {
		return &StoredError{ID: e.ID(), Reason: e.Problem}
	}
	rc, err := r.Store.Get(ctx, e.object())
	if errors.Is(err, store.ErrNotExist) {
		return &StoredError{ID: e.ID(), Reason: "it is not there"}
	}
	if err != nil {
		return fmt.Errorf("read backup %s: %w", e.ID(), err)
	}
	defer rc.Close()
	h := sha256.New()
	n, err := io.CopyBuffer(struct{ io.Writer }{io.MultiWriter(w, h)}, struct{ io.Reader }{ctxReader{ctx, rc}}, make([]byte, 1<<20))
	if err != nil {
		return fmt.Errorf("read backup %s: %w", e.ID(), err)
	}
	if sum := hex.EncodeToString(h.Sum(nil)); n != e.Manifest.Bytes || sum != e.Manifest.SHA256 {
		return &StoredError{ID: e.ID(), Reason: fmt.Sprintf("it has %d bytes with SHA-256 %s, its manifest says %d and %s", n, sum, e.Manifest.Bytes, e.Manifest.SHA256)}
	}
	return nil
}

// FetchDamaged writes a backup as it is stored into a new file, whatever is wrong with
// it.
func (r *Repository) FetchDamaged(ctx context.Context, e *Entry, path string) error {
	t, err := newTarget(path, false)
	if err != nil {
		return err
	}
	defer t.abandon()
	if err := r.fetchRaw(ctx, e, t.f); err != nil {
		return err
	}
	return t.commit()
}

// fetchRaw writes a backup into w as it is stored.
func (r *Repository) fetchRaw(ctx context.Context, e *Entry, w io.Writer) error {
	rc, err := r.Store.Get(ctx, e.object())
	if err != nil {
		return fmt.Errorf("read backup %s: %w", e.ID(), err)
	}
	defer rc.Close()
	if _, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{ctxReader{ctx, rc}}, make([]byte, 1<<20)); err != nil {
		return fmt.Errorf("read backup %s: %w", e.ID(), err)
	}
	return nil
}

// FetchFile is Fetch into a new private file, which the caller removes.
func (r *Repository) FetchFile(ctx context.Context, e *Entry, parent string) (_ string, err error) {
	dir, err := place.PrivateDir(parent)
	if err != nil {
		return "", fmt.Errorf("fetch backup %s: %w", e.ID(), err)
	}
	f, err := os.CreateTemp(dir, "fetched-*-"+path.Base(e.Name))
	if err != nil {
		return "", fmt.Errorf("fetch backup %s: %w", e.ID(), err)
	}
	if err := errors.Join(r.Fetch(ctx, e, f), f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// StoredError says what is wrong with a backup in a repository. It wraps
// keyspace.ErrCorrupt by way of DamagedError.
type StoredError struct {
	ID     string
	Reason string
}

func (e *StoredError) Error() string { return fmt.Sprintf("backup %s: %s", e.ID, e.Reason) }

// Unwrap makes errors.Is(err, keyspace.ErrCorrupt) true.
func (e *StoredError) Unwrap() error { return errStored }

// Lock takes the lock of the repository, for as long as the returned context lasts.
func (r *Repository) Lock(ctx context.Context) (*store.Lock, error) {
	l, err := r.Store.Lock(ctx, lockName, store.LockOptions{})
	if err != nil {
		return nil, fmt.Errorf("lock the repository: %w", err)
	}
	return l, nil
}

// put stores a small object.
func (r *Repository) put(ctx context.Context, name string, b []byte) error {
	return r.Store.Put(ctx, name, bytes.NewReader(b), int64(len(b)), sha256.Sum256(b), store.PutOptions{})
}

// items are the entries as retention sees them.
func (l *Listing) items(damaged map[string]bool) []retention.Item {
	var items []retention.Item
	for i := range l.Entries {
		e := &l.Entries[i]
		it := retention.Item{ID: e.ID(), Cluster: e.Cluster, Sequence: e.sequence(), Damaged: e.Problem != "" || damaged[e.ID()]}
		if m := e.Manifest; m != nil {
			it.Revision, it.Time, it.Verified = m.Revision, m.Started, m.Verified >= LevelRecords
		} else {
			it.Foreign = true // nobody can say what it is
		}
		items = append(items, it)
	}
	return items
}

// Pruned is what Prune did, or would do.
type Pruned struct {
	Decisions []PruneDecision `json:"decisions"`
	Kept      int             `json:"kept"`
	Removed   int             `json:"removed"`
	// Damaged are backups that were found damaged while looking for one to rely on.
	Damaged []string `json:"damaged,omitempty"`
	// Segments are those that no kept backup needs.
	Segments []string `json:"segments,omitempty"`
}

// PruneDecision is what becomes of one backup, and why.
type PruneDecision struct {
	ID      string   `json:"id"`
	Keep    bool     `json:"keep"`
	Reasons []string `json:"reasons"`
}

// Prune removes the backups that a policy does not keep, under the repository's lock,
// which the caller holds: their manifests first, so that half a removal leaves nothing
// that counts. Before it removes anything of a cluster it reads the newest backup that
// stays in full, and goes on to an older one when that is damaged. With dryRun it removes
// nothing.
//
// It never touches what no run of this program wrote.
func (r *Repository) Prune(ctx context.Context, p retention.Policy, o RunOptions, dryRun bool) (*Pruned, error) {
	l, err := r.List(ctx)
	if err != nil {
		return nil, err
	}
	damaged := map[string]bool{}
	out := &Pruned{}
	sound := map[string]bool{} // clusters with a backup that was read just now
	var decisions []retention.Decision
	for {
		if decisions, err = retention.Apply(p, o.Now(), l.items(damaged)); err != nil {
			return nil, err
		}
		next := r.doubtful(l, decisions, sound, damaged)
		if next == nil {
			break
		}
		err := r.Fetch(ctx, next, io.Discard)
		var stored *StoredError
		switch {
		case errors.As(err, &stored):
			damaged[next.ID()] = true
			out.Damaged = append(out.Damaged, stored.Error())
		case err != nil:
			return nil, err
		default:
			sound[next.Cluster] = true
		}
	}
	for _, d := range decisions {
		out.Decisions = append(out.Decisions, PruneDecision{ID: d.Item.ID, Keep: d.Keep, Reasons: d.Reasons})
		if d.Keep {
			out.Kept++
			continue
		}
		out.Removed++
		if dryRun {
			continue
		}
		if err := r.remove(ctx, l, d.Item.ID); err != nil {
			return out, err
		}
	}
	return out, r.pruneSegments(ctx, l, out, dryRun)
}

// pruneSegments removes the segments that no kept backup needs.
func (r *Repository) pruneSegments(ctx context.Context, l *Listing, out *Pruned, dryRun bool) error {
	removed := map[string]bool{}
	for _, d := range out.Decisions {
		removed[d.ID] = !d.Keep
	}
	for _, s := range l.spare(removed) {
		if !dryRun {
			if err := r.Store.Delete(ctx, s.object()); err != nil && !errors.Is(err, store.ErrNotExist) {
				return fmt.Errorf("remove segment %s: %w", s.ID(), err)
			}
		}
		out.Segments = append(out.Segments, s.ID())
	}
	return nil
}

// doubtful returns the newest backup that is to stay of a cluster that would lose others,
// and has not been read yet; nil: there is none.
func (r *Repository) doubtful(l *Listing, decisions []retention.Decision, sound, damaged map[string]bool) *Entry {
	loses := map[string]bool{}
	for _, d := range decisions {
		if !d.Keep {
			loses[d.Item.Cluster] = true
		}
	}
	keeps := map[string]bool{}
	for _, d := range decisions {
		keeps[d.Item.ID] = d.Keep
	}
	for i := len(l.Entries) - 1; i >= 0; i-- {
		e := &l.Entries[i]
		if loses[e.Cluster] && keeps[e.ID()] && !sound[e.Cluster] && !damaged[e.ID()] && e.Problem == "" {
			return e
		}
	}
	return nil
}

func (r *Repository) remove(ctx context.Context, l *Listing, id string) error {
	i := slices.IndexFunc(l.Entries, func(e Entry) bool { return e.ID() == id })
	e := &l.Entries[i]
	return r.discard(ctx, e)
}

// discard removes a backup, with or without a manifest, so that a run that is killed
// meanwhile leaves what the next one removes.
func (r *Repository) discard(ctx context.Context, e *Entry) error {
	if err := r.setMark(ctx, e); err != nil {
		return fmt.Errorf("remove backup %s: %w", e.ID(), err)
	}
	for _, name := range []string{e.manifestName(), e.object(), e.mark()} {
		if err := r.Store.Delete(ctx, name); err != nil && !errors.Is(err, store.ErrNotExist) {
			return fmt.Errorf("remove backup %s: %w", e.ID(), err)
		}
	}
	return nil
}

// marked is what stands in a mark; its name is what counts.
const marked = "A run is about to store this backup or to remove it, or was killed. The next run tidies up.\n"

func (r *Repository) setMark(ctx context.Context, e *Entry) error {
	return r.Store.Put(ctx, e.mark(), strings.NewReader(marked), int64(len(marked)), sha256.Sum256([]byte(marked)), store.PutOptions{Replace: true})
}

// unmark takes a mark away that has done its work.
func (r *Repository) unmark(ctx context.Context, e *Entry) error {
	if err := r.Store.Delete(ctx, e.mark()); err != nil && !errors.Is(err, store.ErrNotExist) {
		return fmt.Errorf("finish backup %s: %w", e.ID(), err)
	}
	return nil
}

// tidy removes what runs left that were killed, as l has it, and returns the names of
// snapshots that went. The caller holds the lock, which says that nobody is about to finish
// them. A backup that has its manifest stays.
func (r *Repository) tidy(ctx context.Context, l *Listing) (gone []string, err error) {
	whole := map[string]bool{}
	for i := range l.Entries {
		whole[l.Entries[i].ID()] = true
	}
	for i := range l.marks {
		e := &l.marks[i]
		if !whole[e.ID()] {
			switch err := r.Store.Delete(ctx, e.object()); {
			case err == nil:
				gone = append(gone, e.object())
			case !errors.Is(err, store.ErrNotExist):
				return gone, fmt.Errorf("remove what a run left that was killed: %w", err)
			}
		}
		if err := r.unmark(ctx, e); err != nil {
			return gone, err
		}
	}
	return gone, nil
}

// RemoveOrphans removes the snapshots whose manifest is lost, under the repository's lock,
// which the caller holds. With dryRun it removes nothing.
func (r *Repository) RemoveOrphans(ctx context.Context, dryRun bool) ([]PruneDecision, error) {
	l, err := r.List(ctx)
	if err != nil {
		return nil, err
	}
	var gone []PruneDecision
	for i := range l.Orphans {
		e := &l.Orphans[i]
		if !dryRun {
			if err := r.discard(ctx, e); err != nil {
				return gone, err
			}
		}
		gone = append(gone, PruneDecision{ID: e.ID(), Reasons: []string{"it has no manifest"}})
	}
	return gone, nil
}
