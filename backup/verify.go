package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// VerifyOptions of Verify. The zero value looks at the file and nothing else.
type VerifyOptions struct {
	// Level is the deepest level to look at.
	Level Level
	// File says how the file is opened.
	File dbfile.Options
	// SkipChecksum leaves the checksum behind the pages alone.
	SkipChecksum bool
	// Manifest is what the file is compared with; nil: with nothing.
	Manifest *Manifest
	// Live is the cluster that the file is compared with, record by record; nil: with
	// none.
	Live keyspace.Source
	// Objects opens Kubernetes' objects for LevelObjects; nil: they are not looked at.
	Objects func(context.Context, keyspace.Source) (*ObjectReader, error)
	// MaxAge is how old the backup may be for LevelPolicy; 0: any age. Its time is the
	// manifest's, without one the file's.
	MaxAge time.Duration
	// MinRevision is the revision that LevelPolicy wants; 0: any.
	MinRevision int64
	// Now is the time that MaxAge counts from.
	Now time.Time
	// Dir is where LevelDrill makes its copy; empty: the system's folder for temporary
	// files.
	Dir string
	// Report is told every finding as it comes, in no particular order of levels. It is
	// never called by two goroutines at once.
	Report func(Finding)
}

// Verdict is what a verification comes to.
type Verdict string

// The verdicts.
const (
	Healthy Verdict = "healthy"
	// Unsealed: nothing was found, but there is no checksum to vouch for the values, or
	// it was not looked at. A member's own file is so.
	Unsealed Verdict = "unsealed"
	Damaged  Verdict = "damaged"
)

// LevelResult tells how one level went.
type LevelResult struct {
	Level    Level   `json:"level"`
	Name     string  `json:"name"`
	Findings int     `json:"findings"`
	Skipped  string  `json:"skipped,omitempty"` // why it was not, or not wholly, looked at
	Partly   bool    `json:"partly,omitempty"`  // some of it was
	Seconds  float64 `json:"seconds"`
	Note     string  `json:"note,omitempty"`
}

// Report is the outcome of Verify. Numbers are 0 when their level was not reached.
type Report struct {
	File          string        `json:"file"`
	Verdict       Verdict       `json:"verdict"`
	Kind          keyspace.Kind `json:"kind,omitempty"`
	Packing       []string      `json:"packing,omitempty"`
	Bytes         int64         `json:"bytes"`
	DatabaseBytes int64         `json:"databaseBytes,omitempty"`
	Sealed        bool          `json:"sealed"`
	Revision      int64         `json:"revision,omitempty"`
	CompactRev    int64         `json:"compactRev,omitempty"`
	// CompactScheduled is a compaction that was begun and not finished; 0: none.
	CompactScheduled int64         `json:"compactScheduled,omitempty"`
	RaftIndex        uint64        `json:"raftIndex,omitempty"`
	RaftTerm         uint64        `json:"raftTerm,omitempty"`
	Version          string        `json:"version,omitempty"`
	Pages            int64         `json:"pages,omitempty"`
	Records          int64         `json:"records,omitempty"`
	Keys             int64         `json:"keys,omitempty"`
	Leases           int64         `json:"leases,omitempty"`
	Objects          int64         `json:"objects,omitempty"`
	SealedValues     int64         `json:"sealedValues,omitempty"`
	Encryption       []string      `json:"encryption,omitempty"`
	HashKV           *uint32       `json:"hashKV,omitempty"`
	Damage           int           `json:"damage"`
	Warnings         int           `json:"warnings"`
	Levels           []LevelResult `json:"levels"`
	Note             string        `json:"note,omitempty"`

	Drill *Drilled `json:"drill,omitempty"`
}

// verification is one run of Verify.
type verification struct {
	path   string
	o      VerifyOptions
	r      *Report
	src    *dbfile.Source
	opened bool  // the file could be opened as a database
	damage error // why it was opened only as one that is damaged
	// hashing is the hash on its way.
	hashing <-chan hashed
	sealed  bool // the checksum was compared, and fits
}

