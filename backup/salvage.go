package backup

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"

	bolt "go.etcd.io/bbolt"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
)

// Salvaged is what Salvage saved.
type Salvaged struct {
	File    string `json:"file"` // the new one
	Bytes   int64  `json:"bytes"`
	Entries int64  `json:"entries"` // of all buckets
	Records int64  `json:"records"`
	Keys    int64  `json:"keys"` // live at the newest revision
	// Carved are the records that were found outside of the tree of pages.
	Carved int64 `json:"carved"`
	Lost   int   `json:"lost"` // findings that are damage
	// OnlyChecksum: every entry was kept, and a value may have changed, since the checksum
	// is wrong. It is one of the findings.
	OnlyChecksum bool      `json:"onlyChecksum,omitempty"`
	Findings     []Finding `json:"findings"`
}

// salvageBatch is how many entries one transaction writes.
const salvageBatch = 20_000

// Salvage copies what is sound of a damaged file into a new one, out, a snapshot with a
// checksum of its own, and lists what is wrong with the old one. The old file is only
// read; out must not exist.
//
// What is in the new file was in the old one, but versions of a key may be missing
// between others, and a deletion that was lost leaves its key alive. Of a file in which no
// record is left nothing is made; the error is a *DamagedError.
func Salvage(ctx context.Context, path, out string, o dbfile.Options) (_ *Salvaged, err error) {
	o.Damaged = true
	src, err := dbfile.Open(ctx, path, o)
	if err != nil {
		return nil, fmt.Errorf("salvage: %w", err)
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	target, err := newTarget(out, false)
	if err != nil {
		return nil, fmt.Errorf("salvage: %w", err)
	}
	defer target.abandon()
	s := &Salvaged{File: out, Findings: []Finding{}}
	sum, err := fill(ctx, src, target.temp(), s)
	if err != nil {
		return nil, fmt.Errorf("salvage %s: %w", path, err)
	}
	if sum.Records == 0 {
		return nil, &DamagedError{Endpoint: path, Reason: "nothing of it can be saved", Findings: s.Findings}
	}
	if s.Lost == 0 {
		if err := s.checksum(ctx, src); err != nil {
			return nil, fmt.Errorf("salvage %s: %w", path, err)
		}
	}
	s.Entries, s.Records, s.Keys, s.Carved = sum.Entries, sum.Records, sum.Keys, sum.Carved
	if s.Bytes, err = sealFile(target.temp()); err != nil {
		return nil, fmt.Errorf("salvage %s: %w", path, err)
	}
	if err := target.commit(); err != nil {
		return nil, fmt.Errorf("salvage %s: %w", path, err)
	}
	return s, nil
}

// checksum looks at what is left to be wrong with a file in which every page is sound.
func (s *Salvaged) checksum(ctx context.Context, src *dbfile.Source) error {
	err := src.CompareTrailer(ctx)
	var wrong *dbfile.ChecksumError
	if !errors.As(err, &wrong) {
		return err
	}
	s.Findings = append(s.Findings, Finding{Level: LevelSeal, Page: -1, Reason: wrongChecksum(wrong) + "; every entry is kept, and a value may have changed"})
	s.Lost, s.OnlyChecksum = 1, true
	return nil
}

func wrongChecksum(e *dbfile.ChecksumError) string {
	return fmt.Sprintf("the SHA-256 of its pages is %x, the trailer says %x: it changed after it was saved", e.Got, e.Want)
}

// fill writes what is sound into the database at temp.
func fill(ctx context.Context, src *dbfile.Source, temp string, s *Salvaged) (sum dbfile.Salvaged, err error) {
	db, err := bolt.Open(temp, 0o600, &bolt.Options{NoSync: true, NoFreelistSync: true, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return sum, err
	}
	defer func() {
		if cerr := db.Close(); err == nil {
			err = cerr
		}
	}()
	tx, err := db.Begin(true)
	if err != nil {
		return sum, err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	n := 0
	put := func(bucket string, key, value []byte) error {
		b, err := tx.CreateBucketIfNotExists([]byte(bucket))
		if err != nil {
			return err
		}
		b.FillPercent = 0.9 // keys come in order
		if err := b.Put(key, value); err != nil {
			return err
		}
		if n++; n%salvageBatch != 0 {
			return nil
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		tx, err = db.Begin(true)
		return err
	}
	sum, err = src.Salvage(ctx, put, func(f dbfile.Finding) {
		s.Findings = append(s.Findings, fromFile(f))
		if !f.Warning {
			s.Lost++
		}
	})
	if err != nil {
		return sum, err
	}
	// etcd and this program want both.
	for _, name := range []string{"key", "meta"} {
		if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
			return sum, err
		}
	}
	return sum, tx.Commit()
}

// sealFile puts the checksum behind the pages of a file, and returns its new size.
func sealFile(path string) (int64, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err == nil {
		_, err = f.Write(h.Sum(nil))
	}
	return n + sha256.Size, errors.Join(err, f.Close())
}
