package registry

import (
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
// damaged one it returns what came before the damage.
func parseEnvelope(value []byte) (e envelope, err error) {
	err = transcode.Walk(value[len(magic):], func(number uint32, v []byte) error {
		switch number {
		case 1:
			return transcode.Walk(v, func(number uint32, v []byte) error {
				switch number {
				case 1:
					e.apiVersion = string(v)
				case 2:
					e.kind = string(v)
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
	return e, err
}