// Verify looks at a backup, or any database file or data folder, as deep as asked, and
// reports all that is wrong with it. The file is only read.
//
// An error is none of the backup's content: it is not there or may not be read, another
// process writes to it, there is no room to unpack it, or ctx is done. A file that is no
// database at all is a finding; anything but a file, such as a folder without one, is an error. It takes 24 bytes of memory a record.
func Verify(ctx context.Context, path string, o VerifyOptions) (*Report, error) {
	v := &verification{path: path, o: o, r: &Report{File: path}}
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		if v.hashing != nil {
			<-v.hashing
		}
		if v.src != nil {
			v.src.Close()
		}
	}()
	steps := []struct {
		level Level
		run   func(context.Context) error
	}{
		{LevelFile, v.file},
		{LevelSeal, v.seal},
		{LevelPages, v.pages},
		{LevelSeal, v.checksum},
		{LevelHash, v.hash},
		{LevelObjects, v.objects},
		{LevelDrill, v.drill},
		{LevelPolicy, v.policy},
	}
	for _, s := range steps {
		if s.level > LevelFile && !v.opened {
			break // there is nothing further to look at
		}
		if s.level > o.Level && !o.wants(s.level) {
			continue
		}
		if err := v.run(ctx, s.level, s.run); err != nil {
			return nil, err
		}
	}
	v.r.Verdict = v.verdict()
	return v.r, nil
}

func (o *VerifyOptions) wantsPolicy() bool { return o.MaxAge > 0 || o.MinRevision > 0 }

// wants tells whether a level was asked for besides those up to Level.
func (o *VerifyOptions) wants(l Level) bool {
	return l == LevelPolicy && o.wantsPolicy() || l == LevelHash && o.Live != nil && o.Level >= LevelSeal
}

func (v *verification) run(ctx context.Context, l Level, step func(context.Context) error) error {
	v.begin(l)
	start := time.Now()
	err := step(ctx)
	v.at(l).Seconds += time.Since(start).Seconds()
	return err
}

// begin enters a level into the report, once.
func (v *verification) begin(l Level) {
	if v.at(l) == nil {
		v.r.Levels = append(v.r.Levels, LevelResult{Level: l, Name: l.String()})
	}
}

// at returns the report of a level, nil for one that was not begun.
func (v *verification) at(l Level) *LevelResult {
	for i := range v.r.Levels {
		if v.r.Levels[i].Level == l {
			return &v.r.Levels[i]
		}
	}
	return nil
}

func (v *verification) skip(l Level, why string) { v.at(l).Skipped = why }

func (v *verification) found(f Finding) {
	v.begin(f.Level)
	v.at(f.Level).Findings++
	if f.Warning {
		v.r.Warnings++
	} else {
		v.r.Damage++
	}
	if v.o.Report != nil {
		v.o.Report(f)
	}
}

// say reports damage to the file as a whole.
func (v *verification) say(l Level, format string, a ...any) {
	v.found(Finding{Level: l, Page: -1, Reason: fmt.Sprintf(format, a...)})
}

func (v *verification) warn(l Level, format string, a ...any) {
	v.found(Finding{Level: l, Warning: true, Page: -1, Reason: fmt.Sprintf(format, a...)})
}

func (v *verification) verdict() Verdict {
	switch {
	case v.r.Damage > 0:
		return Damaged
	case !v.sealed:
		return Unsealed
	}
	return Healthy
}

