package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/live"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sandbox"
)

// DrillOptions of Drill. The zero value is right for a file at rest.
type DrillOptions struct {
	File dbfile.Options
	// Dir is where the private copy goes; empty: the system's folder for temporary
	// files. It needs room for twice the file.
	Dir string
	// Objects opens Kubernetes' objects; nil: they are not decoded.
	Objects func(context.Context, keyspace.Source) (*ObjectReader, error)
	// Hold is how long the etcd runs before everything is compared once more; 0: it is
	// compared once. Leases are frozen, so nothing may change.
	Hold time.Duration
}

// Drilled is how a rehearsal went. Times are in seconds.
type Drilled struct {
	Revision   int64   `json:"revision"`
	CompactRev int64   `json:"compactRev"`
	Keys       int64   `json:"keys"`
	HashKV     *uint32 `json:"hashKV,omitempty"`
	Objects    int64   `json:"objects,omitempty"`
	Sealed     int64   `json:"sealedValues,omitempty"`
	// RestoreSeconds is from the file to an etcd that answers: copy, restore and boot.
	RestoreSeconds float64 `json:"restoreSeconds"`
	// CompareSeconds is reading everything back.
	CompareSeconds float64   `json:"compareSeconds"`
	HeldSeconds    float64   `json:"heldSeconds,omitempty"`
	Findings       []Finding `json:"findings"`
}

// Drill rehearses a restore: it boots a private etcd from a copy of the file, on
// loopback, with leases frozen and authentication off, reads everything back through it
// and compares it with the file: revision, hash, count, every record, and whether each
// object of Kubernetes decodes.
//
// Damage that keeps etcd from booting is an error that wraps keyspace.ErrCorrupt.
// Everything else that differs is a finding.
func Drill(ctx context.Context, path string, o DrillOptions) (_ *Drilled, err error) {
	src, err := dbfile.Open(ctx, path, o.File)
	if err != nil {
		return nil, fmt.Errorf("drill: %w", err)
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	info, err := src.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("drill: %w", err)
	}
	start := time.Now()
	box, err := sandbox.Start(ctx, sandbox.Options{From: path, File: o.File, Dir: o.Dir})
	if err != nil {
		return nil, fmt.Errorf("drill: %w", err)
	}
	defer func() { err = errors.Join(err, box.Close()) }()
	client, err := box.Client()
	if err != nil {
		return nil, fmt.Errorf("drill: %w", err)
	}
	defer client.Close()
	d := &Drilled{Revision: info.Revision, CompactRev: info.CompactRev, RestoreSeconds: time.Since(start).Seconds(), Findings: []Finding{}}
	r := rehearsal{Drilled: d, o: o, src: src, client: client, info: info}
	start = time.Now()
	if err := r.compare(ctx); err != nil {
		return nil, fmt.Errorf("drill: %w", err)
	}
	d.CompareSeconds = time.Since(start).Seconds()
	if o.Hold > 0 {
		if err := wait(ctx, o.Hold); err != nil {
			return nil, err
		}
		d.HeldSeconds = o.Hold.Seconds()
		if err := r.compare(ctx); err != nil {
			return nil, fmt.Errorf("drill, after %v: %w", o.Hold, err)
		}
	}
	return d, nil
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// rehearsal compares a running etcd with the file it came from.
type rehearsal struct {
	*Drilled
	o      DrillOptions
	src    *dbfile.Source
	client *clientv3.Client
	info   keyspace.Info
}

func (r *rehearsal) found(f Finding) { r.Findings = append(r.Findings, f) }

func (r *rehearsal) say(key []byte, format string, a ...any) {
	r.found(Finding{Level: LevelDrill, Page: -1, Key: bytes.Clone(key), Reason: fmt.Sprintf(format, a...)})
}

func (r *rehearsal) compare(ctx context.Context) error {
	if err := r.hash(ctx); err != nil {
		return err
	}
	box := live.New(r.client, live.Options{})
	defer box.Close()
	if err := r.records(ctx, box); err != nil {
		return err
	}
	if r.o.Objects == nil {
		return nil
	}
	reader, err := r.o.Objects(ctx, box)
	if err != nil {
		return err
	}
	sum, err := checkObjects(ctx, box, reader, r.found)
	r.Objects, r.Sealed = sum.objects, sum.sealed
	return err
}

// mostDifferences is after how many records that differ no more are looked for.
const mostDifferences = 100

// records holds every record of the etcd against that of the file.
func (r *rehearsal) records(ctx context.Context, box keyspace.Source) error {
	all := keyspace.All()
	all.Rev = r.info.Revision
	differ, keys := 0, int64(0)
	err := Differences(box.Records(ctx, all), r.src.Records(ctx, all), func(theirs, ours *keyspace.Record) bool {
		switch {
		case theirs != nil && ours != nil && sameRecord(*theirs, *ours):
			keys++
			return true
		case theirs == nil:
			r.say(ours.Key, "the restored etcd does not have the key")
		case ours == nil:
			r.say(theirs.Key, "the restored etcd has a key that the file does not have")
		default:
			r.say(ours.Key, "the restored etcd has another value or other revisions")
		}
		differ++
		return differ < mostDifferences
	})
	r.Keys = keys
	return err
}

func sameRecord(a, b keyspace.Record) bool {
	return a.CreateRev == b.CreateRev && a.ModRev == b.ModRev && a.Version == b.Version && a.Lease == b.Lease && bytes.Equal(a.Value, b.Value)
}

// Differences walks over two keyspaces in key order and calls with for each key, with a
// record of each side, nil where there is none, until it returns false.
func Differences(a, b iter.Seq2[keyspace.Record, error], with func(a, b *keyspace.Record) bool) error {
	next, stop := iter.Pull2(b)
	defer stop()
	other, err, more := next()
	for rec, aerr := range a {
		if aerr != nil {
			return aerr
		}
		for ; more && err == nil && bytes.Compare(other.Key, rec.Key) < 0; other, err, more = next() {
			if !with(nil, &other) {
				return nil
			}
		}
		if err != nil {
			return err
		}
		if more && bytes.Equal(other.Key, rec.Key) {
			if !with(&rec, &other) {
				return nil
			}
			other, err, more = next()
		} else if !with(&rec, nil) {
			return nil
		}
	}
	for ; more && err == nil; other, err, more = next() {
		if !with(nil, &other) {
			return nil
		}
	}
	return err
}

// drill is level 6.
func (v *verification) drill(ctx context.Context) error {
	if v.r.Damage > 0 {
		v.skip(LevelDrill, "nothing boots from a damaged file")
		return nil
	}
	o := v.o.File
	o.IgnoreChecksum = o.IgnoreChecksum || v.o.SkipChecksum
	d, err := Drill(ctx, v.path, DrillOptions{File: o, Dir: v.o.Dir, Objects: v.o.Objects})
	switch {
	case errors.Is(err, keyspace.ErrCorrupt):
		v.say(LevelDrill, "%v", err)
		return nil
	case err != nil:
		return fmt.Errorf("verify: %w", err)
	}
	v.r.Drill = d
	for _, f := range d.Findings {
		v.found(f)
	}
	return nil
}
