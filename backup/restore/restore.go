// Package restore makes an etcd data folder of a snapshot.
//
// Everything is looked at first: the file is verified down to its records, the
// cluster's settings and the places are checked, and the free space. Then the folder
// is built beside its place, or, when the place is an empty folder already, inside it,
// under a name of our own and readable by its owner alone. Every file and folder is
// synced, and one rename that never overwrites puts it into place. Whoever looks there
// sees nothing or all of it.
//
// A process that was killed leaves its folder behind. Its name and a lock that only
// a living process holds tell that it is ours and nobody's any more; the next restore
// removes it, file by file, as far as it holds nothing but what a restore writes.
//
// With a separate folder for the write-ahead log two things come into place, and etcd
// must start on neither alone: without its log it would make a new cluster of the data,
// without its data an empty cluster of the log. Therefore the folder of the log first
// gets a file that etcd takes for a log and cannot read (see guardName): with it alone
// etcd does not start. Then the data comes into its place, then the log, and at last
// the guard goes.
package restore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/config"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"

	"github.com/etcdctl-plus/etcdctl-plus/backup"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// LeasePolicy says what becomes of a key whose lease is not in the file. Left alone it
// would never expire.
type LeasePolicy string

// The policies.
const (
	// Grant makes the lease anew, with Options.LeaseTTL: whoever holds it can go on to
	// keep it alive, else the key goes when that time is over.
	Grant LeasePolicy = "grant"
	// Drop deletes the key, as the end of its lease would have.
	Drop LeasePolicy = "drop"
	// Keep leaves the key as it is, as etcdutl does.
	Keep LeasePolicy = "keep"
)

// Options of Prepare.
type Options struct {
	// File says how the snapshot is opened.
	File dbfile.Options
	// Name is the member's; it must be one of InitialCluster.
	Name string
	// DataDir and WALDir are where the member lives; WALDir empty: inside DataDir.
	DataDir, WALDir string
	// InitialCluster is etcd's: name=URL,… of all members.
	InitialCluster string
	PeerURLs       []string // of this member
	// Token tells one cluster from another. Empty: it is computed from the content of
	// the file, InitialCluster and what is changed on the way, so that the members of
	// one restore agree and no other cluster has it.
	Token string
	// SkipChecksum restores a file without looking at its checksum; a file without one
	// needs it.
	SkipChecksum bool
	// AcceptFindings restores a damaged file as far as it can be read.
	AcceptFindings bool
	// InitialMmapSize is how many bytes of address space to set aside for the database
	// while it is changed; 0: as many as needed.
	InitialMmapSize uint64
	// BumpRevision is how far to move the revision on, and MarkCompacted makes all before
	// that compacted. Each needs the other.
	BumpRevision  uint64
	MarkCompacted bool
	// Kubernetes moves the revision on by KubernetesBump unless BumpRevision says
	// otherwise, marks it compacted, and deletes the leases of API servers that are gone.
	Kubernetes    bool
	MissingLeases LeasePolicy   // "": Grant
	LeaseTTL      time.Duration // of granted leases; 0: DefaultLeaseTTL
	// Report is told every finding of the verification.
	Report func(backup.Finding)
}

// DefaultLeaseTTL is the time to live of a lease that is made anew.
const DefaultLeaseTTL = time.Hour

// KubernetesBump is how far a restore for Kubernetes moves the revision on. It has to
// be more than what the lost cluster has written since the snapshot, or a client that
// was ahead of the snapshot takes new writes for old ones: it is room for 1650 writes
// a second over seven days. It is one number for all, since the hosts of a restore
// must agree; revisions have 63 bits, enough for nine billion such restores.
const KubernetesBump = 1_000_000_000

// maxBump keeps revisions far from where 63 bits end.
const maxBump = math.MaxInt64 / 4

// masterLeases is where API servers note that they are alive. Those of before would
// stay behind the service "kubernetes" until they expire.
const masterLeases = "/registry/masterleases/"

// Member is a member of the restored cluster.
type Member struct {
	ID       string   `json:"id"` // hex
	Name     string   `json:"name"`
	PeerURLs []string `json:"peerUrls"`
	Self     bool     `json:"self,omitempty"` // the one that is restored here
}

// MissingLease is a lease that keys name and the file does not have.
type MissingLease struct {
	ID   string   `json:"id"` // hex
	Keys []string `json:"keys"`
}

// Plan is what a restore is going to do, or has done.
type Plan struct {
	Snapshot   string         `json:"snapshot"`
	Verified   *backup.Report `json:"verified"`
	DataDir    string         `json:"dataDir"`
	WALDir     string         `json:"walDir"`
	Revision   int64          `json:"snapshotRevision"`
	NewRev     int64          `json:"revision"` // after the restore
	CompactRev int64          `json:"compactRevision"`
	Bump       uint64         `json:"bumpRevision,omitempty"`
	Keys       int64          `json:"keys"` // in the file
	ClusterID  string         `json:"clusterId"`
	MemberID   string         `json:"memberId"`
	Token      string         `json:"initialClusterToken"`
	// TokenComputed tells that the token was not given.
	TokenComputed  bool           `json:"tokenComputed,omitempty"`
	InitialCluster string         `json:"initialCluster"`
	Members        []Member       `json:"members"`
	DroppedKeys    []string       `json:"droppedKeys,omitempty"`
	MissingLeases  []MissingLease `json:"missingLeases,omitempty"`
	LeasePolicy    LeasePolicy    `json:"missingLeasePolicy,omitempty"`
	LeaseTTL       int64          `json:"missingLeaseTtlSeconds,omitempty"`
	// Rebuilt tells that the database is made anew of what is sound in the file.
	Rebuilt     bool  `json:"rebuilt,omitempty"`
	AuthEnabled bool  `json:"authEnabled,omitempty"`
	Alarms      int   `json:"alarms,omitempty"`
	DBBytes     int64 `json:"dbBytes"`
	// Space is what the folders need, per file system.
	Space []Space `json:"space"`
	// Swept are folders that killed restores had left and that were removed.
	Swept []string `json:"swept,omitempty"`
	Done  bool     `json:"done"`
	// Seconds is how long everything took, from Prepare to the end of Run.
	Seconds float64 `json:"seconds"`

	o       Options
	src     *dbfile.Source
	cluster *membership.RaftCluster
	self    *membership.Member
	started time.Time
	drop    [][]byte
	grant   []int64
	leases  bool // some key's lease is not in the file
	sum     [sha256.Size]byte
	space   func(dir string) (free int64, ok bool)
}

// Space is room on a file system, in bytes.
type Space struct {
	Dir  string `json:"dir"`
	Need int64  `json:"needBytes"`
	Free int64  `json:"freeBytes"` // -1: not known
}

// SettingsError says that names, URLs or numbers do not fit together.
type SettingsError struct{ Err error }

func (e *SettingsError) Error() string { return e.Err.Error() }
func (e *SettingsError) Unwrap() error { return e.Err }

func settingsf(format string, a ...any) error {
	return &SettingsError{fmt.Errorf(format, a...)}
}

// FindingsError says that the snapshot is damaged. It wraps keyspace.ErrCorrupt.
type FindingsError struct {
	Report *backup.Report
	// Readable tells that Options.AcceptFindings would restore what is left.
	Readable bool
}

func (e *FindingsError) Error() string {
	return fmt.Sprintf("%s is damaged (%s); nothing was written", e.Report.File, findings(e.Report.Damage))
}

func findings(n int) string {
	if n == 1 {
		return "1 finding"
	}
	return fmt.Sprintf("%d findings", n)
}

// Unwrap makes errors.Is(err, keyspace.ErrCorrupt) true.
func (e *FindingsError) Unwrap() error { return keyspace.ErrCorrupt }

// ErrUnsealed is wrapped when a file without a checksum is to be restored.
var ErrUnsealed = errors.New("the file has no checksum, so nothing vouches for its values")

// Prepare verifies a snapshot and finds out everything that its restore would do. It
// writes nothing. The plan is closed by the caller.
//
// Errors are a *SettingsError, a *FindingsError, ErrUnsealed, an *OccupiedError for
// places that are taken, one that wraps keyspace.ErrLocked for places in use, syscall.ENOSPC
// for too little room, or those of dbfile.Open.
func Prepare(ctx context.Context, path string, o Options) (_ *Plan, err error) {
	o.MissingLeases = cmp.Or(o.MissingLeases, Grant)
	o.LeaseTTL = cmp.Or(o.LeaseTTL, DefaultLeaseTTL)
	p := &Plan{Snapshot: path, o: o, started: time.Now(), space: freeSpace}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	if err := p.settings(); err != nil {
		return nil, err
	}
	if err := p.places(ctx, false); err != nil {
		return nil, err
	}
	if err := p.verify(ctx); err != nil {
		return nil, err
	}
	p.Keys, p.DBBytes = p.Verified.Keys, p.src.SizeInPages()
	if !p.Rebuilt {
		if err := p.content(ctx, p.src); err != nil {
			return nil, err
		}
	}
	if err := p.hash(ctx); err != nil {
		return nil, err
	}
	if err := p.identity(); err != nil {
		return nil, err
	}
	if err := p.room(); err != nil {
		return nil, err
	}
	p.Seconds = time.Since(p.started).Seconds()
	return p, nil
}

