package registry

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/etcdctl-plus/etcdctl-plus/registry/transcode"
)

// lastApplied is the annotation in which kubectl apply keeps the whole object it
// was given, with the values of a Secret in it.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Redactor replaces secret values by markers. It is safe for concurrent use, and
// decoders that share one give equal values equal markers.
type Redactor struct{ key [32]byte }

// NewRedactor returns a Redactor with a fresh random key: markers of one run
// compare with each other and with nothing else, so that they cannot be used to
// try passwords later.
func NewRedactor() *Redactor {
	r := new(Redactor)
	// Never fails: the runtime ends the process when the system has no randomness.
	_, _ = rand.Read(r.key[:])
	return r
}

// Marker stands in for a value: it tells the length and the first half of an
// HMAC-SHA256, "[redacted: 12 bytes, hmac 0123456789abcdef0123456789abcdef]".
func (r *Redactor) Marker(value []byte) string {
	h := hmac.New(sha256.New, r.key[:])
	h.Write(value)
	unit := "bytes"
	if len(value) == 1 {
		unit = "byte"
	}
	return fmt.Sprintf("[redacted: %d %s, hmac %s]", len(value), unit, hex.EncodeToString(h.Sum(nil)[:16]))
}

// isSecretKind tells whether objects of a kind hold secret values: core Secrets and
// lists of them, in any version, known or not.
func isSecretKind(apiVersion, kind string) bool {
	return !strings.Contains(apiVersion, "/") && (kind == "Secret" || kind == "SecretList")
}

// isListKind tells whether an object may hold Secrets as its items.
func isListKind(apiVersion, kind string) bool {
	return !strings.Contains(apiVersion, "/") && strings.HasSuffix(kind, "List")
}

// mayHoldSecret tells, cheaply, whether an object that is no Secret may hold one in
// an annotation: kubectl apply's, or another with a quoted kind.
func mayHoldSecret(obj []byte) bool {
	return bytes.Contains(obj, []byte("/last-applied-configuration")) || bytes.Contains(obj, []byte(`Secret\"`))
}

// object redacts one JSON object, which must be valid and compact. With force it
// is taken for a Secret whatever it says; otherwise it is looked at: Secrets are
// redacted, and Secrets among the items of a list and in annotations.
//
// Of a Secret only what is known to be harmless is shown: apiVersion, kind,
// metadata, type and immutable. Any other field, known or not, becomes a marker.
func (r *Redactor) object(obj []byte, force bool) (_ []byte, redacted bool) {
	apiVersion, kind := typeMeta(obj)
	secret := force || isSecretKind(apiVersion, kind)
	list := isListKind(apiVersion, kind)
	if !secret && !list && !mayHoldSecret(obj) {
		return obj, false
	}
	out := []byte{'{'}
	eachMember(obj, func(name string, rawName, value []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(out, rawName...), ':')
		hit := false
		switch low := strings.ToLower(name); {
		case low == "items" && (secret || list) && value[0] == '[':
			value, hit = r.items(value, secret)
		case low == "metadata":
			value, hit = r.metadata(value, secret)
		case !secret:
		case low == "data" || low == "stringdata":
			value, hit = r.values(value, low == "data")
		case harmless(name, value):
		default:
			value, hit = r.scalar(value, false), true
		}
		redacted = redacted || hit
		out = append(out, value...)
	})
	return append(out, '}'), redacted || secret
}

// harmless tells whether a member of a Secret cannot hold its values.
func harmless(name string, value []byte) bool {
	switch name {
	case "apiVersion", "kind", "type":
		return value[0] == '"' || string(value) == "null"
	case "immutable":
		return value[0] == 't' || value[0] == 'f' || value[0] == 'n'
	}
	return string(value) == "null"
}

// items redacts the objects of a list. In a list that is no SecretList each object
// speaks for itself.
func (r *Redactor) items(value []byte, force bool) (_ []byte, redacted bool) {
	if len(value) == 0 || value[0] != '[' {
		return value, false
	}
	out := []byte{'['}
	eachElement(value, func(v []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		if v[0] == '{' {
			var hit bool
			v, hit = r.object(v, force)
			redacted = redacted || hit
		} else if force {
			v, redacted = r.scalar(v, false), true
		}
		out = append(out, v...)
	})
	return append(out, ']'), redacted
}

// values redacts every value of data or stringData.
func (r *Redactor) values(value []byte, base64ed bool) (_ []byte, redacted bool) {
	if len(value) == 0 || value[0] != '{' {
		if string(value) == "null" {
			return value, false
		}
		return r.scalar(value, base64ed), true
	}
	out := []byte{'{'}
	eachMember(value, func(_ string, rawName, v []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, rawName...), ':'), r.scalar(v, base64ed)...)
	})
	return append(out, '}'), true
}

// scalar returns the marker of one JSON value, as JSON. The bytes measured are
// those the value stands for, so that data and stringData compare.
func (r *Redactor) scalar(v []byte, base64ed bool) []byte {
	plain := v
	var s string
	if v[0] == '"' && json.Unmarshal(v, &s) == nil {
		plain = []byte(s)
		if base64ed {
			if b, err := base64.StdEncoding.DecodeString(s); err == nil {
				plain = b
			}
		}
	}
	return transcode.AppendString(nil, r.Marker(plain))
}

// metadata redacts the annotations that repeat the object, which is a Secret, or
// that hold a Secret of their own.
func (r *Redactor) metadata(value []byte, secret bool) (_ []byte, redacted bool) {
	if value[0] != '{' {
		return r.misplaced(value, secret)
	}
	return mapMember(value, "annotations", func(notes []byte) ([]byte, bool) {
		if notes[0] != '{' {
			return r.misplaced(notes, secret)
		}
		out := []byte{'{'}
		hit := false
		eachMember(notes, func(name string, rawName, v []byte) {
			if len(out) > 1 {
				out = append(out, ',')
			}
			v, one := r.annotation(name, v, secret)
			hit = hit || one
			out = append(append(append(out, rawName...), ':'), v...)
		})
		return append(out, '}'), hit
	})
}

// misplaced takes a value that should be an object and is none: in a Secret it may
// be anything.
func (r *Redactor) misplaced(v []byte, secret bool) ([]byte, bool) {
	if !secret || string(v) == "null" {
		return v, false
	}
	return r.scalar(v, false), true
}

// annotation redacts last-applied-configuration, and any other annotation that
// holds an object: other tools keep copies too. Of a Secret every such object is
// taken for a copy, of other objects what says that it is a Secret.
func (r *Redactor) annotation(name string, v []byte, secret bool) ([]byte, bool) {
	var s string
	if v[0] != '"' || json.Unmarshal(v, &s) != nil {
		return r.misplaced(v, secret)
	}
	text := bytes.TrimSpace([]byte(s))
	if len(text) > 0 && text[0] == '{' {
		var compact bytes.Buffer
		if json.Compact(&compact, text) == nil {
			inner, hit := r.object(compact.Bytes(), secret)
			if !hit {
				return v, false
			}
			return transcode.AppendString(nil, inner), true
		}
		if secret || mentionsSecret(text) {
			return r.scalar(v, false), true // damaged: it may hold anything
		}
		return v, false
	}
	if name == lastApplied && len(text) > 0 && (secret || mentionsSecret(text)) {
		return r.scalar(v, false), true
	}
	return v, false
}
