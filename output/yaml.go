package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// JSONToYAML turns one JSON document into YAML. Members keep their order and
// numbers keep every digit: neither goes through a map or a float.
func JSONToYAML(doc []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	n, err := yamlNode(d, 0)
	if err != nil {
		return nil, fmt.Errorf("turn JSON into YAML: %w", err)
	}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(n); err != nil {
		return nil, fmt.Errorf("turn JSON into YAML: %w", err)
	}
	return b.Bytes(), e.Close()
}

// maxDepth bounds recursion; encoding/json's own limit is the same.
const maxDepth = 10000

func yamlNode(d *json.Decoder, depth int) (*yaml.Node, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("nested deeper than %d", maxDepth)
	}
	t, err := d.Token()
	if err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	switch t := t.(type) {
	case json.Delim:
		n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		if t == '[' {
			n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
		}
		for d.More() {
			if t == '{' {
				k, err := d.Token()
				if err != nil {
					return nil, err
				}
				name, ok := k.(string)
				if !ok {
					return nil, fmt.Errorf("object key %v is not a string", k)
				}
				n.Content = append(n.Content, yamlString(name))
			}
			c, err := yamlNode(d, depth+1)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, c)
		}
		if _, err := d.Token(); err != nil {
			return nil, err
		}
		if len(n.Content) == 0 {
			n.Style = yaml.FlowStyle // {} and [], not an empty line
		}
		return n, nil
	case string:
		return yamlString(t), nil
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: t.String()}, nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: fmt.Sprint(t)}, nil
	default:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
	}
}

// yamlString makes a string node. The encoder quotes what YAML 1.2 would read
// as something else; kubectl and many others read YAML 1.1, where yes, 0o17,
// 1_000 and 1:20 are no strings either.
func yamlString(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	if n.Style == 0 && ambiguous(s) {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

func ambiguous(s string) bool {
	switch strings.ToLower(s) {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null", "~", "", "=", "<<":
		return true
	}
	// What could be a number: a sign at most in front and before an exponent, one
	// dot at most, and digits of any base.
	t := strings.TrimLeft(s, "+-")
	for _, e := range []string{"e+", "e-", "E+", "E-"} {
		t = strings.Replace(t, e, "e", 1)
	}
	return strings.ContainsAny(t, "0123456789") && strings.ContainsRune(".0123456789", rune(t[0])) &&
		strings.Count(t, ".") <= 1 && strings.Trim(t, "0123456789abcdefABCDEFxXoO_.:") == ""
}
