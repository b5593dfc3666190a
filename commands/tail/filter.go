package tail

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/itchyny/gojq"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// filter selects events. jq is what evaluates an expression: gojq costs 0.4 ms of every start and
// 1.5 MB of the binary, where cel-go would cost 2.6 ms and 8.5 MB (measured alone, v0.12.20 and
// v0.29.0).
//
// An event that cannot be decided is let through: nothing is lost silently.
type filter struct {
	globs, excluded []string
	regexps         []string
	verbs           []string
	namespace       string
	kinds           []string
	selector        string
	where           string

	res              []*regexp.Regexp
	match            labels.Selector
	globRes, exclRes []*regexp.Regexp
	query            *gojq.Code
	told             bool // that a query failed
}

// verbs of --verb; put is both of the first.
var verbs = []string{"create", "update", "delete", "put"}

func (f *filter) define(c *cobra.Command, set *pflag.FlagSet) {
	set.StringArrayVar(&f.globs, "match", nil, "only keys that fit this pattern: * is any part of a name, ** also goes over slashes (repeatable: any of them)")
	set.StringArrayVar(&f.excluded, "exclude", nil, "no keys that fit this pattern (repeatable)")
	set.StringArrayVar(&f.regexps, "regexp", nil, "only keys in which this regular expression is found (repeatable: any of them)")
	set.StringSliceVar(&f.verbs, "verb", nil, "only these: create, update, delete, put")
	set.StringVarP(&f.namespace, "namespace", "n", "", "only objects of this namespace")
	set.StringSliceVar(&f.kinds, "kind", nil, "only these resources, as kubectl names them: pods, deploy, certificates.cert-manager.io")
	set.StringVarP(&f.selector, "selector", "l", "", "only objects with these labels, in kubectl's grammar; of a deletion, the object before")
	set.StringVar(&f.where, "where", "", "only events for which this jq expression, on the line of -w jsonl with the decoded object, is neither false nor null: '.object.spec.replicas == 0'")
	_ = c.RegisterFlagCompletionFunc("verb", cobra.FixedCompletions(verbs, cobra.ShellCompDirectiveNoFileComp)) // fails only for an unknown flag
}

// String is the filter as a checkpoint has it.
func (f *filter) String() string {
	var parts []string
	add := func(name string, values ...string) {
		for _, v := range values {
			if v != "" {
				parts = append(parts, fmt.Sprintf("%s %q", name, v))
			}
		}
	}
	add("match", f.globs...)
	add("exclude", f.excluded...)
	add("regexp", f.regexps...)
	add("verb", f.verbs...)
	add("namespace", f.namespace)
	add("kind", f.kinds...)
	add("selector", f.selector)
	add("where", f.where)
	return strings.Join(parts, " ")
}

// needsObject tells whether values have to be decoded for it.
func (f *filter) needsObject() bool { return f.selector != "" || f.where != "" }

// needsKubernetes tells whether keys have to be.
func (f *filter) needsKubernetes() bool {
	return f.namespace != "" || len(f.kinds) > 0 || f.needsObject()
}

func (f *filter) complete() error {
	for _, g := range f.globs {
		f.globRes = append(f.globRes, pattern(g))
	}
	for _, g := range f.excluded {
		f.exclRes = append(f.exclRes, pattern(g))
	}
	for _, v := range f.verbs {
		if !slices.Contains(verbs, v) {
			return cli.Usagef("--verb %q is not one of %s", v, strings.Join(verbs, ", "))
		}
	}
	for _, e := range f.regexps {
		re, err := regexp.Compile(e)
		if err != nil {
			return cli.Usagef("--regexp %q: %v", e, err)
		}
		f.res = append(f.res, re)
	}
	var err error
	if f.match, err = labels.Parse(f.selector); err != nil {
		return cli.Usagef("--selector %q: %v", f.selector, err)
	}
	if f.where == "" {
		return nil
	}
	q, err := gojq.Parse(f.where)
	if err != nil {
		return cli.Usagef("--where %q: %v", f.where, err)
	}
	if f.query, err = gojq.Compile(q); err != nil {
		return cli.Usagef("--where %q: %v", f.where, err)
	}
	return nil
}

// pattern makes a regular expression of a pattern for keys.
func pattern(glob string) *regexp.Regexp {
	var b strings.Builder
	for i := 0; i < len(glob); i++ {
		switch c := glob[i]; {
		case c == '*' && i+1 < len(glob) && glob[i+1] == '*':
			b.WriteString("(?s:.*)")
			i++
		case c == '*':
			b.WriteString("[^/]*")
		case c == '?':
			b.WriteString("[^/]")
		default:
			b.WriteString(regexp.QuoteMeta(string(c)))
		}
	}
	return regexp.MustCompile("^" + b.String() + "$")
}

// byKey decides what the key and the verb decide.
func (f *filter) byKey(e *keyspace.Event) bool {
	in := func(res []*regexp.Regexp) bool {
		return slices.ContainsFunc(res, func(r *regexp.Regexp) bool { return r.Match(e.Record.Key) })
	}
	switch {
	case len(f.globRes) > 0 && !in(f.globRes), in(f.exclRes), len(f.res) > 0 && !in(f.res):
		return false
	case len(f.verbs) > 0 && !slices.ContainsFunc(f.verbs, func(v string) bool { return v == verbOf(e) || v == "put" && e.Type == keyspace.Put }):
		return false
	}
	return true
}

func verbOf(e *keyspace.Event) string {
	switch {
	case e.Type == keyspace.Delete:
		return "delete"
	case e.Record.Version == 1:
		return "create"
	}
	return "update"
}

// passes tells whether the query says yes of a line; the error is the query's.
func (f *filter) passes(line []byte) (bool, error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber() // gojq keeps all digits of them
	var v any
	if err := d.Decode(&v); err != nil {
		return true, err
	}
	got, ok := f.query.Run(v).Next()
	if err, bad := got.(error); bad {
		return true, err
	}
	return ok && got != nil && got != false, nil
}
