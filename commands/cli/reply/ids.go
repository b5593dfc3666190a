package reply

import (
	"bytes"
	"strconv"
)

// names are the ids in etcd's JSON.
var names = map[string]bool{"cluster_id": true, "member_id": true, "memberID": true, "ID": true, "id": true, "leader": true, "lease": true}

// quoteIDs copies a JSON document that encoding/json wrote; numbers under the names
// of ids become strings, hexadecimal ones with hexed. Everything else stays as it is.
func quoteIDs(src []byte, hexed bool) (dst []byte) {
	for len(src) > 0 {
		i := bytes.IndexByte(src, '"')
		if i < 0 {
			return append(dst, src...)
		}
		end := i + 1
		for end < len(src) && src[end] != '"' {
			if src[end] == '\\' {
				end++
			}
			end++
		}
		if end >= len(src) {
			return append(dst, src...)
		}
		name := src[i+1 : end]
		dst, src = append(dst, src[:end+1]...), src[end+1:]
		if len(src) == 0 || src[0] != ':' || !names[string(name)] {
			continue
		}
		n := 1
		for n < len(src) && (src[n] == '-' || src[n] >= '0' && src[n] <= '9') {
			n++
		}
		if n == 1 {
			continue
		}
		dst = append(append(dst, ':', '"'), id(src[1:n], hexed)...)
		dst, src = append(dst, '"'), src[n:]
	}
	return dst
}

// id writes a decimal id. A lease's is signed and shown as its bits, as etcd does.
func id(text []byte, hexed bool) []byte {
	if !hexed {
		return text
	}
	if n, err := strconv.ParseInt(string(text), 10, 64); err == nil {
		return strconv.AppendUint(nil, uint64(n), 16)
	}
	n, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		return text
	}
	return strconv.AppendUint(nil, n, 16)
}