// file is level 0.
func (v *verification) file(ctx context.Context) error {
	st, err := os.Lstat(v.path)
	if err != nil {
		return fmt.Errorf("verify: %w", withoutOp(err))
	}
	if st.Mode()&fs.ModeSymlink != 0 {
		v.warn(LevelFile, "it is a symbolic link; what it points to is looked at, and may be another file tomorrow")
		if st, err = os.Stat(v.path); err != nil {
			return fmt.Errorf("verify: %w", err)
		}
	}
	v.r.Bytes = st.Size()
	if st.Mode().IsRegular() && st.Mode().Perm()&0o077 != 0 && !st.IsDir() {
		v.warn(LevelFile, "its mode is %04o: others than its owner may read or write what it holds", st.Mode().Perm())
	}
	o := v.o.File
	o.IgnoreChecksum = o.IgnoreChecksum || v.o.SkipChecksum
	v.src, err = dbfile.Open(ctx, v.path, o)
	switch {
	case errors.Is(err, dbfile.ErrEncrypted):
		return v.locked(ctx, err)
	case errors.Is(err, keyspace.ErrCorrupt):
		// As far as it can be read, there may be more to find.
		v.damage = err
		o.Damaged = true
		if v.src, err = dbfile.Open(ctx, v.path, o); err == nil && !v.src.Damaged() {
			err = errors.New("it changed while it was looked at")
		}
	}
	if err != nil {
		v.src = nil
		if errors.Is(err, keyspace.ErrNotDatabase) && !st.Mode().IsRegular() {
			return fmt.Errorf("verify: %w", err) // no backup that was damaged, but the wrong argument
		}
		return v.notOpened(err)
	}
	v.opened = true
	v.r.Packing = v.src.Packing()
	if st.IsDir() {
		v.r.Bytes = 0
	}
	v.r.Note = v.src.Note()
	return nil
}

// withoutOp leaves the system call out of an error about a file: nobody asked for an lstat.
func withoutOp(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return fmt.Errorf("%s: %w", path.Path, path.Err)
	}
	return err
}

// locked ends with level 1: what is encrypted can only be compared as it is.
func (v *verification) locked(ctx context.Context, err error) error {
	v.r.Packing = []string{"age"}
	if v.o.Level < LevelSeal {
		return nil
	}
	v.begin(LevelSeal)
	v.skip(LevelSeal, err.Error())
	if v.o.Manifest != nil {
		v.skip(LevelSeal, "only the file as it is was compared: it is encrypted with age, and no identity opens it")
	}
	return v.manifest(ctx)
}

// notOpened tells what the file is from what the machine would not do.
func (v *verification) notOpened(err error) error {
	var damage *dbfile.CorruptError
	var foreign *dbfile.NotDatabaseError
	switch {
	case errors.As(err, &damage):
		l := LevelPages
		if damage.Page <= 0 {
			l = LevelFile
		}
		v.found(Finding{Level: l, Page: damage.Page, Rev: damage.Rev, Reason: damage.Reason})
		return nil
	case errors.As(err, &foreign):
		v.say(LevelFile, "%s", foreign.Reason())
		return nil
	case errors.Is(err, keyspace.ErrCorrupt), errors.Is(err, dbfile.ErrUnpack):
		v.say(LevelFile, "%v", err)
		return nil
	}
	return fmt.Errorf("verify: %w", err)
}

// seal is level 1. The pages are looked at while the checksum is computed; see pages.
func (v *verification) seal(ctx context.Context) error {
	switch {
	case v.o.SkipChecksum:
		v.skip(LevelSeal, "the checksum was not looked at")
	case v.src.Stripped():
		v.say(LevelSeal, "the 32 bytes of its checksum are missing: it is a snapshot that was cut short")
	case v.src.Damaged():
		v.skip(LevelSeal, "the file is damaged, whatever its checksum says")
	case !v.src.HasTrailer():
		v.skip(LevelSeal, "it has no checksum: a member's own file")
	}
	v.r.Sealed = v.src.HasTrailer()
	return v.manifest(ctx)
}

// manifest compares with what was written down when the backup was taken.
func (v *verification) manifest(ctx context.Context) error {
	m := v.o.Manifest
	if m == nil {
		return nil
	}
	if v.r.Bytes != m.Bytes {
		v.say(LevelSeal, "it has %d bytes, the manifest says %d", v.r.Bytes, m.Bytes)
	}
	sum, err := fileSum(ctx, v.path)
	if err != nil {
		return err
	}
	if sum != m.SHA256 {
		v.say(LevelSeal, "its SHA-256 is %s, the manifest says %s", sum, m.SHA256)
	}
	return nil
}

