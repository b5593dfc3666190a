// Package walfile reads the write-ahead log of an etcd member: what the member has
// promised to the others and to its clients, including what its database does not
// hold yet.
//
// A log is a folder of segments named SEQUENCE-INDEX.wal, both in hex. A segment is
// a row of frames (etcd's server/storage/wal): eight bytes of length, a protobuf
// record {type, crc, data}, and up to seven bytes that make the frame a multiple of
// eight. The checksum of a record is a CRC-32C over the data of all records before
// it, also of earlier segments, so that nothing can be left out or put between.
//
// Nothing is written, locked or repaired, and a log that a running member appends
// to can be read: it ends at the last whole record. Every length is compared with
// the size of the file before use.
package walfile
