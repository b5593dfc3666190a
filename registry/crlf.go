package registry

import "bytes"

// withoutCR undoes what a terminal does to a value that is printed on it: every
// newline byte gets a carriage return before it. ok is false when there is no such
// pair in value.
func withoutCR(value []byte) (repaired []byte, ok bool) {
	if !bytes.Contains(value, []byte("\r\n")) {
		return value, false
	}
	return bytes.ReplaceAll(value, []byte("\r\n"), []byte("\n")), true
}

// lostCR tells whether a damaged envelope looks as if something turned \r\n into
// \n: it has newline bytes, no \r\n at all, and is short by no more bytes than it
// has newlines.
func lostCR(value []byte) bool {
	lines := bytes.Count(value, []byte{'\n'})
	if lines == 0 || bytes.Contains(value, []byte("\r\n")) {
		return false
	}
	short := missing(value)
	return short > 0 && short <= lines
}

// missing returns by how many bytes the last field of an envelope runs past its
// end; 0 when it does not.
func missing(value []byte) int {
	b := value[len(magic):]
	for i := 0; i < len(b); {
		tag := b[i]
		i++
		if tag&7 != 2 || tag>>3 == 0 || tag>>3 > 4 {
			return 0
		}
		n, shift := 0, uint(0)
		for {
			if i >= len(b) || shift > 28 {
				return 0
			}
			c := b[i]
			i++
			n |= int(c&0x7f) << shift
			shift += 7
			if c < 0x80 {
				break
			}
		}
		if i+n > len(b) {
			return i + n - len(b)
		}
		i += n
	}
	return 0
}
