package registry

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	panic("an input form that was not checked: " + form)
}

func guess(b []byte) ([]input, error) {
	if hasMagic(b) {
		return []input{{value: b}}, nil
	}
	if in, err := fromGet(b); err == nil || errors.Is(err, errNoKey) {
		return in, err
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

var errNoKey = errors.New("the get found no key")

// fromGet reads what a get prints with -w json, ours with -w jsonl too.
func fromGet(b []byte) ([]input, error) {
	in, err := fromAnswer(b)
	if err != nil && !errors.Is(err, errNoKey) {
		if lines, lerr := fromLines(b); lerr == nil {
			return lines, nil
		}
	}
	return in, err
}

// fromLines reads what our own get prints with -w jsonl, without --decode.
func fromLines(b []byte) ([]input, error) {
	var out []input
	for d := json.NewDecoder(bytes.NewReader(b)); ; {
		var l struct {
			Key         *string `json:"key"`
			KeyBase64   []byte  `json:"keyBase64"`
			Value       *string `json:"value"`
			ValueBase64 []byte  `json:"valueBase64"`
			Mod         int64   `json:"modRevision"`
		}
		switch err := d.Decode(&l); {
		case errors.Is(err, io.EOF) && len(out) > 0:
			return out, nil
		case err != nil:
			return nil, err
		case l.Mod == 0 || (l.Key == nil) == (l.KeyBase64 == nil) || l.Value != nil && l.ValueBase64 != nil:
			return nil, errors.New("not a line of a get")
		}
		in := input{key: string(l.KeyBase64), value: l.ValueBase64, modRev: l.Mod}
		if l.Key != nil {
			in.key = *l.Key
		}
		if l.Value != nil {
			in.value = []byte(*l.Value)
		}
		out = append(out, in)
	}
}

// fromAnswer reads what etcd's answer is in JSON.
func fromAnswer(b []byte) ([]input, error) {
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
		return nil, errNoKey
	}
	out := make([]input, len(doc.Kvs))
	for i, kv := range doc.Kvs {
		out[i] = input{key: string(kv.Key), value: kv.Value, modRev: kv.Mod}
	}
	return out, nil
}
