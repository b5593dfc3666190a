// Package columns makes the rows that kubectl prints of objects: its columns, their
// order, and every value that the stored object tells.
//
// The API server makes these rows for kubectl; here they come from the object alone,
// in whatever version it is stored. What the server fills in on reading (a missing
// phase, a default type) is filled in here too.
package columns

import (
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"time"
)

// Column is one column of a table.
type Column struct {
	Name string // in capitals, as printed
	Wide bool   // only with -o wide
}

// Printer makes the rows of one kind. It is safe for concurrent use.
type Printer struct {
	Columns []Column
	row     func(object []byte, now time.Time) []any
}

// Row returns the cells of one object, given as JSON: one for each column. Fields
// that are missing or of another type leave their cells empty, or as the API server
// shows an unset field.
func (p *Printer) Row(object []byte, now time.Time) []string {
	cells := make([]string, len(p.Columns))
	for i, c := range p.row(object, now) {
		if i < len(cells) && c != nil {
			cells[i] = oneLine(fmt.Sprint(c))
		}
	}
	return cells
}

// Placeholder returns the cells of an object that could not be decoded: its name,
// and in a column that people look at why there is nothing else.
func (p *Printer) Placeholder(name, why string) []string {
	cells := make([]string, len(p.Columns))
	shown, at := false, -1
	for i, c := range p.Columns {
		switch {
		case c.Name == "NAME":
			cells[i] = name
			shown = !c.Wide
		case !c.Wide && (at < 0 || c.Name == "MESSAGE"):
			at = i
		}
	}
	if !shown {
		why = name + ": " + why
	}
	if at >= 0 {
		cells[at] = why
	}
	return cells
}

// oneLine cuts a cell at its first line end, as kubectl does.
func oneLine(s string) string {
	if i := strings.IndexAny(s, "\f\n\r"); i >= 0 {
		return s[:i] + "..."
	}
	return s
}

// Builtin returns the Printer of a kind of Kubernetes, by its API group ("" for
// core); nil when it has no table of its own.
func Builtin(group, kind string) *Printer {
	t, ok := tables[group+"/"+kind]
	if !ok {
		return nil
	}
	return &Printer{Columns: parseColumns(t.columns), row: t.row}
}

// table is one entry of tables. columns are separated by bars, those for -o wide
// begin with a star.
type table struct {
	columns string
	row     func(object []byte, now time.Time) []any
}

func parseColumns(s string) []Column {
	parts := strings.Split(s, "|")
	out := make([]Column, len(parts))
	for i, p := range parts {
		name, wide := strings.CutPrefix(p, "*")
		out[i] = Column{Name: strings.ToUpper(name), Wide: wide}
	}
	return out
}

// of reads an object into the fields that its row needs. What does not fit stays
// empty: a row is better than none.
func of[T any](f func(o *T, now time.Time) []any) func([]byte, time.Time) []any {
	return func(object []byte, now time.Time) []any {
		var o T
		_ = json.Unmarshal(object, &o)
		return f(&o, now)
	}
}

// meta is what rows need of the metadata. Members match their fields in any case,
// so that no tags are needed, here and in the kinds.
type meta struct {
	Name, Namespace, CreationTimestamp, DeletionTimestamp string
	Labels, Annotations                                   map[string]string
	OwnerReferences                                       []struct {
		APIVersion, Kind, Name string
		Controller             bool
	}
}

// since is how long ago a time was; "<unknown>" when it is not set.
func since(now time.Time, timestamp string) string {
	t, ok := parseTime(timestamp)
	if !ok {
		return "<unknown>"
	}
	return Duration(now.Sub(t))
}

func parseTime(s string) (time.Time, bool) {
	t, err := time.Parse(time.RFC3339, s)
	return t, err == nil && !t.IsZero()
}

