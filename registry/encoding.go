package registry

import (
	"bytes"
	"unicode/utf8"

	"github.com/etcdctl-plus/etcdctl-plus/registry/cbor"
	"github.com/etcdctl-plus/etcdctl-plus/registry/yaml"
)

// Encoding is how a value is written.
type Encoding string

// The encodings of plain values. What is still sealed has none.
const (
	Protobuf Encoding = "protobuf" // Kubernetes' envelope around a protobuf message
	JSON     Encoding = "json"
	CBOR     Encoding = "cbor"
	YAML     Encoding = "yaml"
	Text     Encoding = "text"   // readable text that is no object
	Binary   Encoding = "binary" // anything else
)

// magic begins every value in Kubernetes' protobuf envelope.
var magic = []byte("k8s\x00")

// DetectEncoding tells how a plain value is written, by its first bytes. Every
// value is looked at by itself: after a change of the apiserver's storage format
// old and new values lie side by side.
func DetectEncoding(value []byte) Encoding {
	switch {
	case bytes.HasPrefix(value, magic):
		return Protobuf
	case bytes.HasPrefix(bytes.TrimLeft(value, " \t\r\n"), []byte{'{'}):
		return JSON
	case cbor.Is(value):
		return CBOR
	case utf8.Valid(value) && !bytes.ContainsFunc(value, unreadable):
		if yaml.Is(value) {
			return YAML
		}
		return Text
	}
	return Binary
}

func unreadable(r rune) bool {
	return r < ' ' && r != '\n' && r != '\r' && r != '\t' || r == 0x7f
}
