// Package dbfile reads a keyspace from a file: a snapshot, a member's database
// or the data folder it lies in.
//
// It has its own reader of bbolt's pages, because bbolt trusts its files: on a
// damaged one it loops, runs out of memory or ends the process. Here every number
// is compared with the file's size before use, a walk visits no page twice, and a
// file that is cut short while it is read gives an error. See page.go for the
// format.
//
// The original is never written to, and etcd is never kept from starting on it:
// Open asks for the file's lock and lets go of it at once. If etcd starts while
// the file is read, the reading ends with a *ChangedError. The file of a running
// etcd is refused with a *LockedError unless Options.Copy is set.
//
// A snapshot carries a SHA-256 of its pages. It is computed on another core while
// the first records are looked up, and compared before the first answer is given:
// a snapshot that was damaged anywhere gives an error rather than a wrong answer.
// A member's own file has no such seal; damage to a value goes unnoticed there.
package dbfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"filippo.io/age"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/pipeline"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/walfile"
)

// Options of Open. The zero value is right for a file at rest.
type Options struct {
	// Copy reads a private copy of the file, which is removed on Close. It is the
	// way to look into the folder of a running etcd. The copy shares the
	// original's blocks where the file system can do that and TempDir is on it.
	Copy bool
	// TempDir is where the copy goes, and what an archive unpacks to; empty: the system's folder for temporary
	// files. It needs room for the whole file.
	TempDir string
	// IgnoreChecksum reads what can be read of a damaged snapshot.
	IgnoreChecksum bool
	// Damaged opens a file that is cut short or whose bookkeeping cannot be read, for
	// Examine and Salvage. Everything else may fail on it, or find nothing. It implies
	// IgnoreChecksum.
	Damaged bool
	// UnpackLimit bounds what an archive unpacks to, in bytes; 0: 16 GiB, and
	// whatever no database would be.
	UnpackLimit int64
	// Identities open a snapshot that is encrypted with age.
	Identities []age.Identity
	// WALDir is the folder of the member's write-ahead log where that does not lie
	// beside the database. With it the log is read for a single file as well.
	WALDir string
	// NoWAL reads the database of a data folder alone.
	NoWAL bool
}

// Source is an opened file. It implements keyspace.HistorySource, and its methods
// may be called by several goroutines at once.
type Source struct {
	path    string // as the operator named it
	file    string // the database itself
	walDir  string
	kind    keyspace.Kind
	f       *os.File
	remove  string // the private copy, to remove on Close
	packing []string
	size    int64
	modTime time.Time
	pager   pager
	marks   marks
	newest  int64
	version string

	key bucket
	// With Options.Damaged: what else would have been an error of Open.
	damaged   bool
	truncated *TruncatedError
	cut       error // why no more was unpacked
	marked    bool  // the notes about compactions were read
	headless  bool  // no meta page is left: the one in use was made up
	// What the write-ahead log adds; see walread.go.
	withLog             bool // it was looked for
	tail                *tail
	note                string
	lacks               bool            // acknowledged writes may be missing
	leases              map[int64]Lease // nil: those of the file
	clusterID, memberID uint64
	memberIDs           map[uint64]bool

	seal      func(context.Context) error // waits for the checksum of a snapshot
	comparing bool                        // there is one to wait for
	stopSeal  context.CancelFunc

	mu      sync.Mutex
	readers int
	closed  bool
	unmap   func() error
	cache   *index // the last one, see records.go
}

var _ keyspace.HistorySource = (*Source)(nil)

