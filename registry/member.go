package registry

import (
	"bytes"
	"encoding/json"
	"strings"
)

// The functions of this file walk over JSON that is known to be valid and compact,
// and keep every byte of it they do not change: numbers keep their digits and
// members their order.

// eachMember calls f for the members of an object: the decoded name, the name as
// written, and the value.
func eachMember(obj []byte, f func(name string, rawName, value []byte)) {
	for i := 1; i < len(obj) && obj[i] == '"'; {
		end := valueEnd(obj, i)
		raw := obj[i:end]
		from := end + 1 // behind the colon
		if from >= len(obj) {
			return
		}
		to := valueEnd(obj, from)
		f(unquote(raw), raw, obj[from:to])
		i = to + 1 // behind the comma or the brace
	}
}

// eachElement calls f for the elements of an array.
func eachElement(arr []byte, f func(value []byte)) {
	for i := 1; i < len(arr) && arr[i] != ']'; {
		end := valueEnd(arr, i)
		f(arr[i:end])
		i = end + 1
	}
}

// valueEnd returns the index behind the value that begins at b[i].
func valueEnd(b []byte, i int) int {
	switch b[i] {
	case '"':
		return stringEnd(b, i)
	case '{', '[':
		depth := 0
		for i < len(b) {
			switch b[i] {
			case '"':
				i = stringEnd(b, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
		return len(b)
	}
	for i < len(b) && b[i] != ',' && b[i] != '}' && b[i] != ']' {
		i++
	}
	return i
}

// stringEnd returns the index behind the string that begins at b[i].
func stringEnd(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}

func unquote(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	var s string
	_ = json.Unmarshal(raw, &s) // valid by assumption
	return s
}

// typeMeta returns apiVersion and kind of an object; of repeated members the last
// counts, as for every JSON reader of Kubernetes.
func typeMeta(obj []byte) (apiVersion, kind string) {
	eachMember(obj, func(name string, _, value []byte) {
		if value[0] != '"' {
			return
		}
		switch name {
		case "apiVersion":
			apiVersion = unquote(value)
		case "kind":
			kind = unquote(value)
		}
	})
	return apiVersion, kind
}

// mapMember returns obj with every member of a name (in any case) replaced by what
// f makes of it, and whether f changed one.
func mapMember(obj []byte, member string, f func([]byte) ([]byte, bool)) ([]byte, bool) {
	if len(obj) == 0 || obj[0] != '{' {
		return obj, false
	}
	out := make([]byte, 0, len(obj))
	out = append(out, '{')
	changed := false
	eachMember(obj, func(name string, rawName, value []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		if strings.EqualFold(name, member) {
			var hit bool
			value, hit = f(value)
			changed = changed || hit
		}
		out = append(append(append(out, rawName...), ':'), value...)
	})
	return append(out, '}'), changed
}

// setResourceVersion returns obj with metadata.resourceVersion set, at the place
// where Kubernetes prints it: among sorted members in their order, else behind the
// members that come before it in ObjectMeta.
func setResourceVersion(obj []byte, version string) []byte {
	quoted := []byte(`"` + version + `"`)
	out, found := mapMember(obj, "metadata", func(meta []byte) ([]byte, bool) {
		if len(meta) == 0 || meta[0] != '{' {
			return meta, true
		}
		var names []string
		var parts [][]byte
		eachMember(meta, func(name string, rawName, value []byte) {
			if name != "resourceVersion" {
				names = append(names, name)
				parts = append(parts, append(append(bytes.Clone(rawName), ':'), value...))
			}
		})
		at, sorted := 0, true
		for i, n := range names {
			sorted = sorted && (i == 0 || names[i-1] < n)
			if before(n) {
				at = i + 1
			}
		}
		if sorted {
			at = 0
			for at < len(names) && names[at] < "resourceVersion" {
				at++
			}
		}
		line := append([]byte(`"resourceVersion":`), quoted...)
		parts = append(parts[:at], append([][]byte{line}, parts[at:]...)...)
		return append(append([]byte{'{'}, bytes.Join(parts, []byte{','})...), '}'), true
	})
	if !found {
		return obj
	}
	return out
}

// before tells whether a member of ObjectMeta is printed before resourceVersion.
func before(name string) bool {
	switch name {
	case "name", "generateName", "namespace", "selfLink", "uid":
		return true
	}
	return false
}

// ObjectName returns metadata.namespace and metadata.name of an object as a Decoder
// makes it, compact JSON; ok is false when it has no metadata.
func ObjectName(obj []byte) (namespace, name string, ok bool) {
	eachMember(obj, func(member string, _, meta []byte) {
		if member != "metadata" || len(meta) == 0 || meta[0] != '{' {
			return
		}
		ok = true
		eachMember(meta, func(member string, _, value []byte) {
			switch {
			case len(value) == 0 || value[0] != '"':
			case member == "name":
				name = unquote(value)
			case member == "namespace":
				namespace = unquote(value)
			}
		})
	})
	return namespace, name, ok
}
