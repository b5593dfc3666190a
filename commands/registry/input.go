package registry

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// inputForms are the values of decode --input.
var inputForms = []string{"auto", "raw", "hex", "base64", "json"}

// input is one stored value as it came in.
type input struct {
	key    string // "" when unknown
	value  []byte // may end in the newline that etcdctl prints after a value
	modRev int64  // 0: unknown
}

// magic starts every protobuf and sealed value of Kubernetes.
var magic = [][]byte{[]byte("k8s\x00"), []byte("k8s:enc:")}

func hasMagic(b []byte) bool {
	return slices.ContainsFunc(magic, func(m []byte) bool { return bytes.HasPrefix(b, m) })
}

// parseInput finds the stored values in b.
func parseInput(b []byte, form string) ([]input, error) {
	if len(b) == 0 {
		return nil, errors.New("the input is empty")
	}
	switch form {
	case "raw":
		return []input{{value: b}}, nil
	case "hex":
		v, err := fromHex(b)
		if err != nil {
			return nil, fmt.Errorf("read input as hex: %w", err)
		}
		return []input{{value: v}}, nil
	case "base64":
		v, err := fromBase64(b)
		if err != nil {
			return nil, fmt.Errorf("read input as base64: %w", err)
		}
		return []input{{value: v}}, nil
	case "json":
		return fromGet(b)
	case "auto":
		return guess(b)
	}
	return nil, fmt.Errorf("--input %q is not one of %s", form, strings.Join(inputForms, ", "))
}

func guess(b []byte) ([]input, error) {
	if hasMagic(b) {
		return []input{{value: b}}, nil
	}
	if in, err := fromGet(b); err == nil {
		return in, nil
	}
	if t := bytes.TrimSpace(b); len(t) > 0 && t[0] == '{' {
		return []input{{value: b}}, nil
	}
	// `etcdctl get KEY` prints the key on a line of its own.
	if key, rest, ok := bytes.Cut(b, []byte("\n")); ok && bytes.HasPrefix(key, []byte("/")) {
		if hasMagic(rest) || json.Valid(rest) {
			return []input{{key: strings.TrimSuffix(string(key), "\r"), value: rest}}, nil
		}
	}
	if v, err := fromHex(b); err == nil && (hasMagic(v) || json.Valid(v)) {
		return []input{{value: v}}, nil
	}
	if v, err := fromBase64(b); err == nil && (hasMagic(v) || json.Valid(v)) {
		return []input{{value: v}}, nil
	}
	return []input{{value: b}}, nil
}

// fromHex reads hex digits with or without white space, 0x, or etcdctl's \x.
func fromHex(b []byte) ([]byte, error) {
	s := strings.Join(strings.Fields(string(b)), "")
	s = strings.TrimPrefix(s, "0x")
	return hex.DecodeString(strings.ReplaceAll(s, `\x`, ""))
}

func fromBase64(b []byte) ([]byte, error) {
	s := strings.Join(strings.Fields(string(b)), "")
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		if v, err := enc.DecodeString(s); err == nil {
			return v, nil
		}
	}
	return nil, errors.New("not base64")
}

// fromGet reads what `etcdctl get -w json` prints.
func fromGet(b []byte) ([]input, error) {
	var doc struct {
		Header json.RawMessage `json:"header"`
		Kvs    []struct {
			Key   []byte `json:"key"`
			Value []byte `json:"value"`
			Mod   int64  `json:"mod_revision"`
		} `json:"kvs"`
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return nil, fmt.Errorf("read input as the JSON of a get: %w", err)
	}
	if doc.Header == nil {
		return nil, errors.New("read input as the JSON of a get: it has no header")
	}
	if len(doc.Kvs) == 0 {
		return nil, errors.New("the get found no key")
	}
	out := make([]input, len(doc.Kvs))
	for i, kv := range doc.Kvs {
		out[i] = input{key: string(kv.Key), value: kv.Value, modRev: kv.Mod}
	}
	return out, nil
}
