package watchtail

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/etcdctl-plus/etcdctl-plus/backup/place"
)

// Line is what a line of output says of itself.
type Line struct {
	Rev   int64
	I, N  int
	Begin bool // the first line of a list, whose lines belong together up to its end
	End   bool
}

// ParseLine reads a line without its newline; false: it is none of ours.
type ParseLine func(line []byte) (Line, bool)

// FileOptions are of a FileSink.
type FileOptions struct {
	Path  string
	Parse ParseLine
	// RotateBytes is from which size on a file is put aside, at the end of a revision; 0:
	// never. Keep is how many are kept then besides the one that is written; 0: all.
	RotateBytes int64
	Keep        int
	// Mode is of new files; 0: 0600.
	Mode fs.FileMode
}

// OutputError says that an output file is not what the checkpoint says, or that somebody else
// writes to it.
type OutputError struct {
	Path   string
	Reason string
}

func (e *OutputError) Error() string { return fmt.Sprintf("output %s: %s", e.Path, e.Reason) }

// FileSink appends to a file that has every event once, whatever ends the program: what was
// written after the last checkpoint is read again and kept, up to the last whole revision.
type FileSink struct {
	o      FileOptions
	f      *os.File
	offset int64 // behind what was written
	synced bool
	buf    []byte
}

// OpenFile opens a file to append to it. at is what the last checkpoint says of it; nil:
// nothing, and then the file must be new or empty.
//
// The second result is the last whole revision that was found behind the checkpoint, 0 when
// there is none. A torn revision is cut off. The error is an *OutputError when the file is
// not the one of the checkpoint and that one is nowhere beside it.
func OpenFile(o FileOptions, at *Output) (*FileSink, int64, error) {
	if o.Mode == 0 {
		o.Mode = 0o600
	}
	s := &FileSink{o: o, synced: true}
	if at == nil {
		return s, 0, s.create()
	}
	found, err := s.locate(at)
	if err != nil {
		return nil, 0, err
	}
	rev, end, err := readOn(found, at.Offset, o.Parse)
	if err != nil {
		return nil, 0, err
	}
	if found == o.Path {
		return s, rev, s.open(end)
	}
	// It was moved meanwhile: it ends there, and goes on under its name.
	if err := cut(found, end); err != nil {
		return nil, 0, err
	}
	if _, err := os.Lstat(o.Path); errors.Is(err, fs.ErrNotExist) {
		return s, rev, s.create()
	}
	newer, end, err := readOn(o.Path, 0, o.Parse)
	if err != nil {
		return nil, 0, err
	}
	return s, max(rev, newer), s.open(end)
}

// create makes the file, which may be there when it is empty.
func (s *FileSink) create() error {
	f, err := os.OpenFile(s.o.Path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, s.o.Mode)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	switch {
	case err != nil:
		return errors.Join(err, f.Close())
	case !st.Mode().IsRegular():
		return errors.Join(&OutputError{Path: s.o.Path, Reason: "it is no regular file: send standard output there"}, f.Close())
	case st.Size() > 0:
		return errors.Join(&OutputError{Path: s.o.Path, Reason: "it is there already, and no checkpoint says what is in it"}, f.Close())
	}
	s.f, s.offset = f, 0
	return place.SyncDir(filepath.Dir(s.o.Path))
}

// open opens the file and cuts it at end.
func (s *FileSink) open(end int64) error {
	f, err := os.OpenFile(s.o.Path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err == nil && st.Size() != end {
		err = f.Truncate(end)
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	s.f, s.offset = f, end
	return nil
}

// cut cuts a file that was moved.
func cut(path string, end int64) error {
	st, err := os.Stat(path)
	if err != nil || st.Size() == end {
		return err
	}
	if err := os.Truncate(path, end); err != nil {
		return err
	}
	return place.SyncFile(path)
}

// locate finds the file of a checkpoint: under its name, or beside that where something has
// moved it.
func (s *FileSink) locate(at *Output) (string, error) {
	st, err := os.Stat(s.o.Path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err == nil && (at.Inode == 0 || inode(st) == at.Inode) {
		if st.Size() < at.Offset {
			return "", &OutputError{Path: s.o.Path, Reason: fmt.Sprintf("it has %d bytes, the checkpoint says %d: it was cut, as copytruncate does; what was cut off cannot be known", st.Size(), at.Offset)}
		}
		return s.o.Path, nil
	}
	dir, base := filepath.Split(s.o.Path)
	entries, err := os.ReadDir(filepath.Clean(dir + "."))
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), base) || !e.Type().IsRegular() {
			continue
		}
		if st, err := e.Info(); err == nil && at.Inode != 0 && inode(st) == at.Inode && st.Size() >= at.Offset {
			return dir + e.Name(), nil
		}
	}
	return "", &OutputError{Path: s.o.Path, Reason: "the file of the checkpoint is gone: it was removed, or compressed, before all of it was known to the checkpoint"}
}

