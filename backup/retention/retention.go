// Package retention decides which backups are kept and which may be removed. It
// is pure: it reads no clock and no store.
//
// # What is newer
//
// Not times but what was counted tells which of two backups is newer: the sequence
// in which a repository took them, and the revision of the cluster they hold. A
// backup stands in for an older one only if neither is smaller, and if it is not
// damaged. On an ordinary history that is the order in which backups were taken.
// Where the two disagree, neither stands in for the other: a copy of a member that
// lagged behind does not push out a newer revision, and the backups of a cluster
// that was restored to an older revision under its old id are not pushed out by
// those from before, until they have passed them.
//
// Times come from the manifests and are only used to tell whether two backups are
// of the same hour, day, week, month or year. A clock that was wrong can therefore
// put a backup into the wrong day, where the newest of that day is kept as always,
// but it never turns the order around.
//
// # Rules
//
// A backup is kept if any rule keeps it. Last keeps what fewer than that many
// backups stand in for. Hourly, Daily, Weekly, Monthly and Yearly keep the newest
// of each of the last so many hours, days and so on that have backups at all: hours
// without one do not count. Within keeps what is no older than the newest backup
// by that much. Besides, always kept are:
//
//   - the newest verified backup, also when newer ones are damaged
//   - whatever no newer one stands in for
//   - what is not ours, and what has no time
//
// Each cluster is judged for itself. Damaged backups take no place from others;
// they go when the rules would let a sound one in their place go.
//
// Applied again to what was kept, with the same policy and not earlier, a policy
// keeps all of it as long as Within has not run out: every rule looks only at what
// is newer.
package retention

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Policy says what is kept. The zero value keeps nothing and is refused.
type Policy struct {
	Last    int
	Hourly  int
	Daily   int
	Weekly  int // weeks of ISO 8601, from Monday
	Monthly int
	Yearly  int
	// Within keeps all that is no older than this, counted from the newest backup
	// of the cluster, or from now if that is in the future of now.
	Within time.Duration
	// Location is where hours and days begin; nil: UTC.
	Location *time.Location
}

// ErrKeepsNothing says that a policy would remove everything.
var ErrKeepsNothing = errors.New("this policy keeps nothing")

// Item is a backup as its manifest describes it.
type Item struct {
	ID       string // unique
	Cluster  string // each is judged for itself
	Sequence int64  // counts the backups of a repository
	Revision int64
	Time     time.Time // when it was taken
	Verified bool      // it was read in full and found sound
	Damaged  bool      // it was found damaged
	Foreign  bool      // not written by us: never removed, never counted
}

// Decision is what becomes of one item, and why.
type Decision struct {
	Item    Item
	Keep    bool
	Reasons []string // at least one
}

// Check tells whether a policy can be applied. A policy without any rule is
// ErrKeepsNothing.
func (p Policy) Check() error {
	for _, r := range p.rules() {
		if r.count < 0 {
			return fmt.Errorf("keep %d %s: a number of backups is not negative", r.count, r.name)
		}
	}
	if p.Within < 0 {
		return fmt.Errorf("keep within %s: a duration is not negative", p.Within)
	}
	p.Location = nil
	if p == (Policy{}) {
		return ErrKeepsNothing
	}
	return nil
}

// rule is one kind of Policy's numbers.
type rule struct {
	name  string
	count int
	slot  func(time.Time) string // nil: every backup is its own
}

func (p Policy) rules() []rule {
	format := func(layout string) func(time.Time) string {
		return func(t time.Time) string { return t.Format(layout) }
	}
	return []rule{
		{"last", p.Last, nil},
		{"hourly", p.Hourly, format("2006-01-02T15Z07:00")}, // an hour that comes twice in autumn is two
		{"daily", p.Daily, format(time.DateOnly)},
		{"weekly", p.Weekly, func(t time.Time) string {
			y, w := t.ISOWeek()
			return fmt.Sprintf("%04d-W%02d", y, w)
		}},
		{"monthly", p.Monthly, format("2006-01")},
		{"yearly", p.Yearly, format("2006")},
	}
}

