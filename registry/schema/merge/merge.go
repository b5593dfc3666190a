// Package merge combines the tables of several Kubernetes versions and defines
// the file format of schema.bin, for its writer (the generator) and its reader
// (package schema).
package merge

import (
	"fmt"
	"sort"

	"github.com/etcdctl-plus/etcdctl-plus/registry/schema/describe"
)

// Versioned is the table of one version of k8s.io/api.
type Versioned struct {
	Version string
	Table   *describe.Table
}

// Table is the merged table.
type Table struct {
	Versions []string // newest first
	Kinds    []Kind   // sorted by apiVersion and kind
	Messages []Message
}

// Kind is a storable kind. Last indexes Versions: the newest one that has it.
type Kind struct {
	describe.Kind
	Last int
}

// Message is a message with the fields of all versions: those of the newest
// definition in their order, then the retired ones, newest first.
type Message struct {
	Name   string
	Fields []Field
}

// Field is a field with the newest version that has it, as an index of Versions.
// Retired tells that the newest definition of its message lacks it.
type Field struct {
	describe.Field
	Last    int
	Retired bool
}

// Tables merges tables, newest first.
func Tables(tables []Versioned) *Table {
	out := new(Table)
	kinds := map[[2]string]bool{}
	messages := map[string]int{}
	for last, v := range tables {
		out.Versions = append(out.Versions, v.Version)
		for _, k := range v.Table.Kinds {
			if id := [2]string{k.APIVersion, k.Kind}; !kinds[id] {
				kinds[id] = true
				out.Kinds = append(out.Kinds, Kind{Kind: k, Last: last})
			}
		}
		for _, m := range v.Table.Messages {
			i, known := messages[m.Name]
			if !known {
				i = len(out.Messages)
				messages[m.Name] = i
				out.Messages = append(out.Messages, Message{Name: m.Name})
			}
			out.Messages[i].add(m.Fields, last, known)
		}
	}
	sort.Slice(out.Kinds, func(i, j int) bool {
		a, b := out.Kinds[i], out.Kinds[j]
		if a.APIVersion != b.APIVersion {
			return a.APIVersion < b.APIVersion
		}
		return a.Kind.Kind < b.Kind.Kind
	})
	sort.Slice(out.Messages, func(i, j int) bool { return out.Messages[i].Name < out.Messages[j].Name })
	return out
}

// add appends the fields that m lacks. A number that a newer version uses for
// something else stays with the newer version; so does a name, since a JSON
// object cannot hold it twice.
func (m *Message) add(fields []describe.Field, last int, retired bool) {
	numbers, names := map[int]bool{}, map[string]bool{}
	for _, f := range m.Fields {
		numbers[f.Number] = true
		names[f.Name] = !f.Inline
	}
	for _, f := range fields {
		if !numbers[f.Number] && !(names[f.Name] && !f.Inline) {
			m.Fields = append(m.Fields, Field{Field: f, Last: last, Retired: retired})
		}
	}
}

// Summary counts what the table holds.
func (t *Table) Summary() string {
	fields, retired, old := 0, 0, 0
	for _, m := range t.Messages {
		fields += len(m.Fields)
		for _, f := range m.Fields {
			if f.Retired {
				retired++
			}
		}
	}
	for _, k := range t.Kinds {
		if k.Last > 0 {
			old++
		}
	}
	return fmt.Sprintf("%d kinds (%d removed), %d messages, %d fields (%d retired)", len(t.Kinds), old, len(t.Messages), fields, retired)
}
