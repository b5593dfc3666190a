package walfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
)

// ErrNoLog is wrapped when a folder holds no segment of a log.
var ErrNoLog = errors.New("no write-ahead log")

// EntryType tells what an entry of the raft log is.
type EntryType uint64

// The types of entries.
const (
	Normal       EntryType = 0 // a request; empty when a leader took office
	ConfChange   EntryType = 1 // a change of the members
	ConfChangeV2 EntryType = 2 // the same in another form, which etcd does not use so far
)

// Entry is one entry of the raft log.
type Entry struct {
	Index, Term uint64
	Type        EntryType
	Data        []byte // the caller's own
}

// DamageError says where a log stops to make sense. What came before is good.
type DamageError struct {
	Path   string
	Offset int64 // of the frame in the file
	Reason string
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("read %s, byte %d: %s", e.Path, e.Offset, e.Reason)
}

// TornEnd is where a log ends in the middle of a record.
type TornEnd struct {
	Path   string
	Offset int64 // of the frame in the file
	// More is set when there is something behind it. A crash leaves that when the
	// disk had written the end of what was under way before its beginning; damage
	// to a record that was whole looks the same.
	More bool
}

// Log is the part of a write-ahead log behind some index.
type Log struct {
	// ClusterID and MemberID are of the member the log belongs to; 0: not found.
	ClusterID, MemberID uint64
	// First is the index of the first entry in hand, Last that of the last one;
	// without any, Last is First-1.
	First, Last uint64
	// Commit is the highest index that the log itself calls committed. etcd
	// writes it down late: entries above it may be committed too.
	Commit uint64
	// Bytes is the size of all entries in hand.
	Bytes int64
	// Snapshot is the highest raft index at which the log says that a snapshot was
	// taken, or came from the leader; 0: none.
	Snapshot uint64
	// Torn is set when the log ends in the middle of a record, as it does after
	// a crash. Nobody has been promised what that record held.
	Torn *TornEnd
	// Damage is set when the log was read up to a damaged place only.
	Damage *DamageError

	entries []place // of First, First+1, …
	files   []*os.File
}

// place is where the data of an entry lies.
type place struct {
	file   int
	offset int64
	size   int
	term   uint64
	typ    EntryType
}

// Read reads the log in dir behind the index after. Of a conflicting part of the
// log, which another leader had replaced, the later version counts, as it does for
// etcd.
//
// Damage is no error: it is noted in the log. Errors are those of package io/fs,
// and one that wraps ErrNoLog. Reading takes 40 bytes of memory an entry, and the
// largest record; the segments stay open until Close.
func Read(ctx context.Context, dir string, after uint64) (_ *Log, err error) {
	segments, err := list(dir)
	if err != nil {
		return nil, err
	}
	l := &Log{First: after + 1, Last: after}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	from := 0
	for i, s := range segments {
		if s.index <= after+1 {
			from = i
		}
	}
	if first := segments[from].index; first > after+1 {
		// What came before was thrown away.
		l.First, l.Last = first, first-1
	}
	r := reader{log: l}
	for i, s := range segments[from:] {
		if i > 0 && s.seq != segments[from+i-1].seq+1 {
			l.Damage = &DamageError{Path: filepath.Join(dir, s.name), Reason: fmt.Sprintf("the segment before it, number %x, is missing", s.seq-1)}
			break
		}
		f, err := os.Open(filepath.Join(dir, s.name))
		if err != nil {
			return nil, fmt.Errorf("read write-ahead log: %w", err)
		}
		l.files = append(l.files, f)
		if err := r.segment(ctx, f, from+i+1 == len(segments)); err != nil {
			return nil, err
		}
		if l.Damage != nil {
			break
		}
	}
	return l, nil
}

// Entries yields the entries in hand in order. Each has its own memory. It returns
// an error when a segment was cut or changed since.
func (l *Log) Entries(ctx context.Context) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for i, p := range l.entries {
			e := Entry{Index: l.First + uint64(i), Term: p.term, Type: p.typ, Data: make([]byte, p.size)}
			err := ctx.Err()
			if err == nil {
				_, err = l.files[p.file].ReadAt(e.Data, p.offset)
				if errors.Is(err, io.EOF) {
					err = io.ErrUnexpectedEOF
				}
				if err != nil {
					err = fmt.Errorf("read %s: %w", l.files[p.file].Name(), err)
				}
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Segments returns how many segments a folder has. Errors are those of Read.
func Segments(dir string) (int, error) {
	l, err := list(dir)
	return len(l), err
}

// Term returns the term of an entry in hand.
func (l *Log) Term(index uint64) (term uint64, ok bool) {
	if index < l.First || index > l.Last {
		return 0, false
	}
	return l.entries[index-l.First].term, true
}

// Close closes the segments.
func (l *Log) Close() error {
	var errs []error
	for _, f := range l.files {
		errs = append(errs, f.Close())
	}
	l.files = nil
	return errors.Join(errs...)
}

// add notes an entry. One whose index is known replaces it and all behind it.
func (l *Log) add(index uint64, p place) {
	switch {
	case index < l.First:
		// Known already to whoever asked; a log that goes back this far has lost
		// what was behind.
		l.truncate(l.First)
		return
	case index <= l.Last:
		l.truncate(index)
	case index > l.Last+1:
		// A snapshot from the leader took the place of what lies between, as the
		// reader has seen.
		l.truncate(l.First)
		l.First = index
	}
	l.entries = append(l.entries, p)
	l.Last = index
	l.Bytes += int64(p.size)
}

// truncate forgets the entries from index on.
func (l *Log) truncate(index uint64) {
	for _, p := range l.entries[index-l.First:] {
		l.Bytes -= int64(p.size)
	}
	l.entries = l.entries[:index-l.First]
	l.Last = index - 1
}

type segment struct {
	name       string
	seq, index uint64
}

// list returns the segments of a log in order. What else is in the folder, such as
// segments under preparation (.tmp) and broken ones put aside, is none of it.
func list(dir string) ([]segment, error) {
	names, err := os.ReadDir(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read %s: %w: %w", dir, ErrNoLog, err)
		}
		return nil, fmt.Errorf("read write-ahead log: %w", err)
	}
	var out []segment
	for _, e := range names {
		s := segment{name: e.Name()}
		if parseName(&s) && e.Type().IsRegular() {
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("read %s: %w: no file named like 0000000000000000-0000000000000000.wal", dir, ErrNoLog)
	}
	slices.SortFunc(out, func(a, b segment) int { return cmp.Compare(a.seq, b.seq) })
	return out, nil
}

func parseName(s *segment) bool {
	n, err := fmt.Sscanf(s.name, "%016x-%016x.wal", &s.seq, &s.index)
	return err == nil && n == 2 && s.name == fmt.Sprintf("%016x-%016x.wal", s.seq, s.index)
}
