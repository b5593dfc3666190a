// Package yaml turns YAML that Kubernetes stored into JSON.
//
// The meaning of scalars is that of sigs.k8s.io/yaml, through which Kubernetes reads
// and writes YAML: version 1.1, where a bare yes is true and 0o is no number. Two
// things differ: numbers keep their digits, and members their order.
package yaml

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

const (
	// maxInput is the size of a document: twice what Kubernetes accepts as one object.
	maxInput = 6 << 20
	// maxOutput bounds what aliases may unfold to.
	maxOutput = 4 * maxInput
	// aliased is how many nodes aliases may add to those that are written out.
	aliased  = 200_000
	maxDepth = 1000
)

var (
	errTooMuch = errors.New("the aliases unfold to too much")
	errDeep    = fmt.Errorf("nested deeper than %d levels", maxDepth)
)

// Is tells whether a text looks like an object of Kubernetes written in YAML: it has
// a line for the apiVersion and one for the kind. Any text is YAML, so that more
// than the syntax has to be asked.
func Is(text []byte) bool {
	return hasLine(text, "apiVersion") && hasLine(text, "kind")
}

// hasLine tells whether a line begins with a member's name, bare or quoted.
func hasLine(text []byte, name string) bool {
	for rest := text; ; {
		i := bytes.Index(rest, []byte(name))
		if i < 0 {
			return false
		}
		at := len(text) - len(rest) + i
		rest = rest[i+len(name):]
		before, after := text[:at], bytes.TrimLeft(rest, " \t")
		if n := len(before); n > 0 && (before[n-1] == '"' || before[n-1] == '\'') && len(rest) > 0 && rest[0] == before[n-1] {
			before, after = before[:n-1], bytes.TrimLeft(rest[1:], " \t")
		}
		if (len(before) == 0 || before[len(before)-1] == '\n') && len(after) > 0 && after[0] == ':' {
			return true
		}
	}
}

// ToJSON returns the one document of a YAML text as one line of JSON.
func ToJSON(src []byte) ([]byte, error) {
	if len(src) > maxInput {
		return nil, fmt.Errorf("%d bytes of YAML are more than the limit of %d", len(src), maxInput)
	}
	d := yaml.NewDecoder(bytes.NewReader(src))
	var doc, more yaml.Node
	if err := d.Decode(&doc); err != nil {
		return nil, err
	}
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one document")
	}
	c := converter{out: make([]byte, 0, len(src)), left: len(src) + aliased}
	if err := c.value(&doc, 0); err != nil {
		return nil, err
	}
	return c.out, nil
}

type converter struct {
	out  []byte
	open []*yaml.Node // anchors being unfolded: an alias to one of them has no end
	left int          // nodes that may still come
}

// value appends the JSON of a node.
func (c *converter) value(n *yaml.Node, depth int) error {
	// Empty lists cost nothing to print, so that nodes are counted too.
	if c.left--; len(c.out) > maxOutput || c.left < 0 {
		return errTooMuch
	}
	if depth > maxDepth {
		return errDeep
	}
	switch n.Kind {
	case yaml.DocumentNode:
		return c.value(n.Content[0], depth)
	case yaml.AliasNode:
		for _, o := range c.open {
			if o == n.Alias {
				return fmt.Errorf("line %d: the anchor %q contains itself", n.Line, n.Value)
			}
		}
		c.open = append(c.open, n.Alias)
		err := c.value(n.Alias, depth+1)
		c.open = c.open[:len(c.open)-1]
		return err
	case yaml.SequenceNode:
		c.out = append(c.out, '[')
		for i, e := range n.Content {
			if i > 0 {
				c.out = append(c.out, ',')
			}
			if err := c.value(e, depth+1); err != nil {
				return err
			}
		}
		c.out = append(c.out, ']')
		return nil
	case yaml.MappingNode:
		return c.mapping(n, depth)
	case yaml.ScalarNode:
		s, err := scalar(n)
		if err != nil {
			return err
		}
		c.out = append(c.out, s.json...)
		return nil
	}
	// An empty document.
	c.out = append(c.out, "null"...)
	return nil
}

