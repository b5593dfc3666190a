package datadir

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/coreos/go-semver/semver"
	"go.uber.org/zap"

	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
)

// MigrateOptions of Migrate.
type MigrateOptions struct {
	// Target is a version "X.Y", 3.5 or later.
	Target string
	// Force writes the version also where the layout cannot be changed properly.
	Force bool
	// DryRun changes nothing: the new database is made, and thrown away.
	DryRun bool
	// Timeout is how long to wait for a process that uses the folder; 0: as long as it takes.
	Timeout time.Duration
}

// Migrated is what Migrate did.
type Migrated struct {
	From    string `json:"from"`
	To      string `json:"to"`
	Changed bool   `json:"changed"`
	Forced  bool   `json:"forced,omitempty"` // it could not be done properly; Problem says why
	Problem string `json:"problem,omitempty"`
}

// VersionError is a target that is none.
type VersionError struct{ Target, Reason string }

func (e *VersionError) Error() string {
	return fmt.Sprintf("target version %q: %s", e.Target, e.Reason)
}

// ParseTarget reads a version "X.Y". The error is a *VersionError.
func ParseTarget(s string) (*semver.Version, error) {
	v, err := semver.NewVersion(s + ".0")
	if strings.Count(s, ".") != 1 || err != nil {
		return nil, &VersionError{s, `expected "X.Y", such as 3.6`}
	}
	if v.LessThan(semver.Version{Major: 3, Minor: 5}) {
		return nil, &VersionError{s, `the smallest is "3.5"`}
	}
	return v, nil
}

// Migrate changes the layout of a data folder's database to that of another version of
// etcd, so that this version starts on it. What the write-ahead log holds may stand
// against it. Errors are those of Defrag, and *VersionError.
func Migrate(ctx context.Context, dir string, o MigrateOptions) (_ *Migrated, err error) {
	target, err := ParseTarget(o.Target)
	if err != nil {
		return nil, err
	}
	f, err := lockFolder(ctx, dir, o.Timeout)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	m := &Migrated{To: short(target)}
	err = f.replace(ctx, func(path string) error {
		if err := f.copyTo(path); err != nil {
			return err
		}
		return m.change(path, filepath.Join(dir, "member", "wal"), target, o)
	}, "meta", "cluster")
	if errors.Is(err, errNothing) {
		return m, nil
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// errNothing says that the old database stays.
var errNothing = errors.New("nothing to do")

// change migrates the copy.
func (m *Migrated) change(path, walDir string, target *semver.Version, o MigrateOptions) error {
	lg := zap.NewNop()
	be := backend.NewDefaultBackend(lg, path, backend.WithTimeout(time.Second))
	closed := false
	defer func() {
		if !closed {
			_ = be.Close() // the error that brought us here says more
		}
	}()
	current, err := schema.DetectSchemaVersion(lg, be.ReadTx())
	if err != nil {
		return fmt.Errorf("detect the version of the layout: %w", err)
	}
	if m.From = short(&current); current == *target {
		return errNothing
	}
	needs, err := walVersion(lg, walDir)
	if err != nil {
		return fmt.Errorf("read the write-ahead log: %w", err)
	}
	if err := schema.Migrate(lg, be.BatchTx(), needs, *target); err != nil {
		if !o.Force {
			return fmt.Errorf("migrate from %s to %s: %w", m.From, m.To, err)
		}
		m.Forced, m.Problem = true, err.Error()
		tx := be.BatchTx()
		tx.LockOutsideApply()
		if target.LessThan(semver.Version{Major: 3, Minor: 6}) { // which has no version in the database
			schema.UnsafeClearStorageVersion(tx)
		} else {
			schema.UnsafeSetStorageVersion(tx, target)
		}
		tx.Unlock()
	}
	be.ForceCommit()
	m.Changed = !o.DryRun
	closed = true
	if err := be.Close(); err != nil || !o.DryRun {
		return err
	}
	return errNothing
}

// walVersion is what the entries of the log need.
func walVersion(lg *zap.Logger, dir string) (wal.Version, error) {
	snaps, err := wal.ValidSnapshotEntries(lg, dir)
	if err != nil {
		return nil, err
	}
	last := &walpb.Snapshot{}
	if len(snaps) > 0 {
		last = snaps[len(snaps)-1]
	}
	w, err := wal.OpenForRead(lg, dir, last)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	return wal.ReadWALVersion(w)
}

func short(v *semver.Version) string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }
