package transcode

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// plain marks the bytes that encoding/json copies into a string unchanged.
var plain = func() (t [256]bool) {
	for c := 0x20; c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\' && c != '<' && c != '>' && c != '&'
	}
	return t
}()

const (
	ones  = 0x0101010101010101
	highs = 0x80 * ones
)

// special marks bytes of w, eight bytes of text with the first one lowest, that are
// not plain by their highest bit. The lowest mark is right; one above it may be a
// plain byte.
func special(w uint64) uint64 {
	// x has a zero byte where w has the byte that is looked for, and (x-1)&^x has the
	// highest bit set where x is zero. Bytes above a zero one may borrow.
	quote := w&^(0x04*ones) ^ '"'*ones // " and &
	angle := w&^(0x02*ones) ^ '<'*ones // < and >
	slash := w ^ '\\'*ones
	return (w | (w-0x20*ones)&^w | (quote-ones)&^quote | (angle-ones)&^angle | (slash-ones)&^slash) & highs
}

// plainEnd returns the index of the first byte of s[i:] that is not plain, len(s) if
// there is none.
func plainEnd(s []byte, i int) int {
	for ; i+8 <= len(s); i += 8 {
		if m := special(binary.LittleEndian.Uint64(s[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
	}
	for i < len(s) && plain[s[i]] {
		i++
	}
	return i
}

// allPlain tells whether every byte of s is plain.
func allPlain(s []byte) bool {
	n := len(s)
	var m uint64
	switch {
	case n >= 8:
		// The last eight bytes may overlap those before.
		m = special(binary.LittleEndian.Uint64(s[n-8:]))
		for ; len(s) > 8; s = s[8:] {
			m |= special(binary.LittleEndian.Uint64(s))
		}
	case n >= 4:
		m = special(uint64(binary.LittleEndian.Uint32(s)) | uint64(binary.LittleEndian.Uint32(s[n-4:]))<<32)
	case n > 0:
		return plain[s[0]] && plain[s[n/2]] && plain[s[n-1]]
	}
	return m == 0
}

// AppendString appends s as a JSON string, with the escapes of encoding/json:
// HTML characters and U+2028/9 escaped, invalid UTF-8 replaced.
func AppendString[T string | []byte](dst []byte, s T) []byte {
	return appendString(dst, []byte(s))
}

func appendString(dst, s []byte) []byte {
	if !allPlain(s) {
		return appendEscaped(dst, s)
	}
	n := len(dst)
	if cap(dst)-n < len(s)+2 {
		dst = slices.Grow(dst, len(s)+2)
	}
	dst = dst[:n+len(s)+2]
	dst[n] = '"'
	copy(dst[n+1:], s)
	dst[n+1+len(s)] = '"'
	return dst
}

// appendEscaped is AppendString for any text.
func appendEscaped(dst, s []byte) []byte {
	dst = append(dst, '"')
	done := 0
	for i := 0; ; {
		if i = plainEnd(s, i); i == len(s) {
			break
		}
		c := s[i]
		n := 1
		var esc [6]byte
		e := esc[:0]
		if c < utf8.RuneSelf {
			switch c {
			case '"', '\\':
				e = append(e, '\\', c)
			case '\b':
				e = append(e, `\b`...)
			case '\f':
				e = append(e, `\f`...)
			case '\n':
				e = append(e, `\n`...)
			case '\r':
				e = append(e, `\r`...)
			case '\t':
				e = append(e, `\t`...)
			default:
				e = append(e, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			}
		} else {
			var r rune
			for r, n = utf8.DecodeRune(s[i:]); r >= utf8.RuneSelf && r != utf8.RuneError && r|1 != '\u2029'; {
				i += n // one such character rarely comes alone
				r, n = utf8.DecodeRune(s[i:])
			}
			switch {
			case r == utf8.RuneError && n == 1:
				e = append(e, `\ufffd`...)
			case r|1 == '\u2029':
				e = append(append(e, `\u202`...), hexDigits[r&15])
			case r < utf8.RuneSelf:
				continue
			default: // the end, or U+FFFD itself
				i += n
				continue
			}
		}
		dst = append(append(dst, s[done:i]...), e...)
		i += n
		done = i
	}
	return append(append(dst, s[done:]...), '"')
}

// appendDouble appends a number as encoding/json prints a float64.
func appendDouble(dst []byte, bits uint64) ([]byte, error) {
	f := math.Float64frombits(bits)
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return dst, errNumber
	}
	if a := math.Abs(f); a == 0 || a >= 1e-6 && a < 1e21 {
		return strconv.AppendFloat(dst, f, 'f', -1, 64), nil
	}
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	// A one-digit exponent has no leading zero in JavaScript: 1e-9, not 1e-09.
	if n := len(dst); dst[n-4] == 'e' && dst[n-2] == '0' {
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst, nil
}

// json is appendJSON, but knows again what the objects before had: managedFields of
// one manager are the same in most objects of a kind.
func (t *Transcoder) json(dst, src []byte) ([]byte, error) {
	known := &t.checked[len(src)%len(t.checked)]
	switch {
	case len(src) == 0 || len(src) > maxChecked:
		return appendJSON(dst, src)
	case bytes.Equal(*known, src):
	case verbatim(src):
		*known = append((*known)[:0], src...)
	default:
		return compactJSON(dst, src)
	}
	return append(dst, src...), nil
}

// maxChecked bounds what Transcoder.checked keeps.
const maxChecked = 8 << 10

// appendJSON appends src as json.Marshal would print a value whose MarshalJSON
// returned src: without white space, HTML characters escaped.
func appendJSON(dst, src []byte) ([]byte, error) {
	if verbatim(src) {
		return append(dst, src...), nil
	}
	return compactJSON(dst, src)
}

// compactJSON is appendJSON for what is not verbatim.
func compactJSON(dst, src []byte) ([]byte, error) {
	var b bytes.Buffer
	if err := json.Compact(&b, src); err != nil {
		return dst, errNotJSON
	}
	var h bytes.Buffer
	json.HTMLEscape(&h, b.Bytes())
	return append(dst, h.Bytes()...), nil
}

// States of verbatim: what may come next.
const (
	wantValue        = iota
	wantValueOrClose // after [
	wantName         // after a comma in an object
	wantNameOrClose  // after {
	wantColon
	wantMore // comma or the closing bracket
)

// verbatim tells whether src is one JSON value that json.Marshal would print
// byte for byte as it is. It checks only what managedFields and the like are made
// of and says no to the rest, which is then checked by encoding/json.
func verbatim(src []byte) bool {
	var open [64]byte // brackets; deeper nesting is left to encoding/json
	depth, want := 0, wantValue
	for i := 0; i < len(src); {
		switch c := src[i]; c {
		case '"':
			if want == wantColon || want == wantMore {
				return false
			}
			for i++; ; {
				if i = plainEnd(src, i); i >= len(src) {
					return false
				}
				if src[i] == '"' {
					break
				}
				if src[i] != '\\' || i+1 >= len(src) {
					return false
				}
				switch src[i+1] {
				case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
					i += 2
				default:
					return false
				}
			}
			i++
			switch {
			case want != wantName && want != wantNameOrClose:
				want = wantMore
			case i+3 <= len(src) && src[i] == ':' && src[i+1] == '{' && src[i+2] == '}':
				// Most names in managedFields have nothing below them.
				i, want = i+3, wantMore
			default:
				want = wantColon
			}
		case ':':
			if want != wantColon {
				return false
			}
			want = wantValue
			i++
		case ',':
			if want != wantMore || depth == 0 {
				return false
			}
			want = wantValue
			if open[depth-1] == '{' {
				want = wantName
			}
			i++
		case '{', '[':
			if want > wantValueOrClose || depth == len(open) {
				return false
			}
			open[depth] = c
			depth++
			want = wantValueOrClose
			if c == '{' {
				want = wantNameOrClose
			}
			i++
		case '}', ']':
			// '}' is '{'+2 and ']' is '['+2.
			if depth == 0 || open[depth-1] != c-2 {
				return false
			}
			if want != wantMore && !(c == '}' && want == wantNameOrClose) && !(c == ']' && want == wantValueOrClose) {
				return false
			}
			depth--
			want = wantMore
			i++
		case '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			j := i + 1
			for j < len(src) && src[j] >= '0' && src[j] <= '9' {
				j++
			}
			if want > wantValueOrClose || c == '0' && j > i+1 {
				return false
			}
			i, want = j, wantMore
		case 't', 'f', 'n':
			word := "true"
			if c == 'f' {
				word = "false"
			} else if c == 'n' {
				word = "null"
			}
			if want > wantValueOrClose || len(src)-i < len(word) || string(src[i:i+len(word)]) != word {
				return false
			}
			i, want = i+len(word), wantMore
		default:
			return false
		}
	}
	return depth == 0 && want == wantMore
}
