package backup

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// Level is how deep a verification looks. Each level presumes those before it.
type Level int

// The levels, from the outside in.
const (
	LevelFile    Level = iota // a regular file of a size that a database has, readable by its owner alone
	LevelSeal                 // the checksum behind the pages; the manifest
	LevelPages                // every page in use
	LevelRecords              // every record, and what they say of each other
	LevelHash                 // etcd's own hash of the keyspace
	LevelObjects              // Kubernetes' objects decode, and are what their keys say
	LevelDrill                // a private etcd boots from it and has the same
	LevelPolicy               // it is not older, and not further behind, than allowed
)

var levelNames = [...]string{"file", "checksum", "pages", "records", "hash", "objects", "drill", "policy"}

// String returns the level's name, such as "pages".
func (l Level) String() string {
	if l < 0 || int(l) >= len(levelNames) {
		return fmt.Sprintf("level %d", int(l))
	}
	return levelNames[l]
}

// Finding is one thing that is wrong with a backup, or odd.
type Finding struct {
	Level Level
	// Warning marks what a sound backup may have; everything else is damage.
	Warning bool
	Page    int64             // -1: of no one page
	Bucket  string            // "": of none
	Rev     keyspace.Revision // the zero Revision: of none
	Key     []byte            // nil: of none
	Reason  string
}

// String says where and what in one line.
func (f Finding) String() string {
	return dbfile.Finding{Page: f.Page, Bucket: f.Bucket, Rev: f.Rev, Key: f.Key, Reason: f.Reason}.String()
}

// MarshalJSON leaves out what a finding is not about. A key that is no UTF-8 comes as
// keyBase64.
func (f Finding) MarshalJSON() ([]byte, error) {
	v := struct {
		Level     int    `json:"level"`
		LevelName string `json:"levelName"`
		Warning   bool   `json:"warning,omitempty"`
		Page      *int64 `json:"page,omitempty"`
		Bucket    string `json:"bucket,omitempty"`
		Revision  int64  `json:"revision,omitempty"`
		Sub       int64  `json:"subRevision,omitempty"`
		Key       string `json:"key,omitempty"`
		KeyBase64 []byte `json:"keyBase64,omitempty"`
		Reason    string `json:"reason"`
	}{
		Level: int(f.Level), LevelName: f.Level.String(), Warning: f.Warning, Bucket: f.Bucket,
		Revision: f.Rev.Main, Sub: f.Rev.Sub, Reason: f.Reason,
	}
	if f.Page >= 0 {
		v.Page = &f.Page
	}
	if utf8.Valid(f.Key) {
		v.Key = string(f.Key)
	} else {
		v.KeyBase64 = f.Key
	}
	return json.Marshal(v)
}

// fromFile is a finding of the page reader, with a key that outlives the file.
func fromFile(f dbfile.Finding) Finding {
	l := LevelPages
	if f.Records {
		l = LevelRecords
	}
	return Finding{Level: l, Warning: f.Warning, Page: f.Page, Bucket: f.Bucket, Rev: f.Rev, Key: bytes.Clone(f.Key), Reason: f.Reason}
}