// mapping appends a map: of equal keys the last one counts, and those merged in by
// "<<" count only where the map has none of its own.
func (c *converter) mapping(n *yaml.Node, depth int) error {
	var names []string
	values := map[string]*yaml.Node{}
	if err := c.collect(n, depth, &names, values, true); err != nil {
		return err
	}
	c.out = append(c.out, '{')
	for i, name := range names {
		if i > 0 {
			c.out = append(c.out, ',')
		}
		c.out = append(append(c.out, quote(name)...), ':')
		if err := c.value(values[name], depth+1); err != nil {
			return err
		}
	}
	c.out = append(c.out, '}')
	return nil
}

func (c *converter) collect(n *yaml.Node, depth int, names *[]string, values map[string]*yaml.Node, own bool) error {
	if depth > maxDepth {
		return errDeep
	}
	var merges []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		if c.left--; c.left < 0 {
			return errTooMuch
		}
		k, v := n.Content[i], n.Content[i+1]
		if isMerge(k) {
			merges = append(merges, v)
			continue
		}
		name, err := key(k)
		if err != nil {
			return err
		}
		_, there := values[name]
		if !there {
			*names = append(*names, name)
		}
		if !there || own {
			values[name] = v
		}
	}
	for _, m := range merges {
		if err := c.merge(m, depth+1, names, values, true); err != nil {
			return err
		}
	}
	return nil
}

// merge adds what "<<" names: a map, or a list of maps of which the first counts.
func (c *converter) merge(n *yaml.Node, depth int, names *[]string, values map[string]*yaml.Node, lists bool) error {
	at := n
	if n.Kind == yaml.AliasNode {
		at = n.Alias
	}
	switch {
	case at.Kind == yaml.MappingNode:
		return c.collect(at, depth, names, values, false)
	case at.Kind == yaml.SequenceNode && lists && n.Kind != yaml.AliasNode:
		for _, e := range at.Content {
			if err := c.merge(e, depth+1, names, values, false); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("line %d: only maps can be merged", n.Line)
}

func isMerge(k *yaml.Node) bool {
	return k.Kind == yaml.ScalarNode && k.Value == "<<" && (k.Style == 0 && (k.Tag == "" || k.Tag == "!!merge") || k.Tag == "!!merge")
}

// key returns a map's key as the name of a member.
func key(n *yaml.Node) (string, error) {
	at := n
	if n.Kind == yaml.AliasNode {
		at = n.Alias
	}
	if at.Kind != yaml.ScalarNode {
		return "", fmt.Errorf("line %d: a list or map cannot be the name of a member", n.Line)
	}
	s, err := scalar(at)
	switch {
	case err != nil:
		return "", err
	case s.kind == null:
		return "", fmt.Errorf("line %d: null cannot be the name of a member", n.Line)
	case s.kind == text:
		return s.text, nil
	case s.kind == whole:
		if i, err := strconv.ParseInt(s.json, 10, 64); err == nil {
			return strconv.FormatInt(i, 10), nil
		}
		if _, err := strconv.ParseUint(s.json, 10, 64); err == nil {
			return s.json, nil
		}
	case s.kind == boolean:
		return s.json, nil
	}
	// As Kubernetes' reader names it, digits lost and all.
	f, err := strconv.ParseFloat(s.json, 64)
	return strconv.FormatFloat(f, 'g', -1, 32), err
}

type kind int

const (
	text kind = iota
	null
	boolean
	whole
	fraction
)

// resolved is a scalar: its JSON, and of text the text itself.
type resolved struct {
	kind kind
	json string
	text string
}

func quote(s string) string {
	b, _ := json.Marshal(s) // never fails for a string
	return string(b)
}

// decimal are numbers that JSON writes the same way.
var decimal = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)
})

