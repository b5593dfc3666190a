package cli

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/etcdctl-plus/etcdctl-plus/output"
)

// errorView is the form of an error in the JSON formats.
type errorView struct {
	Code      int    `json:"code"`
	Class     string `json:"class"`
	Retryable bool   `json:"retryable"`
	Message   string `json:"message"`
	Hint      string `json:"hint,omitempty"`
	Endpoint  string `json:"endpoint,omitempty"`
	Revision  int64  `json:"revision,omitempty"`
}

// Report tells of an error on stderr: with a JSON format as an object, else with its hint on
// a line of its own.
func (e *Env) Report(d *Error) {
	if e.jsonErrors() {
		b, err := json.Marshal(errorView{int(d.Code), d.Class, d.Retryable, message(d), d.Hint, d.Endpoint, d.Revision})
		if err == nil {
			fmt.Fprintln(e.Stderr, string(b))
			return
		}
	}
	fmt.Fprintln(e.Stderr, "Error: "+cleanLines(message(d)))
	if d.Hint != "" {
		fmt.Fprintln(e.Stderr, "Hint: "+cleanLines(d.Hint))
	}
}

// Count writes a number with its noun, and what else depends on whether it is one:
// Count(n, "backup is", "backups are").
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// message leaves gRPC's own words out: the class says the same.
func message(d *Error) string { return grpcWords.ReplaceAllString(d.Error(), "") }

var grpcWords = regexp.MustCompile(`rpc error: code = \w+ desc = `)

// cleanLines keeps the line breaks of a message, which are ours, and nothing
// else that a terminal would act on.
func cleanLines(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	for i, l := range lines {
		lines[i] = output.CleanLine(l)
	}
	return strings.Join(lines, "\n")
}

// jsonErrors asks for the settings, which a command that failed early has not. When they
// cannot be had, as of a context that is not there, -w counts all the same.
func (e *Env) jsonErrors() bool {
	if e.Flags == nil || e.DropIn() {
		return false
	}
	if _, err := e.Settings(); err != nil && e.OutputOnly() != nil {
		return false
	}
	return e.JSONMessages()
}
