package inspect

import (
	"context"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// Space says what a database file consists of. All figures are bytes unless their
// name says otherwise.
type Space struct {
	Revision   int64 `json:"revision"`
	CompactRev int64 `json:"compactRevision"`

	FileBytes  int64 `json:"fileBytes"`
	InUseBytes int64 `json:"inUseBytes"` // in pages that hold data
	FreeBytes  int64 `json:"freeBytes"`  // in free pages: what defrag gives back today

	Keys         int64 `json:"keys"`
	LiveBytes    int64 `json:"liveBytes"` // keys and values as they are now
	Revisions    int64 `json:"revisions"` // surviving versions and tombstones
	Superseded   int64 `json:"supersededRevisions"`
	HistoryBytes int64 `json:"historyBytes"` // keys and values of superseded versions, and tombstones
	Tombstones   int64 `json:"tombstones"`
	// OverheadBytes is what is in use beyond keys and values: revisions, page
	// heads, pages that are not full, and the other buckets.
	OverheadBytes int64 `json:"overheadBytes"`

	// CompactFrees estimates what a compaction at the newest revision would turn
	// into free pages: the history, and its share of the overhead.
	CompactFrees int64 `json:"compactionFreesBytes"`
	// AfterBoth estimates the file after that compaction and a defrag.
	AfterBoth int64 `json:"afterCompactionAndDefragBytes"`
}

// pageCounter is a source that can count its pages when Info does not.
type pageCounter interface {
	BytesInUse(ctx context.Context) (int64, error)
}

// MeasureSpace reads all surviving revisions. On a live cluster that streams
// a snapshot.
func MeasureSpace(ctx context.Context, src keyspace.HistorySource) (*Space, error) {
	info, err := src.Info(ctx)
	if err != nil {
		return nil, err
	}
	s := &Space{Revision: info.Revision, CompactRev: info.CompactRev, FileBytes: info.Bytes, InUseBytes: info.BytesInUse}
	if c, ok := src.(pageCounter); ok && s.InUseBytes == 0 {
		if s.InUseBytes, err = c.BytesInUse(ctx); err != nil {
			return nil, err
		}
	}
	rep, err := UsageByPrefix(ctx, src, UsageOptions{Rev: info.Revision, Depth: 1, History: true})
	if err != nil {
		return nil, err
	}
	t := rep.Total
	s.Keys, s.LiveBytes, s.Revisions, s.HistoryBytes, s.Tombstones = t.Keys, t.LiveBytes, t.Revisions, t.HistoryBytes, t.Tombstones
	s.Superseded = t.Revisions - t.Keys - t.Tombstones
	s.FreeBytes = max(s.FileBytes-s.InUseBytes, 0)
	s.OverheadBytes = max(s.InUseBytes-s.LiveBytes-s.HistoryBytes, 0)
	s.CompactFrees = s.HistoryBytes
	if t.Revisions > 0 {
		s.CompactFrees += s.OverheadBytes * (t.Revisions - t.Keys) / t.Revisions
	}
	s.AfterBoth = max(s.InUseBytes-s.CompactFrees, 0)
	return s, nil
}