// Open opens the database at path: a snapshot, a member's db file, or a folder
// that holds one (etcd's data folder, its member folder, or member/snap). A snapshot
// in a gzip, zstd or zip archive, or encrypted with age (also around a gzip or zstd one),
// known by its first bytes, is unpacked into a private file, which is removed on Close.
//
// Of a folder the write-ahead log is read too. A member writes to its database ten
// times a second only; what it has promised since is in the log. The committed
// requests behind the database are applied in memory (at most 1 GB of them, and 48
// bytes for each change), as etcd does when it starts. Entries that are not known to
// be committed are left out. Info.Note says what came from the log, or why nothing
// did: a missing or damaged log is no error.
//
// Errors wrap keyspace.ErrNotDatabase (*NotDatabaseError), keyspace.ErrLocked
// (*LockedError), keyspace.ErrCorrupt (*CorruptError, *TruncatedError), ErrUnpack,
// ErrEncrypted, or an error of package io/fs. ctx bounds Open alone, including its copy.
func Open(ctx context.Context, path string, o Options) (_ *Source, err error) {
	file, walDir, folder, err := locate(path)
	if err != nil {
		return nil, err
	}
	if o.WALDir != "" {
		walDir = o.WALDir
	}
	f, err := openFile(file)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	s := &Source{path: path, file: file, walDir: walDir, f: f}
	// The file goes first: a half-made source still has to be given back.
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	// Look again at what was opened: the path may have changed under us.
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	if kind := special(st.Mode()); kind != "" {
		return nil, &NotDatabaseError{Path: file, What: kind}
	}
	err = s.unpack(ctx, o)
	if err != nil {
		return nil, err
	}
	switch {
	case s.remove != "": // unpacked: a private file already
	case o.Copy:
		err = s.switchToCopy(ctx, o.TempDir)
	case lockedElsewhere(f):
		err = &LockedError{Path: file}
	}
	if err != nil {
		return nil, err
	}
	s.damaged = o.Damaged
	o.IgnoreChecksum = o.IgnoreChecksum || o.Damaged
	if err := s.mapPages(o.IgnoreChecksum); err != nil {
		return nil, err
	}
	if err := pipeline.Guard(s.readMarks); err != nil {
		if !o.Damaged || !errors.Is(err, keyspace.ErrCorrupt) {
			return nil, err
		}
	}
	s.startSeal(o.IgnoreChecksum)
	if o.WALDir != "" && s.kind == keyspace.Snapshot {
		return nil, fmt.Errorf("read %s with the write-ahead log in %s: %w", file, o.WALDir, ErrSealed)
	}
	if o.WALDir != "" {
		// A folder that was named is there, or it is the wrong one.
		if _, err := walfile.Segments(o.WALDir); err != nil {
			return nil, err
		}
	}
	if (folder || o.WALDir != "") && !o.NoWAL {
		if err := s.readTail(ctx); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// switchToCopy replaces the opened file by a private copy of it.
func (s *Source) switchToCopy(ctx context.Context, dir string) error {
	dst, err := privateCopy(ctx, s.f, dir)
	if err != nil {
		return err
	}
	s.f.Close()
	s.f, s.remove = dst, dst.Name()
	return nil
}

// mapPages maps the file and finds the state to read. With ignore a length that
// no database has is no reason to stop.
func (s *Source) mapPages(ignore bool) error {
	st, err := s.f.Stat()
	if err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	s.size, s.modTime = st.Size(), st.ModTime()
	if s.size == 0 {
		return &NotDatabaseError{Path: s.file, What: "empty", Hint: "nothing was ever written to it; look for another copy"}
	}
	head := make([]byte, min(s.size, pageHeaderLen+metaLen+512))
	if _, err := io.ReadFull(io.NewSectionReader(s.f, 0, s.size), head); err != nil {
		return fmt.Errorf("read %s: %w", s.file, err)
	}
	if isTar(head) {
		// The database in it is on whole pages too, behind a header of 512 bytes,
		// and would be taken for one whose first page is lost.
		what, hint := foreign(head)
		return &NotDatabaseError{Path: s.file, What: what, Hint: hint}
	}
	pages := s.size
	s.kind = keyspace.Member
	if sealed(s.size) {
		s.kind = keyspace.Snapshot
		pages -= trailerLen
	} else if s.size%minPageSize != 0 && s.size > minPageSize && !ignore && hasMagic(head) {
		return &CorruptError{Path: s.file, Reason: fmt.Sprintf("its length of %d bytes is neither whole pages nor whole pages with a checksum behind them: it was cut short, or something was appended", s.size)}
	}
	if int64(int(pages)) != pages {
		return fmt.Errorf("read %s: %d bytes are more than this system can map", s.file, pages)
	}
	data, unmap, err := mapFile(s.f, pages)
	if err != nil {
		return fmt.Errorf("read %s: %w", s.file, err)
	}
	release := pipeline.Mapped(s.file, data)
	s.unmap = func() error {
		release()
		return unmap()
	}
	s.pager = pager{path: s.file, data: data}
	return pipeline.Guard(func() error { return s.chooseMeta(head) })
}

func (s *Source) chooseMeta(head []byte) error {
	data := s.pager.data
	m, reason := newestMeta(data)
	if reason != "" {
		// A second meta page shows a database even when the first one is lost.
		if hasMagic(data) || s.hasSecondMagic() {
			if len(data) < 2*4096 {
				return &TruncatedError{Path: s.file, Have: s.size, Want: 2 * 4096}
			}
			return &CorruptError{Path: s.file, Page: 0, Reason: "neither meta page is valid: the first " + reason}
		}
		size := pageSizeOf(data)
		switch {
		case size == 0:
			what, hint := foreign(head)
			return &NotDatabaseError{Path: s.file, What: what, Hint: hint}
		case !s.damaged:
			return &CorruptError{Path: s.file, Page: 0, Reason: "both meta pages were overwritten; the pages behind them are a database's"}
		}
		// Nothing says where the tree begins, so that every page is one that was lost.
		s.headless = true
		m = meta{pageSize: size, root: uint64(len(data)) / size, freelist: noFreelist, pages: uint64(len(data)) / size}
	}
	if have := uint64(len(data)) / m.pageSize; m.pages > have {
		err := &TruncatedError{Path: s.file, Have: s.size, Want: int64(min(m.pages, 1<<40) * m.pageSize)}
		if !s.damaged {
			return err
		}
		s.truncated, m.pages = err, have
	}
	if m.pages < 3 {
		return &CorruptError{Path: s.file, Page: 0, Reason: fmt.Sprintf("the newest meta page counts %d pages", m.pages)}
	}
	s.pager.meta = m
	return nil
}

// pageSizeOf tells the page size of a database without meta pages by what its first pages say
// of themselves; 0 when they are no database's.
func pageSizeOf(data []byte) uint64 {
	const first, last, enough = 2, 64, 3
	for size := uint64(minPageSize); size <= maxPageSize; size *= 2 {
		fit := 0
		for id := uint64(first); id < last && (id+1)*size <= uint64(len(data)); id++ {
			page := data[id*size:]
			if flags := le.Uint16(page[8:]); le.Uint64(page) == id && (flags == flagBranch || flags == flagLeaf || flags == flagFreelist) {
				fit++
			}
		}
		if fit >= enough {
			return size
		}
	}
	return 0
}

func (s *Source) hasSecondMagic() bool {
	data := s.pager.data
	for size := uint64(minPageSize); size <= maxPageSize && size < uint64(len(data)); size *= 2 {
		if hasMagic(data[size:]) {
			return true
		}
	}
	return false
}

// startSeal compares a snapshot with its checksum in the background.
func (s *Source) startSeal(ignore bool) {
	s.seal, s.stopSeal = func(context.Context) error { return nil }, func() {}
	switch {
	case ignore:
		return
	case s.Stripped():
		s.seal = func(context.Context) error { return &StrippedError{Path: s.file} }
		return
	case s.kind != keyspace.Snapshot:
		return
	}
	s.comparing = true
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var err error
	var reading sync.WaitGroup
	reading.Go(func() { s.readAll(ctx) })
	reading.Go(func() {
		defer close(done)
		err = checkSeal(ctx, s.file, s.f, s.pager.data)
	})
	s.seal = func(ctx context.Context) error {
		select {
		case <-done:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.stopSeal = func() { cancel(); reading.Wait() }
}

// readAll has the whole file read in its own order, which is the one that disks
// like: walks jump about in it.
func (s *Source) readAll(ctx context.Context) {
	const part = 8 << 20
	for at := int64(0); at < s.size && ctx.Err() == nil; at += part {
		readAhead(s.f, at, part)
	}
}

// acquire keeps the map until release; it fails on a closed source.
func (s *Source) acquire() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("read %s: %w", s.path, ErrClosed)
	}
	s.readers++
	return nil
}

func (s *Source) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readers--
	if s.closed && s.readers == 0 {
		_ = s.free() // Close has returned already; there is nobody to tell
	}
}

// Close lets go of the file and removes a private copy. Records that were yielded
// become invalid. An iteration that still runs ends with ErrClosed at its next
// step and keeps the file mapped until then. Close may be called twice.
func (s *Source) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.cache = nil
	if s.readers > 0 {
		return nil
	}
	return s.free()
}

