package walfile

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"google.golang.org/protobuf/encoding/protowire"
)

// Types of records.
const (
	recMetadata = 1
	recEntry    = 2
	recState    = 3
	recCRC      = 4
	recSnapshot = 5
)

const (
	frameLen = 8
	// A crash leaves sectors of zeros in the last record, which were never written.
	sectorLen = 512
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// reader goes through the segments of a log.
type reader struct {
	log      *Log
	crc      uint32
	chained  bool // crc is of what was read, not the start of something
	metadata []byte
	term     uint64 // of the last state of raft
	buf      []byte
}

// segment reads one file. What is wrong with its content goes into the log.
func (r *reader) segment(ctx context.Context, f *os.File, last bool) error {
	st, err := f.Stat()
	if err != nil {
		return fmt.Errorf("read write-ahead log: %w", err)
	}
	size := st.Size()
	in := bufio.NewReaderSize(io.NewSectionReader(f, 0, size), 1<<20)
	file := len(r.log.files) - 1
	at := int64(0)
	for n := 0; ; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		frame, reason, err := r.frame(in, size-at)
		switch {
		case err != nil:
			return fmt.Errorf("read %s: %w", f.Name(), err)
		case reason == "" && frame.total == 0:
			// The end, or room that was made for later.
			if !last {
				return nil
			}
			more, err := written(in)
			if err != nil {
				return fmt.Errorf("read %s: %w", f.Name(), err)
			}
			if more {
				r.log.Torn = &TornEnd{Path: f.Name(), Offset: at, More: true}
			}
			return nil
		case reason == "":
			reason = r.record(file, at, frame)
		}
		if reason != "" {
			// After a crash the last record may be there in part. Only the last
			// segment can have one.
			if last && torn(frame, at) {
				more, err := false, error(nil)
				if !frame.short { // else all that follows is of this record
					more, err = written(in)
				}
				if err != nil {
					return fmt.Errorf("read %s: %w", f.Name(), err)
				}
				r.log.Torn = &TornEnd{Path: f.Name(), Offset: at, More: more}
			} else {
				r.log.Damage = &DamageError{Path: f.Name(), Offset: at, Reason: reason}
			}
			return nil
		}
		at += frame.total
	}
}

// frame is one frame as it was read.
type frame struct {
	total int64  // bytes with length and padding; 0: there is none
	body  []byte // without padding, valid until the next frame
	all   []byte // with padding
	short bool   // the file ends before the frame does
}

// frame reads the next frame; left is what the file has. reason says what is wrong
// with it.
func (r *reader) frame(in *bufio.Reader, left int64) (fr frame, reason string, err error) {
	if left == 0 {
		return fr, "", nil
	}
	var head [frameLen]byte
	if _, err := io.ReadFull(in, head[:min(frameLen, left)]); err != nil {
		return fr, "", unexpected(err)
	}
	if left < frameLen {
		return frame{short: true}, "the length of a record is cut short", nil
	}
	length := binary.LittleEndian.Uint64(head[:])
	if length == 0 {
		return fr, "", nil
	}
	size, pad := int64(length&^(0xff<<56)), int64(0)
	if length>>63 != 0 {
		pad = int64(length >> 56 & 7)
	}
	if size+pad > left-frameLen {
		return frame{short: true}, fmt.Sprintf("a record of %d bytes does not fit into the rest of the file, %d bytes", size, left-frameLen), nil
	}
	if int64(cap(r.buf)) < size+pad {
		r.buf = make([]byte, size+pad)
	}
	b := r.buf[:size+pad]
	if _, err := io.ReadFull(in, b); err != nil {
		return fr, "", unexpected(err)
	}
	return frame{total: frameLen + size + pad, body: b[:size], all: b}, "", nil
}

// written tells whether anything but zeros follows. Behind the end of a log that
// is what a crash left of a record whose first sector was not written yet, or a
// length that damage made zero.
func written(in *bufio.Reader) (bool, error) {
	var zeros [4 << 10]byte
	for {
		b, err := in.Peek(len(zeros))
		if !bytes.Equal(b, zeros[:len(b)]) {
			return true, nil
		}
		switch {
		case errors.Is(err, io.EOF):
			return false, nil
		case err != nil:
			return false, err
		}
		if _, err := in.Discard(len(b)); err != nil {
			return false, err
		}
	}
}

// unexpected: the file was longer a moment ago.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// torn tells whether a bad frame looks like one that a crash kept from being
// written: a sector of zeros, or the end of the file.
func torn(fr frame, at int64) bool {
	if fr.short {
		return true
	}
	var zeros [sectorLen]byte
	b := fr.all
	for at += frameLen; len(b) > 0; {
		n := min(sectorLen-int(at%sectorLen), len(b))
		if bytes.Equal(b[:n], zeros[:n]) {
			return true
		}
		b, at = b[n:], at+int64(n)
	}
	return false
}