// readOn reads lines from an offset on. It returns the last whole revision, and where it ends.
func readOn(path string, from int64, parse ParseLine) (rev, end int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return 0, 0, err
	}
	r := bufio.NewReaderSize(f, 1<<20)
	at, end := from, from
	var line []byte
	var last Line
	inList := false
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if errors.Is(err, io.EOF) {
			return rev, end, nil // a line without its end is torn
		}
		if err != nil {
			return 0, 0, fmt.Errorf("read %s: %w", path, err)
		}
		l, ok := parse(bytes.TrimSuffix(line, []byte("\n")))
		if !ok {
			return 0, 0, &OutputError{Path: path, Reason: fmt.Sprintf("at byte %d is a line that is not of this output", at)}
		}
		at += int64(len(line))
		line = line[:0]
		switch {
		case l.Begin:
			inList = true
		case l.End && inList:
			inList, rev, end = false, l.Rev, at
		case inList:
		case !follows(last, l) || l.Rev <= rev:
			return 0, 0, &OutputError{Path: path, Reason: fmt.Sprintf("before byte %d is event %d of %d of revision %d, which does not follow: another program writes there", at, l.I, l.N, l.Rev)}
		case l.I == l.N:
			rev, end = l.Rev, at
		}
		last = l
	}
}

// follows tells whether a line may stand behind another one: the next of its revision, or the
// first of another one behind the last.
func follows(last, l Line) bool {
	whole := last.I == last.N || last.End
	return l.N >= l.I && (l.I == 1 && whole || l.I > 1 && l.Rev == last.Rev && l.I == last.I+1 && l.N == last.N)
}

// Write takes the lines of one revision.
func (s *FileSink) Write(lines []byte) error {
	s.buf = append(s.buf, lines...)
	if len(s.buf) < bufferBytes {
		return nil
	}
	return s.Flush()
}

// Flush writes what is held back, whole revisions. When that fails nothing of it stays.
func (s *FileSink) Flush() error {
	if len(s.buf) == 0 {
		return nil
	}
	if err := s.alone(); err != nil {
		return err
	}
	n, err := s.f.Write(s.buf)
	if err != nil {
		if n > 0 {
			err = errors.Join(err, s.f.Truncate(s.offset))
		}
		return fmt.Errorf("output %s: %w", s.o.Path, err)
	}
	s.offset += int64(n)
	s.synced = false
	s.buf = shrink(s.buf)
	return nil
}

// alone makes sure that nobody else cuts the file, or writes to it.
func (s *FileSink) alone() error {
	st, err := s.f.Stat()
	if err != nil {
		return fmt.Errorf("output %s: %w", s.o.Path, err)
	}
	switch size := st.Size(); {
	case size < s.offset:
		return &OutputError{Path: s.o.Path, Reason: fmt.Sprintf("it was cut from %d to %d bytes while it was written, as copytruncate does: events are lost that way", s.offset, size)}
	case size > s.offset:
		return &OutputError{Path: s.o.Path, Reason: fmt.Sprintf("it has %d bytes more than were written to it: another program writes there", size-s.offset)}
	}
	return nil
}

// Sync makes it last.
func (s *FileSink) Sync() (*Output, error) {
	if err := s.Flush(); err != nil {
		return nil, err
	}
	if !s.synced {
		if err := s.f.Sync(); err != nil {
			return nil, fmt.Errorf("output %s: %w", s.o.Path, err)
		}
		s.synced = true
	}
	st, err := s.f.Stat()
	if err != nil {
		return nil, fmt.Errorf("output %s: %w", s.o.Path, err)
	}
	return &Output{Path: s.o.Path, Inode: inode(st), Offset: s.offset}, nil
}

// Full tells whether it is time to rotate.
func (s *FileSink) Full() bool {
	return s.o.RotateBytes > 0 && s.offset+int64(len(s.buf)) >= s.o.RotateBytes
}

// Rotate puts the file aside as its name with .1, after those that are there, and begins a new
// one. A checkpoint is to follow at once.
func (s *FileSink) Rotate() error {
	if _, err := s.Sync(); err != nil {
		return err
	}
	name := func(n int) string { return fmt.Sprintf("%s.%d", s.o.Path, n) }
	n := 1
	for exists(name(n)) {
		n++
	}
	for ; n > 1; n-- {
		if s.o.Keep > 0 && n > s.o.Keep {
			if err := os.Remove(name(n - 1)); err != nil {
				return fmt.Errorf("output %s: %w", s.o.Path, err)
			}
			continue
		}
		if err := os.Rename(name(n-1), name(n)); err != nil {
			return fmt.Errorf("output %s: %w", s.o.Path, err)
		}
	}
	if err := os.Rename(s.o.Path, name(1)); err != nil {
		return fmt.Errorf("output %s: %w", s.o.Path, err)
	}
	return s.Reopen()
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Reopen goes on in the file that is under the name now, after somebody has moved the one that
// was written. Without a move it changes nothing. A checkpoint is to follow at once.
func (s *FileSink) Reopen() error {
	if _, err := s.Sync(); err != nil {
		return err
	}
	was, err := s.f.Stat()
	if err != nil {
		return fmt.Errorf("output %s: %w", s.o.Path, err)
	}
	if now, err := os.Stat(s.o.Path); err == nil && os.SameFile(was, now) {
		return nil
	}
	old := s.f
	if err := s.create(); err != nil {
		return err
	}
	return old.Close()
}

// Close flushes and closes the file.
func (s *FileSink) Close() error {
	_, err := s.Sync()
	return errors.Join(err, s.f.Close())
}

// Files returns the names of an output and of what was rotated away from it, the oldest first.
func Files(path string) []string {
	out := []string{path}
	for n := 1; exists(fmt.Sprintf("%s.%d", path, n)); n++ {
		out = append(out, fmt.Sprintf("%s.%d", path, n))
	}
	slices.Reverse(out)
	return out
}