// Close lets go of the snapshot.
func (p *Plan) Close() error {
	if p.src == nil {
		return nil
	}
	return p.src.Close()
}

// settings checks what can be checked without a file.
func (p *Plan) settings() error {
	o := &p.o
	if o.Kubernetes {
		o.BumpRevision, o.MarkCompacted = cmp.Or(o.BumpRevision, KubernetesBump), true
	}
	switch {
	case o.Name == "":
		return settingsf("the member's name is empty")
	case (o.BumpRevision > 0) != o.MarkCompacted:
		return settingsf("--bump-revision and --mark-compacted need each other")
	case o.BumpRevision > maxBump:
		return settingsf("--bump-revision %d leaves no revisions to write at", o.BumpRevision)
	case !slices.Contains([]LeasePolicy{Grant, Drop, Keep}, o.MissingLeases):
		return settingsf("--missing-leases %q is not one of grant, drop, keep", o.MissingLeases)
	case o.LeaseTTL < time.Second:
		return settingsf("--missing-lease-ttl %v is less than a second", o.LeaseTTL)
	case o.LeaseTTL > time.Duration(math.MaxInt64)-time.Second:
		return settingsf("--missing-lease-ttl %v is too long", o.LeaseTTL)
	}
	p.Bump = o.BumpRevision
	if _, err := p.bootstrap("unchecked"); err != nil {
		return err
	}
	o.DataDir = cmp.Or(o.DataDir, o.Name+".etcd")
	var err error
	if p.DataDir, err = filepath.Abs(o.DataDir); err != nil {
		return fmt.Errorf("find the data folder: %w", err)
	}
	p.WALDir = filepath.Join(p.DataDir, "member", "wal")
	if o.WALDir != "" {
		if p.WALDir, err = filepath.Abs(o.WALDir); err != nil {
			return fmt.Errorf("find the folder of the write-ahead log: %w", err)
		}
		inside := p.WALDir == p.DataDir || strings.HasPrefix(p.WALDir, p.DataDir+string(filepath.Separator))
		switch {
		case p.WALDir == filepath.Join(p.DataDir, "member", "wal"):
			o.WALDir = "" // where it is anyway
		case inside, strings.HasPrefix(p.DataDir, p.WALDir+string(filepath.Separator)):
			return settingsf("--wal-dir %s and --data-dir %s lie in each other", o.WALDir, o.DataDir)
		}
	}
	return nil
}

// bootstrap makes the cluster that etcd would make of the settings.
func (p *Plan) bootstrap(token string) (*membership.RaftCluster, error) {
	peers, err := types.NewURLs(p.o.PeerURLs)
	if err != nil {
		return nil, settingsf("--initial-advertise-peer-urls: %w", err)
	}
	all, err := types.NewURLsMap(p.o.InitialCluster)
	if err != nil {
		return nil, settingsf("--initial-cluster: %w", err)
	}
	srv := config.ServerConfig{Logger: quiet(), Name: p.o.Name, PeerURLs: peers, InitialPeerURLsMap: all, InitialClusterToken: token}
	if err := srv.VerifyBootstrap(); err != nil {
		return nil, settingsf("--name, --initial-cluster and --initial-advertise-peer-urls do not fit together: %w", err)
	}
	c, err := membership.NewClusterFromURLsMap(quiet(), token, all)
	if err != nil {
		return nil, settingsf("--initial-cluster: %w", err)
	}
	p.InitialCluster = canonical(all)
	return c, nil
}

