package inspect

import (
	"bytes"
	"slices"
)

// Access is what a permission is for.
type Access int

// Read and Write; both are Read|Write.
const (
	Read Access = 1 << iota
	Write
)

// Grant is one permission of a role: of one key (no End), or of [Key, End), where "\x00"
// as End is that of the keyspace.
type Grant struct {
	Role     string
	Access   Access
	Key, End []byte
}

// interval is [from, to); a nil to is the end of the keyspace.
type interval struct {
	from, to []byte
	role     string
}

func newInterval(key, end []byte) interval {
	switch {
	case len(end) == 0:
		return interval{from: key, to: append(bytes.Clone(key), 0)}
	case len(end) == 1 && end[0] == 0:
		return interval{from: key}
	}
	return interval{from: key, to: end}
}

// Allowed tells whether grants together cover a range of keys, and names the roles that
// are needed for it, each once. A server joins the ranges of all roles of a user.
func Allowed(grants []Grant, need Access, key, end []byte) (by []string, ok bool) {
	var have []interval
	for _, g := range grants {
		if g.Access&need == need {
			i := newInterval(g.Key, g.End)
			i.role = g.Role
			have = append(have, i)
		}
	}
	slices.SortStableFunc(have, func(a, b interval) int { return bytes.Compare(a.from, b.from) })
	want := newInterval(key, end)
	at := want.from
	for {
		// Of those that begin at or before at, the one that reaches farthest.
		var best *interval
		for i := range have {
			if h := &have[i]; bytes.Compare(h.from, at) <= 0 && (h.to == nil || bytes.Compare(h.to, at) > 0) && (best == nil || farther(h.to, best.to)) {
				best = h
			}
		}
		if best == nil {
			return nil, false
		}
		if !slices.Contains(by, best.role) {
			by = append(by, best.role)
		}
		if best.to == nil || want.to != nil && bytes.Compare(best.to, want.to) >= 0 {
			return by, true
		}
		at = best.to
	}
}

// farther tells whether end a lies behind end b; nil is the end of the keyspace.
func farther(a, b []byte) bool {
	return b != nil && (a == nil || bytes.Compare(a, b) > 0)
}