// number is what YAML 1.1 takes for a number with a fraction.
var number = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`)
})

// scalar resolves a scalar. Explicit tags of Kubernetes' reader are followed.
func scalar(n *yaml.Node) (resolved, error) {
	asText := resolved{kind: text, json: quote(n.Value), text: n.Value}
	tag := ""
	if n.Style&yaml.TaggedStyle != 0 {
		tag = n.ShortTag()
	}
	switch tag {
	case "!!str":
		return asText, nil
	case "!!binary":
		b, err := base64.StdEncoding.DecodeString(n.Value)
		if err != nil {
			return asText, fmt.Errorf("line %d: !!binary is not base64", n.Line)
		}
		return resolved{kind: text, json: quote(string(b)), text: string(b)}, nil
	case "", "!!bool", "!!int", "!!float", "!!null", "!!timestamp":
	default:
		return asText, nil
	}
	if tag == "" && n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return asText, nil
	}
	r, err := plain(n.Value)
	if err != nil {
		return r, fmt.Errorf("line %d: %w", n.Line, err)
	}
	want := map[string][]kind{"": {r.kind}, "!!bool": {boolean}, "!!int": {whole}, "!!float": {whole, fraction}, "!!null": {null}, "!!timestamp": {text}}[tag]
	for _, k := range want {
		if k == r.kind {
			return r, nil
		}
	}
	return r, fmt.Errorf("line %d: %q is no %s", n.Line, n.Value, strings.TrimPrefix(tag, "!!"))
}

// plain resolves a scalar without quotes.
func plain(s string) (resolved, error) {
	asText := resolved{kind: text, json: quote(s), text: s}
	switch s {
	case "", "~", "null", "Null", "NULL":
		return resolved{kind: null, json: "null"}, nil
	case "y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON":
		return resolved{kind: boolean, json: "true"}, nil
	case "n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF":
		return resolved{kind: boolean, json: "false"}, nil
	case ".nan", ".NaN", ".NAN", ".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF", "-.inf", "-.Inf", "-.INF":
		return asText, fmt.Errorf("%s has no place in JSON", s)
	}
	if !strings.ContainsRune("+-.0123456789", rune(s[0])) {
		return asText, nil
	}
	// The number as it stands, where it means the same in JSON: no digit is lost.
	if decimal().MatchString(s) {
		return asJSON(s), nil
	}
	bare := strings.ReplaceAll(s, "_", "")
	if s[0] == '.' {
		if f, err := strconv.ParseFloat(s, 64); err == nil {
			return floating(f)
		}
		return asText, nil
	}
	if date(s) {
		return asText, nil
	}
	if i, err := strconv.ParseInt(bare, 0, 64); err == nil {
		return resolved{kind: whole, json: strconv.FormatInt(i, 10)}, nil
	}
	if u, err := strconv.ParseUint(bare, 0, 64); err == nil {
		return resolved{kind: whole, json: strconv.FormatUint(u, 10)}, nil
	}
	if number().MatchString(bare) {
		if decimal().MatchString(bare) { // had underscores
			if r := asJSON(bare); r.kind != text {
				return r, nil
			}
			return asText, nil
		}
		if f, err := strconv.ParseFloat(bare, 64); err == nil {
			return floating(f)
		}
	}
	return asText, nil
}

// asJSON takes over a decimal number. One that no float can hold is text, as for
// YAML's own readers.
func asJSON(s string) resolved {
	if _, err := strconv.ParseFloat(s, 64); err != nil {
		return resolved{kind: text, json: quote(s), text: s}
	}
	if strings.ContainsAny(s, ".eE") {
		return resolved{kind: fraction, json: s}
	}
	return resolved{kind: whole, json: s}
}

func floating(f float64) (resolved, error) {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return resolved{}, fmt.Errorf("%g has no place in JSON", f)
	}
	b, err := json.Marshal(f)
	return resolved{kind: fraction, json: string(b)}, err
}

// date tells whether s begins as a date does, with four digits and a dash; those
// stay text.
func date(s string) bool {
	return len(s) > 4 && s[4] == '-' && strings.Trim(s[:4], "0123456789") == ""
}