// Duration writes a time span as kubectl writes ages: the larger it is, the fewer
// units are told.
func Duration(d time.Duration) string {
	const day = 24 * time.Hour
	two := func(unit time.Duration, name string, small time.Duration, smallName string) string {
		if rest := d % unit / small; rest > 0 {
			return fmt.Sprintf("%d%s%d%s", d/unit, name, rest, smallName)
		}
		return fmt.Sprintf("%d%s", d/unit, name)
	}
	switch {
	case d <= -2*time.Second:
		return "<invalid>" // further in the future than clocks differ
	case d < 0:
		return "0s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 10*time.Minute:
		return two(time.Minute, "m", time.Second, "s")
	case d < 3*time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 8*time.Hour:
		return two(time.Hour, "h", time.Minute, "m")
	case d < 2*day:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d < 8*day:
		return two(day, "d", time.Hour, "h")
	case d < 2*365*day:
		return fmt.Sprintf("%dd", d/day)
	case d < 8*365*day:
		return two(365*day, "y", day, "d")
	}
	return fmt.Sprintf("%dy", d/(365*day))
}

// or returns s, or what stands for an empty one.
func or(s, empty string) string {
	if s == "" {
		return empty
	}
	return s
}

// deref returns what p points to, or what stands for nothing.
func deref[T any](p *T, empty any) any {
	if p == nil {
		return empty
	}
	return *p
}

// value returns what p points to, or empty.
func value[T any](p *T, empty T) T {
	if p == nil {
		return empty
	}
	return *p
}

// some joins at most limit of list and tells how many more there are.
func some(list []string, limit int, separator string) string {
	if len(list) <= limit {
		return strings.Join(list, separator)
	}
	return fmt.Sprintf("%s + %d more...", strings.Join(list[:limit], separator), len(list)-limit)
}

// labels writes a map of labels in order.
func labels(m map[string]string) string {
	list := make([]string, 0, len(m))
	for k, v := range m {
		list = append(list, k+"="+v)
	}
	sort.Slice(list, func(i, j int) bool {
		a, _, _ := strings.Cut(list[i], "=")
		b, _, _ := strings.Cut(list[j], "=")
		return a < b
	})
	return or(strings.Join(list, ","), "<none>")
}

// selector is a LabelSelector.
type selector struct {
	MatchLabels      map[string]string
	MatchExpressions []struct {
		Key, Operator string
		Values        []string
	}
}

// text writes it as `kubectl get -l` takes it, by key; "" selects everything, or,
// of a missing one, nothing. invalid stands for one that the API server does not
// understand.
func (s *selector) text(invalid string) string {
	if s == nil {
		return ""
	}
	type term struct{ key, text string }
	var terms []term
	for k, v := range s.MatchLabels {
		terms = append(terms, term{k, k + "=" + v})
	}
	sort.Slice(terms, func(i, j int) bool { return terms[i].key < terms[j].key })
	for _, e := range s.MatchExpressions {
		t := term{e.Key, e.Key}
		values := append([]string(nil), e.Values...)
		sort.Strings(values)
		switch e.Operator {
		case "In":
			t.text += " in (" + strings.Join(values, ",") + ")"
		case "NotIn":
			t.text += " notin (" + strings.Join(values, ",") + ")"
		case "DoesNotExist":
			t.text = "!" + e.Key
		case "Exists":
		default:
			return invalid
		}
		terms = append(terms, t)
	}
	sort.SliceStable(terms, func(i, j int) bool { return terms[i].key < terms[j].key })
	texts := make([]string, len(terms))
	for i, t := range terms {
		texts[i] = t.text
	}
	return strings.Join(texts, ",")
}

// String is text for most kinds.
func (s *selector) String() string { return or(s.text("<error>"), "<none>") }

// condition is one of the conditions of a status.
type condition struct{ Type, Status, Reason, Message string }

// is tells whether the first condition of a type is true.
func is(list []condition, name string) bool {
	c := find(list, name)
	return c != nil && c.Status == "True"
}

func find(list []condition, name string) *condition {
	for i := range list {
		if list[i].Type == name {
			return &list[i]
		}
	}
	return nil
}
