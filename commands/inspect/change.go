package inspect

import (
	"fmt"
	"slices"
	"strings"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

// changes says what a record changed against the one before (nil: there was
// none), as data and as lines for people. now is its value decoded; sealed counts
// the pairs of which one could not be opened.
func changes(dec *cli.Decoding, prev *keyspace.Record, rec keyspace.Record, now cli.Value, managed bool, sealed *int) ([]inspect.Change, []string, error) {
	if prev == nil {
		if rec.Version > 1 {
			return nil, []string{"the version before was compacted away"}, nil
		}
		return nil, []string{"created"}, nil
	}
	before := dec.Value(*prev)
	if before.JSON() == nil || now.JSON() == nil {
		note := fmt.Sprintf("value: %d → %d bytes", len(prev.Value), len(rec.Value))
		if before.Sealed() || now.Sealed() {
			*sealed++
			note += ", sealed"
		}
		notes := []string{note}
		if before.Problem != "" && before.Problem != now.Problem {
			notes = append(notes, "before: "+before.Problem)
		}
		if now.Problem != "" {
			notes = append(notes, now.Problem)
		}
		return nil, notes, nil
	}
	ch, err := inspect.Changes(before.JSON(), now.JSON())
	if err != nil {
		return nil, nil, fmt.Errorf("compare versions of %q at revisions %d and %d: %w", rec.Key, prev.ModRev, rec.ModRev, err)
	}
	if !managed {
		ch = slices.DeleteFunc(ch, func(c inspect.Change) bool { return strings.HasPrefix(c.Path, ".metadata.managedFields") })
	}
	if prev.Lease != rec.Lease {
		ch = append(ch, inspect.Change{Path: "(lease)", Old: quoted(prev.Lease), New: quoted(rec.Lease)})
	}
	if len(ch) == 0 {
		return nil, []string{"nothing but what is hidden or not decoded"}, nil
	}
	var notes []string
	for _, c := range ch {
		notes = append(notes, c.String())
	}
	return ch, notes, nil
}

// warnSealed says once what the pairs that stayed sealed lack.
func warnSealed(env *cli.Env, decoder *cli.DecodeFlags, sealed int) {
	if sealed > 0 {
		env.Warn("%d changed values are sealed, and what changed inside is not shown; %s", sealed, decoder.SealedHint())
	}
}

func quoted(lease int64) []byte {
	if lease == 0 {
		return []byte("null")
	}
	return fmt.Appendf(nil, "%q", cli.LeaseID(lease))
}

// addNotes adds a row with a CHANGE column, and a row of its own for each note
// after the first.
func addNotes(t *output.Table, row, notes []string) {
	t.Columns = append(t.Columns, output.Column{Name: "CHANGE", Wrap: true})
	note := ""
	if len(notes) > 0 {
		note = notes[0]
	}
	t.Rows = append(t.Rows, append(row, note))
	for _, n := range notes[min(1, len(notes)):] {
		more := make([]string, len(t.Columns))
		more[len(more)-1] = n
		t.Rows = append(t.Rows, more)
	}
}
