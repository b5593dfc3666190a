package seal

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// ErrPlugin is wrapped by the errors of a KeyService: the plugin is not there, or
// does not open the key of the value.
var ErrPlugin = errors.New("the KMS plugin did not open the key")

// WrappedKey is what a KMS plugin needs to open the key of a value.
type WrappedKey struct {
	Ciphertext  []byte
	KeyID       string            // v2 only
	Annotations map[string][]byte // v2 only
}

// KeyService asks the KMS plugin that header names to open a key. It must be safe
// for concurrent use; its errors wrap ErrPlugin or ErrNoKey.
type KeyService interface {
	Unwrap(header Header, key WrappedKey) ([]byte, error)
}

// maxKeys bounds the opened keys that are kept. Of v2 a cluster has a few, one for
// each start of an apiserver; of v1 every value has its own.
const maxKeys = 4096

// Limits of what a v2 envelope may hold, those of the apiserver.
const (
	maxKeyID       = 1 << 10
	maxWrapped     = 1 << 10
	maxAnnotations = 32 << 10
	seedInfo       = 32 // bytes before the sealed ones, from which their key derives
)

// Envelopes opens the values that the apiserver sealed with keys of its own and
// whose keys a KMS plugin sealed. It keeps opened keys, and is safe for concurrent
// use.
type Envelopes struct {
	service KeyService
	mu      sync.Mutex
	keys    map[[sha256.Size]byte]*openedKey
}

// openedKey is asked for once, however many values wait for it.
type openedKey struct {
	once sync.Once
	key  []byte
	err  error
}

// NewEnvelopes returns a KMSPlugin that has its keys opened by service.
func NewEnvelopes(service KeyService) *Envelopes {
	return &Envelopes{service: service, keys: map[[sha256.Size]byte]*openedKey{}}
}

// Open returns the plain value.
func (e *Envelopes) Open(h Header, body, key []byte) ([]byte, error) {
	if h.Version == "v1" {
		return e.v1(h, body, key)
	}
	return e.v2(h, body, key)
}

// v1: two bytes with the length of the sealed key, the key, then aesgcm; until
// Kubernetes 1.24 it was aescbc.
func (e *Envelopes) v1(h Header, body, key []byte) ([]byte, error) {
	if len(body) < 2 {
		return nil, errShort
	}
	n := int(binary.BigEndian.Uint16(body))
	if body = body[2:]; n > len(body) {
		return nil, errShort
	}
	dek, err := e.unwrap(h, WrappedKey{Ciphertext: body[:n]})
	if err != nil {
		return nil, err
	}
	plain, err := openGCM(dek, body[n:], key)
	if err == nil {
		return plain, nil
	}
	if older, cbcErr := openCBC(dek, body[n:]); cbcErr == nil {
		return older, nil
	}
	return nil, err
}

var errShort = errors.New("the envelope of the KMS value is cut short")

// v2: an EncryptedObject message.
func (e *Envelopes) v2(h Header, body, key []byte) ([]byte, error) {
	o, err := parseObject(body)
	if err != nil {
		return nil, fmt.Errorf("the envelope of the KMS value is damaged: %w", err)
	}
	secret, err := e.unwrap(h, o.key)
	if err != nil {
		return nil, err
	}
	data := o.data
	if o.seed {
		if len(secret) < seedInfo || len(data) < seedInfo {
			return nil, fmt.Errorf("%w: it gave %d bytes where a seed has %d, or the value is cut", ErrWrongKey, len(secret), seedInfo)
		}
		if secret, err = hkdf.Expand(sha256.New, secret, string(data[:seedInfo]), 32); err != nil {
			return nil, err
		}
		data = data[seedInfo:]
	}
	return openGCM(secret, data, key)
}

// unwrap has a key opened, once.
func (e *Envelopes) unwrap(h Header, w WrappedKey) ([]byte, error) {
	id := w.fingerprint(h)
	e.mu.Lock()
	k := e.keys[id]
	if k == nil {
		if len(e.keys) >= maxKeys {
			clear(e.keys) // those still needed are asked for again
		}
		k = new(openedKey)
		e.keys[id] = k
	}
	e.mu.Unlock()
	k.once.Do(func() {
		// The value's memory may be gone when the next one needs the key.
		if k.key, k.err = e.service.Unwrap(h, w); k.err != nil {
			return
		}
		if n := len(k.key); n != 16 && n != 24 && n != 32 && (h.Version == "v1" || n < seedInfo) {
			k.err = fmt.Errorf("%w: the KMS plugin %q gave a key of %d bytes", ErrPlugin, h.KeyName, n)
		}
	})
	return k.key, k.err
}

