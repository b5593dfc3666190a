// Package output turns results into text. A domain function returns a struct;
// the struct (with its json tags) is the view in every machine-readable format,
// and its Table method says how people see it. Nobody prints JSON by hand.
package output

import (
	"fmt"
	"slices"
	"strings"
)

// Format is one of the names that -w takes.
type Format string

// The formats. Template and JSONPath carry an argument after "=".
const (
	Simple   Format = "simple"   // tab-separated, no header, for cut and awk
	Fields   Format = "fields"   // "Name" : value, a line each
	JSON     Format = "json"     // one document
	JSONL    Format = "jsonl"    // one document a line, as a stream
	YAML     Format = "yaml"     // documents separated by ---
	Tables   Format = "table"    // for people
	Wide     Format = "wide"     // table with more columns
	Name     Format = "name"     // resource/name
	Raw      Format = "raw"      // the bytes as stored
	Protobuf Format = "protobuf" // etcd's own answer message
	Template Format = "template" // Go template
	JSONPath Format = "jsonpath" // Kubernetes' JSONPath

	// CustomColumns is a table of columns that the user chooses, as kubectl has it.
	CustomColumns Format = "custom-columns"
)

// aliases maps other spellings that users know.
var aliases = map[string]Format{"go-template": Template, "tsv": Simple, "ndjson": JSONL, "yml": YAML}

// UnknownFormatError says which formats the command at hand has.
type UnknownFormatError struct {
	Given   string
	Allowed []Format
}

func (e *UnknownFormatError) Error() string {
	var names []string
	for _, f := range e.Allowed {
		name := string(f)
		if takesQuery(f) {
			name += "=…"
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return fmt.Sprintf("output format %q is not one of %s", e.Given, strings.Join(names, ", "))
}

// Parse splits "jsonpath={.a}" into format and argument and checks it against
// the formats a command offers; "jsonpath-file=F" and its like read the argument
// from a file. The error is an *UnknownFormatError.
func Parse(s string, allowed []Format) (Format, string, error) {
	name, arg, hasArg := strings.Cut(s, "=")
	f := Format(name)
	if a, ok := aliases[name]; ok {
		f = a
	}
	file, isFile := fileFormats[name]
	if isFile {
		f = file
	}
	if !slices.Contains(allowed, f) || hasArg != takesQuery(f) {
		return "", "", &UnknownFormatError{Given: s, Allowed: allowed}
	}
	if isFile {
		query, err := readQuery(name, arg)
		return f, query, err
	}
	return f, arg, nil
}

// takesQuery tells whether a format is followed by "=" and a query.
func takesQuery(f Format) bool { return f == Template || f == JSONPath || f == CustomColumns }

// Views are the formats every view of ours has.
func Views() []Format {
	return []Format{Tables, Wide, Simple, Fields, JSON, JSONL, YAML, Template, JSONPath}
}
