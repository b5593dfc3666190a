package transcode

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// The wire format is read by the rules of Kubernetes' generated code, which
// differ from other protobuf readers in what they tolerate: a field number is cut
// to 32 bits, the bits of a varint above 64 are dropped, groups are skipped.

var (
	errShort   = errors.New("the data ends too early")
	errVarint  = errors.New("a number has more than ten bytes")
	errLength  = errors.New("a length is negative")
	errTag     = errors.New("the field number is not positive")
	errGroup   = errors.New("a group ends that was not begun")
	errType    = errors.New("the wire type is not one of protobuf's")
	errWire    = errors.New("the wire type does not fit the field")
	errNumber  = errors.New("the number is not finite")
	errNotJSON = errors.New("the embedded JSON is not valid")
	errDepth   = errors.New("messages are nested too deeply")
	errSize    = errors.New("the JSON would be too large")
	errInput   = errors.New("the value is too large")
)

// Wire types of protobuf.
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireStart   = 3
	wireEnd     = 4
	wireFixed32 = 5
)

// varint reads a number at b[i:] and returns the index behind it.
func varint(b []byte, i int) (uint64, int, error) {
	var x uint64
	for shift := uint(0); shift < 64; shift += 7 {
		if i >= len(b) {
			return 0, i, errShort
		}
		c := b[i]
		i++
		x |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return x, i, nil
		}
	}
	return 0, i, errVarint
}

// length reads a length at b[i:] and returns the range of the bytes it announces.
func length(b []byte, i int) (from, to int, err error) {
	if i < len(b) && b[i] < 0x80 { // almost always
		from = i + 1
		to = from + int(b[i])
	} else {
		n, j, err := varint(b, i)
		if err != nil {
			return 0, 0, err
		}
		if n > math.MaxInt64 {
			return 0, 0, errLength
		}
		if n > uint64(len(b)-j) {
			return 0, 0, errShort
		}
		from, to = j, j+int(n)
	}
	if to > len(b) {
		return 0, 0, errShort
	}
	return from, to, nil
}

// token is one field on the wire: its number, wire type and the range of its
// value, [from, to). next is where the following field begins.
type token struct {
	number   uint32
	wire     uint8
	from, to int
	next     int
}

// read reads the field at b[i:]. The value of a group is everything up to and
// including its end tag.
func read(b []byte, i int) (token, error) {
	if i+1 < len(b) { // one byte of tag, one of length
		if c, n := b[i], b[i+1]; c < 0x80 && c&7 == wireBytes && c > 7 && n < 0x80 && i+2+int(n) <= len(b) {
			to := i + 2 + int(n)
			return token{number: uint32(c >> 3), wire: wireBytes, from: i + 2, to: to, next: to}, nil
		}
	}
	t, err := skip(b, i)
	if err == nil && t.number == 0 {
		err = errTag
	}
	return t, err
}

// skip is read, but takes any field number; 0 stands for one that is not positive.
func skip(b []byte, i int) (t token, err error) {
	var tag uint64
	if c := b[i]; c < 0x80 {
		tag, i = uint64(c), i+1
	} else if tag, i, err = varint(b, i); err != nil {
		return t, err
	}
	n := int32(tag >> 3)
	t.wire = uint8(tag & 7)
	if t.wire == wireEnd {
		return t, errGroup
	}
	t.number, t.from = uint32(max(n, 0)), i
	switch t.wire {
	case wireVarint:
		if i < len(b) && b[i] < 0x80 {
			t.to = i + 1
		} else if _, t.to, err = varint(b, i); err != nil {
			return t, err
		}
	case wireBytes:
		if t.from, t.to, err = length(b, i); err != nil {
			return t, err
		}
	case wireFixed64:
		t.to = i + 8
	case wireFixed32:
		t.to = i + 4
	case wireStart:
		if t.to, err = group(b, i); err != nil {
			return t, err
		}
	default:
		return t, errType
	}
	if t.to > len(b) {
		return t, errShort
	}
	t.next = t.to
	return t, nil
}

// group returns the index behind the end tag of the group whose content begins
// at b[i:]. Field numbers inside are not looked at, as in Kubernetes.
func group(b []byte, i int) (int, error) {
	for depth := 1; depth > 0; {
		tag, j, err := varint(b, i)
		if err != nil {
			return 0, err
		}
		i = j
		switch tag & 7 {
		case wireVarint:
			if _, i, err = varint(b, i); err != nil {
				return 0, err
			}
		case wireFixed64:
			i += 8
		case wireBytes:
			if _, i, err = length(b, i); err != nil {
				return 0, err
			}
		case wireStart:
			depth++
		case wireEnd:
			depth--
		case wireFixed32:
			i += 4
		default:
			return 0, errType
		}
		if i > len(b) {
			return 0, errShort
		}
	}
	return i, nil
}

// Walk calls f for the fields of message b with the given numbers, which must be
// length-delimited; others are skipped. It stops at the first damage, or when f
// fails.
func Walk(b []byte, f func(number uint32, value []byte) error, numbers ...uint32) error {
	for i := 0; i < len(b); {
		tok, err := read(b, i)
		if err != nil {
			return fmt.Errorf("byte %d: %w", i, err)
		}
		if slices.Contains(numbers, tok.number) {
			if tok.wire != wireBytes {
				return fmt.Errorf("byte %d: field %d: %w", i, tok.number, errWire)
			}
			if err := f(tok.number, b[tok.from:tok.to]); err != nil {
				return fmt.Errorf("field %d: %w", tok.number, err)
			}
		}
		i = tok.next
	}
	return nil
}
