package keyspace

import (
	"bytes"
	"errors"
	"testing"
)

func TestPrefixEnd(t *testing.T) {
	t.Parallel()
	for p, want := range map[string]string{"a": "b", "a/": "a0", "a\xff": "b", "a\xff\xff": "b", "\xff": "\x00", "\xff\xff": "\x00", "": "\x00", "\x00": "\x01"} {
		if got := PrefixEnd([]byte(p)); string(got) != want {
			t.Errorf("PrefixEnd(%q) = %q, want %q", p, got, want)
		}
	}
}

// FuzzPrefix: a key is in Prefix(p) exactly when it starts with p.
func FuzzPrefix(f *testing.F) {
	f.Add([]byte("a"), []byte("ab"))
	f.Add([]byte("a\xff"), []byte("b"))
	f.Add([]byte("\xff\xff"), []byte("\xff\xff\x00"))
	f.Add([]byte{}, []byte("x"))
	f.Fuzz(func(t *testing.T, p, key []byte) {
		if len(key) == 0 {
			return // etcd has no empty key
		}
		if got, want := Prefix(p).Contains(key), bytes.HasPrefix(key, p); got != want {
			t.Errorf("Prefix(%q).Contains(%q) = %t", p, key, got)
		}
		if got, want := From(p).Contains(key), bytes.Compare(key, p) >= 0; got != want {
			t.Errorf("From(%q).Contains(%q) = %t", p, key, got)
		}
		if !All().Contains(key) || !One(key).Contains(key) || One(key).Contains(append(key, 0)) {
			t.Errorf("All or One of %q", key)
		}
	})
}

func TestErrors(t *testing.T) {
	t.Parallel()
	var err error = &CompactedError{Rev: 3, CompactRev: 7}
	if !errors.Is(err, ErrCompacted) || errors.Is(err, ErrFutureRev) || err.Error() != "revision 3 has been compacted; the oldest readable revision is 7" {
		t.Error(err)
	}
	err = &FutureError{Rev: 9, Newest: 7}
	if !errors.Is(err, ErrFutureRev) || err.Error() != "revision 9 does not exist yet; the newest revision is 7" {
		t.Error(err)
	}
	for want, i := range map[int64]Info{1: {}, 5: {CompactRev: 5}, 8: {CompactRev: 5, CompactScheduled: 8}} {
		if i.OldestRev() != want {
			t.Errorf("%+v: %d", i, i.OldestRev())
		}
	}
	if s := (Revision{5, 2}).String() + (Revision{5, 0}).String(); s != "5/25" || !(Revision{5, 0}).Less(Revision{5, 1}) || (Revision{6, 0}).Less(Revision{5, 1}) {
		t.Error(s)
	}
}
