package retention_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdctl-plus/etcdctl-plus/backup/retention"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// item is a verified backup, taken some time before noon.
func item(id string, seq, rev int64, before time.Duration) retention.Item {
	return retention.Item{ID: id, Cluster: "c", Sequence: seq, Revision: rev, Time: noon.Add(-before), Verified: true}
}

func with(i retention.Item, change func(*retention.Item)) retention.Item {
	change(&i)
	return i
}

func damaged(i *retention.Item)    { i.Damaged, i.Verified = true, false }
func unverified(i *retention.Item) { i.Verified = false }

func apply(t *testing.T, p retention.Policy, items []retention.Item) []retention.Decision {
	t.Helper()
	ds, err := retention.Apply(p, noon, items)
	if err != nil {
		t.Fatal(err)
	}
	return ds
}

const (
	hour = time.Hour
	day  = 24 * time.Hour
)

// kept is "id: reasons" for each that is kept.
func kept(ds []retention.Decision) string {
	var b strings.Builder
	for _, d := range ds {
		if d.Keep {
			fmt.Fprintf(&b, "%s: %s\n", d.Item.ID, strings.Join(d.Reasons, ", "))
		}
	}
	return b.String()
}

func TestApply(t *testing.T) {
	t.Parallel()
	// A backup every six hours for two days.
	regular := func() (items []retention.Item) {
		for i := range 8 {
			items = append(items, item(fmt.Sprintf("b%d", i), int64(i+1), int64(100*(i+1)), time.Duration(7-i)*6*hour))
		}
		return items
	}()
	for _, c := range []struct {
		name   string
		policy retention.Policy
		items  []retention.Item
		want   string
	}{
		{"last", retention.Policy{Last: 2}, regular, `
b6: last 2 of 2
b7: the newest verified backup, no newer sound backup, last 1 of 2
`},
		{"daily and last", retention.Policy{Last: 1, Daily: 2}, regular, `
b4: daily 2026-11-29 (2 of 2)
b7: the newest verified backup, no newer sound backup, last 1 of 1, daily 2026-11-30 (1 of 2)
`},
		{"each rule", retention.Policy{Hourly: 1, Weekly: 2, Monthly: 1, Yearly: 1}, regular, `
b4: weekly 2026-W48 (2 of 2)
b7: the newest verified backup, no newer sound backup, hourly 2026-11-30T12Z (1 of 1), weekly 2026-W49 (1 of 2), monthly 2026-11 (1 of 1), yearly 2026 (1 of 1)
`},
		{"within", retention.Policy{Within: 12 * hour}, regular, `
b5: within 12h0m0s
b6: within 12h0m0s
b7: the newest verified backup, no newer sound backup, within 12h0m0s
`},
		{"within counts from the newest backup, as when backups have stopped", retention.Policy{Within: day}, []retention.Item{
			item("old", 1, 10, 90*day), item("a", 2, 20, 60*day+hour), item("b", 3, 30, 60*day),
		}, `
a: within 24h0m0s
b: the newest verified backup, no newer sound backup, within 24h0m0s
`},
		{"another place begins its days elsewhere", retention.Policy{Daily: 2, Location: time.FixedZone("east", 13*3600)}, regular, `
b6: daily 2026-11-30 (2 of 2)
b7: the newest verified backup, no newer sound backup, daily 2026-12-01 (1 of 2)
`},
		{"the newest are damaged", retention.Policy{Last: 1}, []retention.Item{
			item("older", 1, 10, 3*hour), item("good", 2, 20, 2*hour), with(item("bad", 3, 30, hour), damaged), with(item("worse", 4, 40, 0), damaged),
		}, `
good: the newest verified backup, no newer sound backup, last 1 of 1
bad: no newer sound backup, last 1 of 1, damaged: it takes no place
worse: no newer sound backup, last 1 of 1, damaged: it takes no place
`},
		{"an old damaged one goes", retention.Policy{Last: 1}, []retention.Item{with(item("bad", 1, 10, hour), damaged), item("good", 2, 20, 0)}, `
good: the newest verified backup, no newer sound backup, last 1 of 1
`},
		{"the newest are not verified", retention.Policy{Last: 1}, []retention.Item{
			item("older", 1, 10, 3*hour), item("sure", 2, 20, 2*hour), with(item("x", 3, 30, hour), unverified), with(item("y", 4, 40, 0), unverified),
		}, `
sure: the newest verified backup
y: no newer sound backup, last 1 of 1
`},
		{"each cluster for itself, and only ours", retention.Policy{Last: 1}, []retention.Item{
			item("a", 1, 10, 3*hour), item("b", 2, 20, 2*hour), with(item("other", 3, 5, hour), func(i *retention.Item) { i.Cluster = "d" }),
			with(item("foreign", 4, 1000, 0), func(i *retention.Item) { i.Foreign = true }), with(item("c", 0, 0, 9*hour), func(i *retention.Item) { i.Foreign = true }),
		}, `
b: the newest verified backup, no newer sound backup, last 1 of 1
other: the newest verified backup, no newer sound backup, last 1 of 1
foreign: not ours
c: not ours
`},
		{"the clock was set back: counting goes on", retention.Policy{Last: 2}, []retention.Item{
			item("a", 1, 10, hour), item("b", 2, 20, 0), item("c", 3, 30, 900*day),
		}, `
b: last 2 of 2
c: the newest verified backup, no newer sound backup, last 1 of 2
`},
		{"the clock was ahead: what is newer but looks older stays", retention.Policy{Daily: 2}, []retention.Item{
			item("a", 1, 10, 2*day), item("ahead", 2, 20, -400*day), item("b", 3, 30, day), item("c", 4, 40, 0),
		}, `
b: daily 2026-11-29 (2 of 2)
c: the newest verified backup, no newer sound backup, daily 2026-11-30 (1 of 2)
`},
		{"within, and the newest comes from the future", retention.Policy{Within: 3 * hour}, []retention.Item{
			item("a", 1, 10, 4*hour), item("b", 2, 20, 2*hour), item("ahead", 3, 30, -400*day),
		}, `
b: within 3h0m0s
ahead: the newest verified backup, no newer sound backup, within 3h0m0s
`},
		{"a member that lagged behind pushes nothing out", retention.Policy{Last: 1}, []retention.Item{
			item("a", 1, 100, 2*hour), item("top", 2, 200, hour), item("stale", 3, 150, 0),
		}, `
top: the newest verified backup, no newer sound backup, last 1 of 1
stale: the newest verified backup, no newer sound backup, last 1 of 1
`},
		{"and goes when it is passed", retention.Policy{Last: 1}, []retention.Item{
			item("top", 2, 200, hour), item("stale", 3, 150, 0), item("next", 4, 201, 0),
		}, `
next: the newest verified backup, no newer sound backup, last 1 of 1
`},
		{"restored to an older revision", retention.Policy{Last: 2}, []retention.Item{
			item("a", 1, 800, 6*hour), item("b", 2, 900, 5*hour), item("c", 3, 1000, 4*hour), item("d", 4, 500, 3*hour), item("e", 5, 600, 2*hour), item("f", 6, 700, hour),
		}, `
b: last 2 of 2
c: the newest verified backup, no newer sound backup, last 1 of 2
e: last 2 of 2
f: the newest verified backup, no newer sound backup, last 1 of 2
`},
		{"without a time", retention.Policy{Daily: 1}, []retention.Item{
			with(item("a", 1, 10, 0), func(i *retention.Item) { i.Time = time.Time{} }), item("b", 2, 20, 0),
		}, `
a: it has no time
b: the newest verified backup, no newer sound backup, daily 2026-11-30 (1 of 1)
`},
		{"the same revision saved twice", retention.Policy{Last: 1}, []retention.Item{item("a", 1, 10, hour), item("b", 2, 10, 0)}, `
b: the newest verified backup, no newer sound backup, last 1 of 1
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := kept(apply(t, c.policy, c.items)); got != strings.TrimPrefix(c.want, "\n") {
				t.Errorf("kept are\n%swant%s", got, c.want)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		policy retention.Policy
		items  []retention.Item
		want   string
	}{
		{retention.Policy{}, nil, "this policy keeps nothing"},
		{retention.Policy{Location: time.FixedZone("x", 1)}, nil, "this policy keeps nothing"},
		{retention.Policy{Last: 1, Daily: -1}, nil, "keep -1 daily: a number of backups is not negative"},
		{retention.Policy{Within: -time.Hour}, nil, "keep within -1h0m0s: a duration is not negative"},
		{retention.Policy{Last: 1}, []retention.Item{item("a", 1, 1, 0), item("a", 2, 2, 0)}, `two backups are called "a"`},
	} {
		ds, err := retention.Apply(c.policy, noon, c.items)
		if err == nil || err.Error() != c.want || ds != nil {
			t.Errorf("%+v: %v, %v, want %s", c.policy, ds, err, c.want)
		}
	}
	if _, err := retention.Apply(retention.Policy{}, noon, nil); !errors.Is(err, retention.ErrKeepsNothing) {
		t.Errorf("keep 0: %v", err)
	}
}

func TestHourThatComesTwice(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skipf("no time zones on this machine: %v", err)
	}
	autumn := time.Date(2026, 10, 25, 0, 30, 0, 0, time.UTC) // 02:30 summer time, an hour later 02:30 again
	var items []retention.Item
	for i := range 3 {
		items = append(items, retention.Item{ID: fmt.Sprint(i), Sequence: int64(i), Revision: int64(i), Time: autumn.Add(time.Duration(i) * hour)})
	}
	ds := apply(t, retention.Policy{Hourly: 3, Location: berlin}, items)
	for _, d := range ds {
		if !d.Keep {
			t.Errorf("%s, %s is not kept", d.Item.ID, d.Item.Time.In(berlin))
		}
	}
}

// history makes backups as a repository could hold them: several clusters, clocks
// that jump, members that lag, restores, damage, what is foreign.
func history(r *rand.Rand, n int) []retention.Item {
	var items []retention.Item
	now, rev := noon.Add(-time.Duration(n)*7*hour), int64(1)
	for i := range n {
		now = now.Add(time.Duration(r.Int64N(int64(14 * hour))))
		rev += r.Int64N(100)
		it := retention.Item{ID: fmt.Sprintf("b%04d", i), Cluster: fmt.Sprint(r.IntN(2)), Sequence: int64(i), Revision: rev, Time: now, Verified: r.IntN(5) > 0}
		switch r.IntN(30) {
		case 0:
			it.Time = now.Add(time.Duration(r.Int64N(int64(2000*day))) - 1000*day)
		case 1:
			it.Revision = max(1, rev-r.Int64N(500))
		case 2:
			rev = max(1, rev-r.Int64N(2000))
		case 3:
			it.Damaged = true
		case 4:
			it.Foreign = true
		case 5:
			it.Time = time.Time{}
		case 6:
			it.Sequence = r.Int64N(int64(n))
		case 7:
			now = now.Add(time.Duration(r.Int64N(int64(20*day))) - 10*day)
		}
		items = append(items, it)
	}
	r.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
	return items
}

func policy(r *rand.Rand) retention.Policy {
	some := func() int {
		if r.IntN(2) == 0 {
			return 0
		}
		return r.IntN(8)
	}
	p := retention.Policy{Last: some(), Hourly: some(), Daily: some(), Weekly: some(), Monthly: some(), Yearly: some(), Location: time.FixedZone("somewhere", r.IntN(86400)-43200)}
	if r.IntN(3) == 0 {
		p.Within = time.Duration(r.Int64N(int64(30 * day)))
	}
	if p.Check() != nil {
		p.Last = 1
	}
	return p
}

// standsIn is what the package promises of "newer", written down once more.
func standsIn(a, b retention.Item) bool {
	return a.Cluster == b.Cluster && !a.Damaged && !a.Foreign && a.Sequence >= b.Sequence && a.Revision >= b.Revision &&
		(a.Sequence != b.Sequence || a.Revision != b.Revision || a.ID > b.ID)
}

func TestProperties(t *testing.T) {
	t.Parallel()
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 1))
		items, p := history(r, r.IntN(120)), policy(r)
		ds := apply(t, p, items)
		var left []retention.Item
		for i, d := range ds {
			if d.Item != items[i] {
				t.Fatalf("seed %d: the order changed", seed)
			}
			if len(d.Reasons) == 0 {
				t.Fatalf("seed %d: %s has no reason", seed, d.Item.ID)
			}
			if d.Keep {
				left = append(left, d.Item)
			} else if d.Item.Foreign {
				t.Fatalf("seed %d: what is not ours is removed", seed)
			}
		}
		for _, d := range ds {
			if d.Keep {
				continue
			}
			// Nothing goes unless something kept is newer by both counts, and sound;
			// and if it was verified, so is one of those.
			if !slices.ContainsFunc(left, func(k retention.Item) bool { return standsIn(k, d.Item) }) {
				t.Fatalf("seed %d: %+v is removed, and nothing kept is newer", seed, d.Item)
			}
			if d.Item.Verified && !d.Item.Damaged && !slices.ContainsFunc(left, func(k retention.Item) bool { return k.Verified && standsIn(k, d.Item) }) {
				t.Fatalf("seed %d: %+v is removed, and nothing kept that is newer was verified", seed, d.Item)
			}
		}
		// Again: everything stays.
		for _, d := range apply(t, p, left) {
			if !d.Keep {
				t.Fatalf("seed %d: %+v was kept, and is removed now", seed, d.Item)
			}
		}
		// In another order: the same.
		r.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
		again := apply(t, p, items)
		byID := func(a, b retention.Decision) int { return cmp.Compare(a.Item.ID, b.Item.ID) }
		slices.SortFunc(ds, byID)
		slices.SortFunc(again, byID)
		if kept(ds) != kept(again) {
			t.Fatalf("seed %d: the order of the items has an influence", seed)
		}
	}
}

// TestRegular compares with the rule as one would say it, on histories without
// trouble: go from the newest to the oldest, and keep the first of each new slot.
func TestRegular(t *testing.T) {
	t.Parallel()
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 2))
		n := r.IntN(200)
		var items []retention.Item
		now := noon
		for i := n; i > 0; i-- {
			items = append(items, retention.Item{ID: fmt.Sprintf("b%04d", i), Sequence: int64(i), Revision: int64(i * 10), Time: now, Verified: true})
			now = now.Add(-time.Duration(r.Int64N(int64(9 * hour))))
		}
		p := policy(r)
		want := map[string]bool{}
		if n > 0 {
			want[items[0].ID] = true
		}
		for _, rule := range []struct {
			count int
			slot  func(time.Time) any
		}{
			{p.Last, nil},
			{p.Hourly, func(t time.Time) any { return [4]int{t.Year(), int(t.Month()), t.Day(), t.Hour()} }},
			{p.Daily, func(t time.Time) any { return [2]int{t.Year(), t.YearDay()} }},
			{p.Weekly, func(t time.Time) any { y, w := t.ISOWeek(); return [2]int{y, w} }},
			{p.Monthly, func(t time.Time) any { return [2]int{t.Year(), int(t.Month())} }},
			{p.Yearly, func(t time.Time) any { return t.Year() }},
		} {
			var last any
			for _, it := range items {
				var slot any = it.ID
				if rule.slot != nil {
					slot = rule.slot(it.Time.In(p.Location))
				}
				if rule.count > 0 && slot != last {
					want[it.ID] = true
					last = slot
					rule.count--
				}
			}
		}
		for _, it := range items {
			if p.Within > 0 && !it.Time.Before(noon.Add(-p.Within)) {
				want[it.ID] = true
			}
		}
		for _, d := range apply(t, p, items) {
			if d.Keep != want[d.Item.ID] {
				t.Fatalf("seed %d, %+v: %s of %s: kept %v (%v), want %v", seed, p, d.Item.ID, d.Item.Time, d.Keep, d.Reasons, want[d.Item.ID])
			}
		}
	}
}

// TestEveryHour prunes after every hourly backup of two years, as cron does.
func TestEveryHour(t *testing.T) {
	t.Parallel()
	p := retention.Policy{Last: 3, Hourly: 24, Daily: 7, Weekly: 4, Monthly: 12, Yearly: 2}
	var items []retention.Item
	start := time.Date(2024, 12, 1, 0, 5, 0, 0, time.UTC)
	for i := range 2 * 365 * 24 {
		now := start.Add(time.Duration(i) * hour)
		items = append(items, retention.Item{ID: fmt.Sprintf("%06d", i), Sequence: int64(i), Revision: int64(i), Time: now, Verified: true})
		ds, err := retention.Apply(p, now, items)
		if err != nil {
			t.Fatal(err)
		}
		items = items[:0]
		for _, d := range ds {
			if d.Keep {
				items = append(items, d.Item)
			}
		}
	}
	if len(items) < 24+6+3+10 || len(items) > 24+7+4+12+2 {
		t.Errorf("%d backups are left", len(items))
	}
	for i, want := range map[int]time.Duration{0: 2 * 365 * day, 1: 400 * day} { // the oldest ones reach far back
		if age := start.Add(2 * 365 * day).Sub(items[i].Time); age > want {
			t.Errorf("the backup %d is %s old", i, age)
		}
	}
	if oldest := start.Add(2 * 365 * day).Sub(items[0].Time); oldest < 330*day {
		t.Errorf("the oldest backup is only %s old", oldest)
	}
}

func BenchmarkApply(b *testing.B) {
	items := history(rand.New(rand.NewPCG(1, 1)), 5000)
	p := retention.Policy{Last: 10, Hourly: 24, Daily: 7, Weekly: 4, Monthly: 12, Yearly: 5, Within: 48 * hour}
	for b.Loop() {
		if _, err := retention.Apply(p, noon, items); err != nil {
			b.Fatal(err)
		}
	}
}