// fileSum is the SHA-256 of a file in hex.
func fileSum(ctx context.Context, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("verify: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{ctxReader{ctx, f}}, make([]byte, 1<<20)); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// ctxReader ends a read when ctx does.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (c ctxReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// unreachable tells whether damage hides all records.
func (v *verification) unreachable() bool { return v.r.Records == 0 && v.r.Damage > 0 }

// pages is levels 2 and 3, which one walk does.
func (v *verification) pages(ctx context.Context) error {
	records := v.o.Level >= LevelRecords
	if records {
		v.begin(LevelRecords)
	}
	if v.o.Level >= LevelHash {
		v.hashing = hashOf(ctx, v.src) // beside the walk, which is one core's work
	}
	seals := sealNames{}
	sum, err := v.src.ExamineEach(ctx, func(f dbfile.Finding) {
		if found := fromFile(f); found.Level == LevelPages || records {
			v.found(found)
		}
	}, seals.see)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	v.r.Encryption = seals.sorted()
	if v.damage != nil && v.r.Damage == 0 {
		return v.notOpened(v.damage) // it is not of a kind that the walk over the pages meets
	}
	v.r.Pages, v.r.Records, v.r.Keys, v.r.Leases = sum.Pages, sum.Records, sum.Keys, sum.Leases
	if records && v.unreachable() && v.at(LevelRecords).Findings == 0 {
		v.skip(LevelRecords, "no record can be reached behind the damage")
	}
	return nil
}

// checksum ends level 1. A wrong one makes the source refuse what follows, so it is
// opened again without.
func (v *verification) checksum(ctx context.Context) error {
	sealed, err := v.src.Checksum(ctx)
	var wrong *dbfile.ChecksumError
	var stripped *dbfile.StrippedError // seal has said so
	switch {
	case errors.As(err, &wrong), errors.As(err, &stripped):
		if wrong != nil {
			v.say(LevelSeal, "%s", wrongChecksum(wrong))
		}
		o := v.o.File
		o.IgnoreChecksum, o.Damaged = true, v.src.Damaged()
		src, err := dbfile.Open(ctx, v.path, o)
		if err != nil {
			return v.notOpened(err)
		}
		if v.hashing != nil {
			<-v.hashing // it has refused the file as well
			v.hashing = hashOf(ctx, src)
		}
		v.src.Close()
		v.src = src
	case err != nil && !errors.Is(err, keyspace.ErrCorrupt):
		return fmt.Errorf("verify: %w", err)
	case err != nil:
		v.say(LevelSeal, "%v", err)
	default:
		v.sealed = sealed
	}
	info, err := v.src.Info(ctx)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	v.r.Kind, v.r.Revision, v.r.CompactRev, v.r.Version = info.Kind, info.Revision, info.CompactRev, info.Version
	v.r.DatabaseBytes, v.r.CompactScheduled = info.Bytes, info.CompactScheduled
	v.r.RaftIndex, v.r.RaftTerm = v.src.RaftIndex()
	if m := v.o.Manifest; m != nil {
		if info.Revision != m.Revision {
			v.say(LevelSeal, "it is at revision %d, the manifest says %d", info.Revision, m.Revision)
		}
		if c := max(info.CompactRev, info.CompactScheduled); c != m.CompactRev {
			v.say(LevelSeal, "it is compacted at revision %d, the manifest says %d", c, m.CompactRev)
		}
	}
	return nil
}

// policy is level 7.
func (v *verification) policy(context.Context) error {
	if !v.o.wantsPolicy() {
		v.skip(LevelPolicy, "no age and no revision was asked for")
		return nil
	}
	if v.o.MinRevision > 0 && v.r.Revision < v.o.MinRevision {
		v.say(LevelPolicy, "it is at revision %d, %d was asked for", v.r.Revision, v.o.MinRevision)
	}
	if v.o.MaxAge <= 0 {
		return nil
	}
	var taken time.Time
	if m := v.o.Manifest; m != nil {
		taken = m.Started
	} else if st, err := os.Stat(v.path); err == nil {
		taken = st.ModTime()
		v.at(LevelPolicy).Note = "by the file's time, since there is no manifest"
	}
	if age := v.o.Now.Sub(taken); age > v.o.MaxAge {
		v.say(LevelPolicy, "it was taken %s ago, %s are allowed", age.Round(time.Second), v.o.MaxAge)
	}
	return nil
}
