package registry

import (
	"errors"

	"github.com/etcdctl-plus/etcdctl-plus/registry/schema"
	"github.com/etcdctl-plus/etcdctl-plus/registry/transcode"
)

// envelope is Kubernetes' runtime.Unknown, which every protobuf value is wrapped
// in behind the magic.
type envelope struct {
	apiVersion, kind             string
	raw                          []byte
	contentEncoding, contentType string
}

// parseEnvelope reads the envelope of a value that begins with the magic. Of a
// damaged one it returns what came before the damage. last holds the names of the
// value before, which most values have too.
func parseEnvelope(value []byte, last *typeNames) (e envelope, err error) {
	err = transcode.Walk(value[len(magic):], func(number uint32, v []byte) error {
		switch number {
		case 1:
			return transcode.Walk(v, func(number uint32, v []byte) error {
				switch number {
				case 1:
					e.apiVersion = same(last.apiVersion, v)
				case 2:
					e.kind = same(last.kind, v)
				}
				return nil
			}, 1, 2)
		case 2:
			e.raw = v
		case 3:
			e.contentEncoding = string(v)
		case 4:
			e.contentType = string(v)
		}
		return nil
	}, 1, 2, 3, 4)
	// A damaged length can make the kind swallow the object, secrets and all.
	if !isTypeName(e.kind) || !isTypeName(e.apiVersion) {
		e.kind, e.apiVersion = "", ""
		if err == nil {
			err = errors.New("apiVersion or kind is no name")
		}
	}
	return e, err
}

// typeNames are an apiVersion and a kind, and what a Decoder has found out about them.
type typeNames struct {
	apiVersion, kind string
	head             string       // of the JSON
	known            *schema.Kind // nil: not in the table
}

// same returns b as a string, without making one when it is s.
func same(s string, b []byte) string {
	if s == string(b) {
		return s
	}
	return string(b)
}

// isTypeName tells whether s can be a kind or an API version; empty is one.
func isTypeName(s string) bool {
	if len(s) > 253+1+63 {
		return false
	}
	for _, c := range []byte(s) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '-' || c == '_' || c == '/') {
			return false
		}
	}
	return true
}
