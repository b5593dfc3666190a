package transcode

import (
	"bytes"
	"encoding/json"
	"math"
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

// AppendString appends s as a JSON string, with the escapes of encoding/json:
// HTML characters and U+2028/9 escaped, invalid UTF-8 replaced.
func AppendString[T string | []byte](dst []byte, s T) []byte {
	dst = append(dst, '"')
	done := 0
	for i := 0; i < len(s); {
		c := s[i]
		if plain[c] {
			i++
			continue
		}
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
			r, n = utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
			switch {
			case r == utf8.RuneError && n == 1:
				e = append(e, `\ufffd`...)
			case r == '\u2028' || r == '\u2029':
				e = append(append(e, `\u202`...), hexDigits[r&15])
			default:
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

// appendJSON appends src as json.Marshal would print a value whose MarshalJSON
// returned src: without white space, HTML characters escaped.
func appendJSON(dst, src []byte) ([]byte, error) {
	if verbatim(src) {
		return append(dst, src...), nil
	}
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
				for i < len(src) && plain[src[i]] {
					i++
				}
				if i >= len(src) {
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
			if want == wantName || want == wantNameOrClose {
				want = wantColon
			} else {
				want = wantMore
			}
			i++
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
