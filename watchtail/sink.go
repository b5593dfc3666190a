package watchtail

import (
	"errors"
	"io"
	"syscall"
)

// Sink takes what a tail gives, in the form in which it was rendered.
type Sink interface {
	// Write takes all lines of one revision. They may be held back until Flush.
	Write(lines []byte) error
	// Flush hands over what is held back.
	Flush() error
	// Sync makes what was flushed last, and says how far the output is; nil where it cannot
	// be read on from.
	Sync() (*Output, error)
	Close() error
}

// bufferBytes is how much a sink holds back at most, besides one revision.
const bufferBytes = 64 << 10

// stream is a sink that nobody can look into: each event comes at least once. What was
// written between the last checkpoint and a crash comes again.
type stream struct {
	w   io.Writer
	buf []byte
}

// NewStream returns a sink that writes to w. Events come at least once.
func NewStream(w io.Writer) Sink { return &stream{w: w} }

func (s *stream) Write(lines []byte) error {
	s.buf = append(s.buf, lines...)
	if len(s.buf) < bufferBytes {
		return nil
	}
	return s.Flush()
}

func (s *stream) Flush() error {
	if len(s.buf) == 0 {
		return nil
	}
	_, err := s.w.Write(s.buf)
	s.buf = shrink(s.buf)
	return err
}

// shrink empties a buffer, and lets go one that has become large.
func shrink(b []byte) []byte {
	if cap(b) > 16*bufferBytes {
		return nil
	}
	return b[:0]
}

// Sync syncs a regular file that standard output may be; pipes and terminals need no more.
func (s *stream) Sync() (*Output, error) {
	f, ok := s.w.(interface{ Sync() error })
	if !ok {
		return nil, nil
	}
	err := f.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.EROFS) {
		err = nil
	}
	return nil, err
}

func (s *stream) Close() error { return s.Flush() }