func (s *Source) free() error {
	var errs []error
	if s.stopSeal != nil {
		s.stopSeal()
	}
	if s.unmap != nil {
		errs = append(errs, s.unmap())
		s.pager.data = nil
	}
	errs = append(errs, s.f.Close())
	if s.remove != "" {
		if err := os.Remove(s.remove); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close %s: %w", s.path, err)
	}
	return nil
}

func (s *Source) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// check says why what was just read cannot be trusted: the source was closed, ctx
// is done, or another process wrote to the file.
func (s *Source) check(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.isClosed() {
		return fmt.Errorf("read %s: %w", s.path, ErrClosed)
	}
	return s.unchanged()
}

// unchanged compares the file with how it was opened. Writers change the length,
// the time, or at the very least a meta page.
func (s *Source) unchanged() error {
	if s.remove != "" {
		return nil // ours alone
	}
	st, err := s.f.Stat()
	if err != nil {
		return fmt.Errorf("read %s: %w", s.file, err)
	}
	switch {
	case st.Size() < s.size:
		return &TruncatedError{Path: s.file, Have: st.Size(), Want: s.size}
	case st.Size() != s.size:
		return &ChangedError{Path: s.file, How: "it grew; an etcd may have started on it"}
	case !st.ModTime().Equal(s.modTime):
		return &ChangedError{Path: s.file, How: "it was written to; an etcd may have started on it"}
	}
	m, reason := newestMeta(s.pager.data)
	if s.truncated != nil {
		m.pages = s.pager.meta.pages // as far as there are any
	}
	same := reason == "" && m == s.pager.meta
	if s.headless {
		same = reason != "" // there is none still
	}
	if !same {
		return &ChangedError{Path: s.file, How: "a transaction was committed; an etcd may have started on it"}
	}
	return nil
}

// Path returns the database file that is read, which lies inside the folder when
// Open was given one. Of a private copy it is the original.
func (s *Source) Path() string { return filepath.Clean(s.file) }