// canonical writes a cluster so that the order in which members were given, and the
// URLs of one, does not matter.
func canonical(all types.URLsMap) string {
	var parts []string
	for name, urls := range all {
		for _, u := range urls {
			parts = append(parts, name+"="+u.String())
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

// quiet is a logger that says nothing, and with which "fatal" does not end the
// process.
func quiet() *zap.Logger { return zap.NewNop().WithOptions(zap.WithFatalHook(zapcore.WriteThenPanic)) }

// verify opens the file, and looks at it down to its records.
func (p *Plan) verify(ctx context.Context) error {
	before, err := os.Stat(p.Snapshot)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	if before.IsDir() {
		e := &dbfile.NotDatabaseError{Path: p.Snapshot, What: "a folder"}
		if db := filepath.Join(p.Snapshot, "member", "snap", "db"); exists(db) {
			e.What = "a member's data folder"
			e.Hint = fmt.Sprintf("`snapshot restore %s --skip-hash-check` restores its database, without what only its write-ahead log has; --db %s reads both", db, p.Snapshot)
		}
		return e
	}
	damage := map[backup.Level]int{}
	p.Verified, err = backup.Verify(ctx, p.Snapshot, backup.VerifyOptions{
		Level: backup.LevelRecords, File: p.o.File, SkipChecksum: p.o.SkipChecksum, Report: func(f backup.Finding) {
			if f.Warning && f.Level == backup.LevelFile {
				return // of the file's mode; it is only read
			}
			if !f.Warning {
				damage[f.Level]++
			}
			p.leases = p.leases || f.Warning && f.Key != nil
			if p.o.Report != nil {
				p.o.Report(f)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	p.Rebuilt = damage[backup.LevelFile]+damage[backup.LevelPages]+damage[backup.LevelRecords] > 0
	file := p.o.File
	file.IgnoreChecksum, file.Damaged = true, p.Rebuilt // it was looked at
	p.src, err = dbfile.Open(ctx, p.Snapshot, file)
	switch {
	case p.Verified.Damage > 0 && (err != nil || !p.o.AcceptFindings):
		return &FindingsError{Report: p.Verified, Readable: err == nil}
	case err != nil:
		return fmt.Errorf("restore: %w", err)
	case !p.Verified.Sealed && !p.o.SkipChecksum && !p.o.AcceptFindings:
		return fmt.Errorf("restore %s: %w", p.Snapshot, ErrUnsealed)
	}
	// Two openings must be of one file. What happens to it from here on the source finds.
	after, err := os.Stat(p.Snapshot)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	if !os.SameFile(before, after) || before.Size() != after.Size() || !before.ModTime().Equal(after.ModTime()) {
		return &dbfile.ChangedError{Path: p.Snapshot, How: "it is not the file that was verified"}
	}
	return nil
}

// findMissingLeases lists the live keys whose lease is not in the file.
func (p *Plan) findMissingLeases(ctx context.Context, src *dbfile.Source) error {
	leases, err := src.Leases(ctx)
	if err != nil {
		return fmt.Errorf("restore: read leases: %w", err)
	}
	have := map[int64]bool{}
	for _, l := range leases {
		have[l.ID] = true
	}
	missing := map[int64][]string{}
	for rec, err := range src.Records(ctx, keyspace.All()) {
		if err != nil {
			return fmt.Errorf("restore: look for leases: %w", err)
		}
		if rec.Lease == 0 || have[rec.Lease] {
			continue
		}
		missing[rec.Lease] = append(missing[rec.Lease], string(rec.Key))
		if p.o.MissingLeases == Drop {
			p.drop = append(p.drop, bytes.Clone(rec.Key))
		}
	}
	for id, keys := range missing {
		p.MissingLeases = append(p.MissingLeases, MissingLease{ID: fmt.Sprintf("%016x", uint64(id)), Keys: keys})
		if p.o.MissingLeases == Grant {
			p.grant = append(p.grant, id)
		}
	}
	slices.SortFunc(p.MissingLeases, func(a, b MissingLease) int { return strings.Compare(a.ID, b.ID) })
	slices.Sort(p.grant)
	if len(p.MissingLeases) > 0 {
		p.LeasePolicy = p.o.MissingLeases
	}
	if len(p.grant) > 0 {
		p.LeaseTTL = int64((p.o.LeaseTTL + time.Second - 1) / time.Second)
	}
	return nil
}

// content finds out what the restored keyspace will be. Of a damaged file that is known
// when its database was made anew; then src is that one.
func (p *Plan) content(ctx context.Context, src *dbfile.Source) error {
	info, err := src.Info(ctx)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	p.Revision, p.NewRev, p.CompactRev = info.Revision, info.Revision, info.OldestRev()
	if p.leases || p.Rebuilt {
		if err := p.findMissingLeases(ctx, src); err != nil {
			return err
		}
	}
	if p.o.Kubernetes {
		for rec, err := range src.Records(ctx, keyspace.Prefix([]byte(masterLeases))) {
			if err != nil {
				return fmt.Errorf("restore: look for API servers' leases: %w", err)
			}
			if !slices.ContainsFunc(p.drop, func(k []byte) bool { return bytes.Equal(k, rec.Key) }) {
				p.drop = append(p.drop, bytes.Clone(rec.Key))
			}
		}
	}
	slices.SortFunc(p.drop, bytes.Compare)
	for _, k := range p.drop {
		p.DroppedKeys = append(p.DroppedKeys, string(k))
	}
	if len(p.drop) > 0 {
		p.NewRev++
	}
	if p.Bump > 0 {
		if p.NewRev > maxBump {
			return settingsf("the snapshot is at revision %d, which leaves no room for --bump-revision", p.Revision)
		}
		p.NewRev += int64(p.Bump)
		p.CompactRev = p.NewRev
	}
	if p.AuthEnabled, err = src.AuthEnabled(ctx); err == nil {
		p.Alarms, err = src.Alarms(ctx)
	}
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	return nil
}

// hash finds the SHA-256 of the file's pages.
func (p *Plan) hash(ctx context.Context) (err error) {
	if p.Verified.Verdict == backup.Healthy {
		p.sum, _, err = p.src.Trailer() // Verify has compared it
	} else {
		p.sum, err = p.src.Sum(ctx)
	}
	var wrong *dbfile.ChecksumError
	if err != nil && !errors.As(err, &wrong) {
		return fmt.Errorf("restore: %w", err)
	}
	return nil
}

// identity makes the cluster, whose ids follow from its token.
func (p *Plan) identity() (err error) {
	p.Token = p.o.Token
	if p.Token == "" {
		p.Token, p.TokenComputed = p.computeToken(), true
	}
	if p.cluster, err = p.bootstrap(p.Token); err != nil {
		return err
	}
	p.self = p.cluster.MemberByName(p.o.Name)
	if p.self == nil {
		return settingsf("--name %s is not in --initial-cluster", p.o.Name)
	}
	p.ClusterID, p.MemberID = fmt.Sprintf("%x", uint64(p.cluster.ID())), fmt.Sprintf("%x", uint64(p.self.ID))
	for _, m := range p.cluster.Members() {
		p.Members = append(p.Members, Member{ID: fmt.Sprintf("%x", uint64(m.ID)), Name: m.Name, PeerURLs: m.PeerURLs, Self: m.ID == p.self.ID})
	}
	slices.SortFunc(p.Members, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// computeToken hashes everything on which the members of one restore must agree: the
// content, the cluster, and every change that is made to the content.
func (p *Plan) computeToken() string {
	h := sha256.New()
	fmt.Fprintf(h, "etcdctl-plus restore 1\n%x\n%s\n%d %t %s %d %t\n", p.sum, p.InitialCluster, p.Bump, p.o.Kubernetes, p.o.MissingLeases, p.o.LeaseTTL, p.Rebuilt)
	return "restore-" + hex.EncodeToString(h.Sum(nil)[:16])
}

// etcd lays a log of this size out beforehand, and for a moment the next one too.
const (
	logBytes  = 64 << 20
	slackByte = 16 << 20 // pages that are written anew, folders
)

// room compares what is needed with what is there.
func (p *Plan) room() error {
	needs := []Space{{Dir: p.DataDir, Need: p.DBBytes + slackByte}}
	if p.o.WALDir != "" {
		needs = append(needs, Space{Dir: p.WALDir, Need: 2 * logBytes})
	} else {
		needs[0].Need += 2 * logBytes
	}
	if p.Rebuilt {
		needs[0].Need += p.DBBytes / 2 // pages of a new database are less full
	}
	var short error
	for i := range needs {
		s := &needs[i]
		s.Free = -1
		if free, ok := p.space(existing(s.Dir)); ok {
			s.Free = free
			if free < s.Need && short == nil {
				short = &fs.PathError{Op: "restore to", Path: s.Dir, Err: fmt.Errorf("it takes %d MB and %d MB are free: %w", s.Need>>20, free>>20, errNoSpace)}
			}
		}
	}
	p.Space = needs
	return short
}

// existing is the nearest folder above dir that is there.
func existing(dir string) string {
	for {
		if st, err := os.Stat(dir); err == nil && st.IsDir() {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			return dir
		}
		dir = up
	}
}
