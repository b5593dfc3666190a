// Package cbor turns the CBOR that Kubernetes writes into JSON.
//
// What Kubernetes refuses is refused: its serializer is the oracle of the tests.
package cbor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"

	"github.com/fxamacker/cbor/v2"
)

// magic is the head of tag 55799, "self-described CBOR", which stands before every
// value that Kubernetes stores.
var magic = []byte{0xd9, 0xd9, 0xf7}

const (
	// maxInput is five times what Kubernetes accepts as one object. What a document
	// unfolds to in memory is bounded by it: every element takes a byte at least.
	maxInput = 16 << 20
	// maxDepth is that of encoding/json and of Kubernetes.
	maxDepth = 10000
	maxItems = 1 << 20 // elements of one array or members of one map
)

// Is tells whether b begins as CBOR that Kubernetes wrote.
func Is(b []byte) bool { return bytes.HasPrefix(b, magic) }

// mode is made when the first value needs it: most processes never do, and it costs
// more than starting one should.
var mode = sync.OnceValues(func() (cbor.DecMode, error) {
	var simple []func(*cbor.SimpleValueRegistry) error
	for v := range 256 {
		// Only false, true and null mean something; 24 to 31 do not exist.
		if v < 20 || v == 23 || v > 31 {
			simple = append(simple, cbor.WithRejectedSimpleValue(cbor.SimpleValue(v)))
		}
	}
	known, err := cbor.NewSimpleValueRegistryFromDefaults(simple...)
	if err != nil {
		return nil, err
	}
	return cbor.DecOptions{
		// Two readers could take another one of two equal keys.
		DupMapKey:        cbor.DupMapKeyEnforcedAPF,
		MaxNestedLevels:  maxDepth,
		MaxArrayElements: maxItems,
		MaxMapPairs:      maxItems,
		// Numbers: whole ones as int64 with every digit, the rest as float64, and
		// nothing that JSON cannot hold.
		IntDec:       cbor.IntDecConvertSignedOrFail,
		BignumTag:    cbor.BignumTagForbidden,
		NaN:          cbor.NaNDecodeForbidden,
		Inf:          cbor.InfDecodeForbidden,
		SimpleValues: known,
		// Kubernetes writes text as byte strings, and bytes as byte strings in the tag
		// "to be base64 later".
		DefaultMapType:           reflect.TypeFor[map[string]any](),
		DefaultByteStringType:    reflect.TypeFor[string](),
		ByteStringToString:       cbor.ByteStringToStringAllowedWithExpectedLaterEncoding,
		ByteStringExpectedFormat: cbor.ByteStringExpectedBase64,
		MapKeyByteString:         cbor.MapKeyByteStringForbidden,
		UTF8:                     cbor.UTF8RejectInvalid,
		TimeTag:                  cbor.DecTagOptional,
		TimeTagToAny:             cbor.TimeTagToRFC3339Nano,
		UnrecognizedTagToAny:     cbor.UnrecognizedTagContentToAny,
		BinaryUnmarshaler:        cbor.BinaryUnmarshalerNone,
		TextUnmarshaler:          cbor.TextUnmarshalerTextString,
	}.DecMode()
})

// ToJSON returns one CBOR document as one line of JSON, members sorted by name. The
// tag before it may be missing.
func ToJSON(src []byte) ([]byte, error) {
	if len(src) > maxInput {
		return nil, fmt.Errorf("%d bytes of CBOR are more than the limit of %d", len(src), maxInput)
	}
	m, err := mode()
	if err != nil {
		return nil, err
	}
	var v any
	if err := m.Unmarshal(src, &v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}