// record takes one record; reason says what is wrong with it.
func (r *reader) record(file int, at int64, fr frame) (reason string) {
	rec, ok := decodeRecord(fr.body)
	if !ok {
		return "a record does not decode"
	}
	if rec.typ == recCRC {
		if r.chained && rec.crc != r.crc {
			return fmt.Sprintf("the segment goes on from checksum %08x, the one before ended with %08x", rec.crc, r.crc)
		}
		r.crc, r.chained = rec.crc, true
		return ""
	}
	sum := crc32.Update(r.crc, castagnoli, rec.data)
	if sum != rec.crc {
		return fmt.Sprintf("a record has checksum %08x, its data %08x", rec.crc, sum)
	}
	r.crc, r.chained = sum, true
	switch rec.typ {
	case recMetadata:
		return r.takeMetadata(rec.data)
	case recEntry:
		return r.entry(file, at, rec)
	case recState:
		term, ok1 := varintField(rec.data, 1)
		commit, ok2 := varintField(rec.data, 3)
		if !ok1 || !ok2 {
			return "the state of raft does not decode"
		}
		if term < r.term || term == 0 && commit > 0 {
			return fmt.Sprintf("the state of raft goes back from term %d to %d", r.term, term)
		}
		r.term = term
		// It is written anew at the head of every segment; an older one is none of
		// a lower commit.
		r.log.Commit = max(r.log.Commit, commit)
		return ""
	case recSnapshot:
		index, ok := varintField(rec.data, 1)
		if !ok {
			return "the mark of a snapshot does not decode"
		}
		r.log.Snapshot = max(r.log.Snapshot, index)
		return ""
	}
	return fmt.Sprintf("a record is of an unknown type %d", rec.typ)
}

func (r *reader) takeMetadata(b []byte) (reason string) {
	if r.metadata != nil {
		if !bytes.Equal(r.metadata, b) {
			return "the segment belongs to another member"
		}
		return ""
	}
	node, ok1 := varintField(b, 1)
	cluster, ok2 := varintField(b, 2)
	if !ok1 || !ok2 {
		return "the ids of cluster and member do not decode"
	}
	r.metadata = bytes.Clone(b)
	r.log.MemberID, r.log.ClusterID = node, cluster
	return ""
}

// entry notes a raftpb.Entry: type, term, index as varints 1 to 3, data as 4.
func (r *reader) entry(file int, at int64, rec rawRecord) (reason string) {
	p := place{file: file}
	var index uint64
	for b := rec.data; len(b) > 0; {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return "an entry does not decode"
		}
		b = b[n:]
		switch {
		case num <= 3 && typ == protowire.VarintType:
			x, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return "an entry does not decode"
			}
			switch num {
			case 1:
				p.typ = EntryType(x)
			case 2:
				p.term = x
			case 3:
				index = x
			}
			b = b[n:]
		case num == 4 && typ == protowire.BytesType:
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return "an entry does not decode"
			}
			// Where it lies in the file: behind everything of the frame that comes
			// before it.
			p.size = len(v)
			p.offset = at + frameLen + int64(rec.dataAt+len(rec.data)-len(b)+n-len(v))
			b = b[n:]
		default:
			if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
				return "an entry does not decode"
			}
			b = b[n:]
		}
	}
	if index == 0 {
		return "an entry has no index"
	}
	if reason := r.follows(index, p); reason != "" {
		return reason
	}
	r.log.add(index, p)
	return ""
}

// follows tells why an entry cannot stand where it does. The checksum of a record
// covers neither its type nor what is missing before it, so a log is also held
// against what raft promises: entries follow each other, what was committed is
// never replaced, terms do not fall.
func (r *reader) follows(index uint64, p place) (reason string) {
	l := r.log
	switch {
	case p.typ > ConfChangeV2:
		return fmt.Sprintf("entry %d is of an unknown type %d", index, p.typ)
	case index > l.Last+1 && index > l.Snapshot+1:
		// Only a snapshot from the leader takes the place of entries.
		return fmt.Sprintf("entry %d comes behind entry %d; what lies between is missing", index, l.Last)
	case index <= min(l.Last, l.Commit) && index >= l.First:
		return fmt.Sprintf("entry %d is there twice, although it was committed the first time", index)
	}
	if before, ok := l.Term(index - 1); ok && p.term < before {
		return fmt.Sprintf("entry %d is of term %d, the one before it of %d", index, p.term, before)
	}
	return ""
}

// rawRecord is a walpb.Record: type and crc as varints 1 and 2, data as 3.
type rawRecord struct {
	typ    int64
	crc    uint32
	data   []byte
	dataAt int // where data starts in the record
}

func decodeRecord(b []byte) (r rawRecord, ok bool) {
	all := len(b)
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return r, false
		}
		b = b[n:]
		switch {
		case num <= 2 && typ == protowire.VarintType:
			x, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return r, false
			}
			if num == 1 {
				r.typ = int64(x)
			} else {
				r.crc = uint32(x)
			}
			b = b[n:]
		case num == 3 && typ == protowire.BytesType:
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return r, false
			}
			r.data, r.dataAt = v, all-len(b)+n-len(v)
			b = b[n:]
		default:
			if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
				return r, false
			}
			b = b[n:]
		}
	}
	return r, true
}

// varintField returns one number of a message, 0 when it is not there.
func varintField(b []byte, want protowire.Number) (v uint64, ok bool) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return 0, false
		}
		b = b[n:]
		if num == want && typ == protowire.VarintType {
			if v, n = protowire.ConsumeVarint(b); n < 0 {
				return 0, false
			}
		} else if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return 0, false
		}
		b = b[n:]
	}
	return v, true
}
