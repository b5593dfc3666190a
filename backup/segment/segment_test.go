package segment_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/etcdctl-plus/etcdctl-plus/backup/segment"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

var began = time.Unix(1700000000, 5)

// events of a revision: as many as its number modulo 4, and one.
func events(rev int64) (all []keyspace.Event) {
	for i := range rev%4 + 1 {
		e := keyspace.Event{Rev: keyspace.Revision{Main: rev, Sub: i}, Record: keyspace.Record{Key: fmt.Appendf(nil, "key/%d", i), ModRev: rev}}
		if i == 2 {
			e.Type = keyspace.Delete
		} else {
			e.Record.Value, e.Record.CreateRev, e.Record.Version, e.Record.Lease = bytes.Repeat([]byte{byte(rev)}, int(rev*7)), 2, rev, rev%3
		}
		all = append(all, e)
	}
	return all
}

func write(tb testing.TB, first, last int64, recipients ...age.Recipient) []byte {
	tb.Helper()
	var b bytes.Buffer
	w, err := segment.NewWriter(&b, first, 0xabc, began, recipients...)
	if err != nil {
		tb.Fatal(err)
	}
	for rev := first; rev <= last; rev++ {
		if err := w.Append(rev, began.Add(time.Duration(rev)*time.Second), events(rev), func(id int64) (int64, error) { return 60 * (id - 1), nil }); err != nil {
			tb.Fatal(err)
		}
	}
	if _, err := w.Seal(-5, 99); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func read(b []byte, identities ...age.Identity) (out []string, info segment.Info, err error) {
	r, err := segment.NewReader(bytes.NewReader(b), identities...)
	if err != nil {
		return nil, info, err
	}
	for rev, err := range r.Revisions() {
		if err != nil {
			return nil, info, err
		}
		out = append(out, fmt.Sprintf("%d %s %v %v", rev.Rev, rev.Time.Sub(began), rev.Events, rev.Leases))
	}
	return out, r.Info(), nil
}

func TestSegment(t *testing.T) {
	t.Parallel()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	for _, sealed := range []bool{false, true} {
		var recipients []age.Recipient
		var identities []age.Identity
		if sealed {
			recipients, identities = append(recipients, id.Recipient()), append(identities, id)
		}
		b := write(t, 7, 40, recipients...)
		got, info, err := read(b, identities...)
		if err != nil {
			t.Fatal(err)
		}
		if want := (segment.Info{First: 7, Last: 40, Cluster: 0xabc, Begun: began, Revisions: 34, Changes: info.Changes, Ahead: -5, Digest: 99}); !reflect.DeepEqual(info, want) {
			t.Errorf("%+v, want %+v", info, want)
		}
		var want []string
		seen := map[int64]bool{}
		for rev := int64(7); rev <= 40; rev++ {
			var leases map[int64]int64
			for _, e := range events(rev) {
				// Lease 1 is one whose time to live is not known.
				if id := e.Record.Lease; id != 0 && !seen[id] {
					if seen[id] = true; id > 1 {
						leases = map[int64]int64{id: 60 * (id - 1)}
					}
				}
			}
			want = append(want, fmt.Sprintf("%d %s %v %v", rev, time.Duration(rev)*time.Second, events(rev), leases))
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%v\nwant %v", got, want)
		}
		if sealed {
			if _, _, err := read(b); !errors.Is(err, segment.ErrEncrypted) {
				t.Errorf("without an identity: %v", err)
			}
		}
	}
}

// Each flipped bit is found, each cut, and whatever stands behind it.
func TestDamaged(t *testing.T) {
	t.Parallel()
	b := write(t, 3, 9)
	for n := range b {
		if _, _, err := read(b[:n]); !errors.Is(err, segment.ErrDamaged) {
			t.Fatalf("the first %d bytes: %v", n, err)
		}
		for bit := range 8 {
			f := bytes.Clone(b)
			f[n] ^= 1 << bit
			if _, _, err := read(f); !errors.Is(err, segment.ErrDamaged) {
				t.Fatalf("bit %d of byte %d: %v", bit, n, err)
			}
		}
	}
	for _, more := range [][]byte{{0}, b, bytes.Repeat([]byte{1}, 100)} {
		if _, _, err := read(append(bytes.Clone(b), more...)); !errors.Is(err, segment.ErrDamaged) {
			t.Errorf("%d bytes more: %v", len(more), err)
		}
	}
}

func TestGap(t *testing.T) {
	t.Parallel()
	w, err := segment.NewWriter(io.Discard, 3, 1, began)
	if err != nil {
		t.Fatal(err)
	}
	none := func(int64) (int64, error) { return 0, nil }
	if err := w.Append(4, began, events(4), none); !errors.Is(err, segment.ErrGap) {
		t.Error(err)
	}
	if err := w.Append(3, began, nil, none); !errors.Is(err, segment.ErrGap) {
		t.Error("a revision without a change", err)
	}
	if err := w.Append(3, began, events(3), none); err != nil {
		t.Error(err)
	}
	if err := w.Append(3, began, events(3), none); !errors.Is(err, segment.ErrGap) {
		t.Error(err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(write(f, 3, 9))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, info, err := read(b)
		if err == nil && (int64(len(got)) != info.Revisions || info.Last-info.First+1 != info.Revisions) {
			t.Fatalf("%d, %+v", len(got), info)
		}
	})
}
