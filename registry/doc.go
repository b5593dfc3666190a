// Package registry reads what Kubernetes stores in etcd: it tells from a key which
// object it holds, and from a value what the object is.
//
// A Decoder turns stored bytes into JSON: it opens values that are encrypted at
// rest, finds out how they are encoded, and decodes protobuf along the table of
// package schema, without Kubernetes' own code. Nothing is refused: what does not
// decode comes back by its wire fields or as raw bytes, with the reason.
//
// A Mapper turns keys into resources and names and back.
//
// Nothing here reads or writes anything but LoadEncryptionConfig.
package registry