// Apply decides about every item, in the order they were given; the order has no
// influence. now is the present time.
func Apply(p Policy, now time.Time, items []Item) ([]Decision, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	if p.Location == nil {
		p.Location = time.UTC
	}
	seen := map[string]bool{}
	groups := map[string][]int{}
	out := make([]Decision, len(items))
	for i, it := range items {
		if seen[it.ID] {
			return nil, fmt.Errorf("two backups are called %q", it.ID)
		}
		seen[it.ID] = true
		out[i].Item = it
		if it.Foreign {
			out[i].keep("not ours")
			continue
		}
		groups[it.Cluster] = append(groups[it.Cluster], i)
	}
	for _, members := range groups {
		decide(p, now, out, members)
	}
	for i := range out {
		if !out[i].Keep {
			out[i].Reasons = []string{"newer backups stand in for it under every rule"}
		}
	}
	return out, nil
}

func (d *Decision) keep(format string, a ...any) {
	d.Keep = true
	d.Reasons = append(d.Reasons, fmt.Sprintf(format, a...))
}

// newer tells whether a can stand in for b, damage apart. It is a strict partial
// order.
func newer(a, b *Item) bool {
	if a.Sequence < b.Sequence || a.Revision < b.Revision {
		return false
	}
	return a.Sequence > b.Sequence || a.Revision > b.Revision || a.ID > b.ID
}

// decide decides about the items of one cluster, which members points to. It
// compares every two of them.
func decide(p Policy, now time.Time, out []Decision, members []int) {
	// The newest first: nothing stands in for what comes before it.
	slices.SortFunc(members, func(a, b int) int {
		x, y := &out[a].Item, &out[b].Item
		return cmp.Or(cmp.Compare(y.Sequence, x.Sequence), cmp.Compare(y.Revision, x.Revision), strings.Compare(y.ID, x.ID))
	})
	at := func(i int) *Item { return &out[members[i]].Item }
	// Who can stand in for a member: places in members, the nearest first.
	above := func(i int, yield func(j int) bool) {
		for j := i - 1; j >= 0; j-- {
			if !at(j).Damaged && newer(at(j), at(i)) && !yield(j) {
				return
			}
		}
	}
	from := now
	top := make([]bool, len(members))
	verifiedAbove := make([]bool, len(members))
	for i := range members {
		top[i] = true
		above(i, func(j int) bool {
			top[i] = false
			verifiedAbove[i] = verifiedAbove[i] || at(j).Verified
			return !verifiedAbove[i]
		})
		if t := at(i).Time; top[i] && !t.IsZero() && t.Before(from) {
			from = t
		}
	}
	for i, m := range members {
		d, it := &out[m], at(i)
		if it.Verified && !it.Damaged && !verifiedAbove[i] {
			d.keep("the newest verified backup")
		}
		if top[i] {
			d.keep("no newer sound backup")
		}
		if it.Time.IsZero() {
			d.keep("it has no time")
		} else if p.Within > 0 && !it.Time.Before(from.Add(-p.Within)) {
			d.keep("within %s", p.Within)
		}
	}
	for _, r := range p.rules() {
		if r.count > 0 {
			r.apply(p.Location, out, members, above)
		}
	}
	for _, m := range members {
		if d := &out[m]; d.Keep && d.Item.Damaged {
			d.Reasons = append(d.Reasons, "damaged: it takes no place")
		}
	}
}

// apply keeps what is the newest of its slot, if fewer than r.count other slots
// have something newer.
func (r rule) apply(loc *time.Location, out []Decision, members []int, above func(i int, yield func(j int) bool)) {
	slot := make([]int, len(members)) // 0: no time, so in none
	names := []string{""}
	numbers := map[string]int{}
	for i, m := range members {
		it := out[m].Item
		name := it.ID
		if r.slot != nil {
			if it.Time.IsZero() {
				continue
			}
			name = r.slot(it.Time.In(loc))
		}
		if numbers[name] == 0 {
			numbers[name] = len(names)
			names = append(names, name)
		}
		slot[i] = numbers[name]
	}
	counted := make([]int, len(names)) // by which member last, plus one
	for i, m := range members {
		if slot[i] == 0 {
			continue
		}
		n, newest := 0, true
		above(i, func(j int) bool {
			switch {
			case slot[j] == slot[i]:
				newest = false
			case slot[j] > 0 && counted[slot[j]] != i+1:
				counted[slot[j]] = i + 1
				n++
			}
			return newest && n < r.count
		})
		switch {
		case !newest || n >= r.count:
		case r.slot == nil:
			out[m].keep("%s %d of %d", r.name, n+1, r.count)
		default:
			out[m].keep("%s %s (%d of %d)", r.name, names[slot[i]], n+1, r.count)
		}
	}
}