// fingerprint tells keys apart.
func (w *WrappedKey) fingerprint(h Header) (id [sha256.Size]byte) {
	sum := sha256.New()
	part := func(b []byte) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		sum.Write(n[:])
		sum.Write(b)
	}
	part([]byte(h.Version))
	part([]byte(h.KeyName))
	part(w.Ciphertext)
	part([]byte(w.KeyID))
	for _, name := range slices.Sorted(maps.Keys(w.Annotations)) {
		part([]byte(name))
		part(w.Annotations[name])
	}
	sum.Sum(id[:0])
	return id
}

// sealedObject is the apiserver's EncryptedObject.
type sealedObject struct {
	data []byte
	key  WrappedKey
	seed bool // the key is a seed from which the value's key derives
}

// parseObject reads an EncryptedObject and checks what the apiserver checks.
func parseObject(b []byte) (o sealedObject, err error) {
	var source uint64
	err = eachField(b, func(n protowire.Number, t protowire.Type, v []byte, num uint64) error {
		if (n >= 1 && n <= 4) && t != protowire.BytesType || n == 5 && t != protowire.VarintType {
			return nil // a field that nobody knows, for protobuf
		}
		switch n {
		case 1:
			o.data = v
		case 2:
			o.key.KeyID = string(v)
		case 3:
			o.key.Ciphertext = bytes.Clone(v)
		case 4:
			return o.annotation(v)
		case 5:
			source = num
		}
		return nil
	})
	if err != nil {
		return o, err
	}
	size := 0
	for k, v := range o.key.Annotations {
		size += len(k) + len(v)
	}
	switch {
	case int32(source) != 0 && int32(source) != 1:
		return o, fmt.Errorf("unknown source of the key: %d", int32(source))
	case len(o.data) == 0:
		return o, errors.New("no data")
	case len(o.key.Ciphertext) == 0 || len(o.key.Ciphertext) > maxWrapped:
		return o, fmt.Errorf("a sealed key of %d bytes", len(o.key.Ciphertext))
	case o.key.KeyID == "" || len(o.key.KeyID) > maxKeyID || !utf8.ValidString(o.key.KeyID):
		return o, fmt.Errorf("a key id of %d bytes", len(o.key.KeyID))
	case size > maxAnnotations:
		return o, fmt.Errorf("annotations of %d bytes", size)
	}
	o.seed = int32(source) == 1
	return o, nil
}

func (o *sealedObject) annotation(b []byte) error {
	var name string
	var value []byte
	err := eachField(b, func(n protowire.Number, t protowire.Type, v []byte, _ uint64) error {
		if t != protowire.BytesType {
			return nil
		}
		switch n {
		case 1:
			name = string(v)
		case 2:
			value = bytes.Clone(v)
		}
		return nil
	})
	if err == nil && !utf8.ValidString(name) {
		err = errors.New("the name of an annotation is no text")
	}
	if o.key.Annotations == nil {
		o.key.Annotations = map[string][]byte{}
	}
	o.key.Annotations[name] = value
	return err
}

// eachField walks over a protobuf message. v is the content of bytes, num that of a
// varint.
func eachField(b []byte, f func(n protowire.Number, t protowire.Type, v []byte, num uint64) error) error {
	for len(b) > 0 {
		n, t, size := protowire.ConsumeTag(b)
		if size < 0 {
			return protowire.ParseError(size)
		}
		b = b[size:]
		var v []byte
		var num uint64
		switch t {
		case protowire.BytesType:
			v, size = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			num, size = protowire.ConsumeVarint(b)
		default:
			size = protowire.ConsumeFieldValue(n, t, b)
		}
		if size < 0 {
			return protowire.ParseError(size)
		}
		if err := f(n, t, v, num); err != nil {
			return err
		}
		b = b[size:]
	}
	return nil
}

var _ KMSPlugin = (*Envelopes)(nil)
