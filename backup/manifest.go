package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// ManifestSuffix is what the name of a backup's manifest has more than the backup.
const ManifestSuffix = ".manifest.json"

// manifestFormat names the format, so that a later one can be told from it.
const manifestFormat = "etcdctl-plus/manifest/v1"

// Manifest is what was known of a backup when it was taken. It is written last: a
// backup without one was not finished, or was not taken by this program.
//
// Ids are hex strings, as etcdctl prints them; revisions are those of the file and not
// those of the moment when it was asked for.
type Manifest struct {
	Format string `json:"format"`
	// File is the name of the backup, without a folder.
	File string `json:"file"`
	// Bytes and SHA256 (hex) are of the file as it is stored, packed and encrypted.
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	// Packing says what was done to the database, in order: "zstd", "age"; empty: nothing.
	Packing []string `json:"packing,omitempty"`
	// DatabaseBytes and DatabaseSHA256 are of the pages, without the trailer that says
	// the same.
	DatabaseBytes  int64  `json:"databaseBytes"`
	DatabaseSHA256 string `json:"databaseSha256"`

	Revision   int64  `json:"revision"`
	CompactRev int64  `json:"compactRev"`
	RaftIndex  uint64 `json:"raftIndex,omitempty"`
	RaftTerm   uint64 `json:"raftTerm,omitempty"`
	// HashKV is etcd's hash of the keyspace up to Revision, as computed from the file. It
	// equals another one of the same revision and the same CompactRev, or one is damaged.
	HashKV *uint32 `json:"hashKV,omitempty"`
	// HashCompared tells that the server's own hash was asked for and was the same.
	HashCompared bool `json:"hashCompared,omitempty"`

	Keys        int64  `json:"keys"`
	Records     int64  `json:"records"`
	Leases      int64  `json:"leases"`
	ClusterID   string `json:"clusterId,omitempty"`
	MemberID    string `json:"memberId,omitempty"`
	Endpoint    string `json:"endpoint,omitempty"`
	EtcdVersion string `json:"etcdVersion,omitempty"`
	// StorageVersion is the version of the data, as servers from 3.6 on say it.
	StorageVersion string `json:"storageVersion,omitempty"`
	// FloorRevision is what a linearizable read found before the snapshot was asked for;
	// 0 when there was no quorum to ask.
	FloorRevision int64 `json:"floorRevision,omitempty"`
	// Stale: the snapshot was taken without a quorum, and may lack acknowledged writes.
	Stale   bool `json:"stale,omitempty"`
	Learner bool `json:"learner,omitempty"`
	// Rebuilt: the manifest was lost, and made anew of the file and its name.
	Rebuilt bool `json:"rebuilt,omitempty"`
	// Encryption names what sealed values need to be opened again: "aescbc:key1".
	Encryption []string `json:"encryption,omitempty"`

	// Verified is the highest level that was passed without a finding.
	Verified        Level     `json:"verifiedLevel"`
	Started         time.Time `json:"started"`
	Finished        time.Time `json:"finished"`
	DurationSeconds float64   `json:"durationSeconds"`
	Host            string    `json:"host,omitempty"`
	Tool            string    `json:"tool,omitempty"`
	// Sequence counts the backups of a repository, from 1; 0 outside of one.
	Sequence int64 `json:"sequence,omitempty"`
	// Self is the SHA-256 (hex) of the manifest as it is stored, with these 64 digits
	// as zeros.
	Self string `json:"manifestSha256"`
}

// ErrManifest is wrapped by what is wrong with a manifest.
var ErrManifest = errors.New("not a manifest of a backup")

// maxManifest bounds a manifest, in bytes. One with a hundred encryption keys has 10 kB.
const maxManifest = 1 << 20

// ReadManifest reads a manifest file. The error wraps ErrManifest, or is one of package
// io/fs.
func ReadManifest(path string) (*Manifest, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	m, err := ParseManifest(b)
	if err != nil {
		return nil, fmt.Errorf("read manifest %s: %w", path, err)
	}
	return m, nil
}

// selfMark is what stands in a manifest before its own checksum.
const selfMark = `"manifestSha256": "`

// noSum stands for a checksum while it is computed.
var noSum = strings.Repeat("0", 2*sha256.Size)

// ParseManifest decodes a manifest, and compares it with its own checksum. Members that
// it does not know are passed over. The error wraps ErrManifest.
func ParseManifest(b []byte) (*Manifest, error) {
	if len(b) > maxManifest {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrManifest, maxManifest)
	}
	var m Manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	switch {
	case m.Format == "":
		return nil, fmt.Errorf("%w: it names no format", ErrManifest)
	case m.Format != manifestFormat:
		return nil, fmt.Errorf("%w: its format is %q, this version reads %q", ErrManifest, m.Format, manifestFormat)
	case len(m.SHA256) != len(noSum) || m.Bytes <= 0 || m.Revision < 1:
		return nil, fmt.Errorf("%w: size, SHA-256 or revision is missing", ErrManifest)
	}
	i := bytes.LastIndex(b, []byte(selfMark))
	if i < 0 || len(b) < i+len(selfMark)+len(noSum) {
		return nil, fmt.Errorf("%w: its own checksum is missing", ErrManifest)
	}
	i += len(selfMark)
	if got := selfSum(b, i); got != m.Self || got != string(b[i:i+len(noSum)]) {
		return nil, fmt.Errorf("%w: it changed after it was written: its SHA-256 is %s, it says %s", ErrManifest, got, m.Self)
	}
	return &m, nil
}

// selfSum is the checksum of a manifest whose checksum stands at b[at:].
func selfSum(b []byte, at int) string {
	h := sha256.New()
	h.Write(b[:at])
	h.Write([]byte(noSum))
	h.Write(b[at+len(noSum):])
	return hex.EncodeToString(h.Sum(nil))
}

// Encode returns the manifest as JSON, for people to read as well, with its checksum.
func (m *Manifest) Encode() ([]byte, error) {
	m.Format, m.Self = manifestFormat, noSum
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write manifest: %w", err)
	}
	b = append(b, '\n')
	at := bytes.LastIndex(b, []byte(selfMark)) + len(selfMark)
	m.Self = selfSum(b, at)
	copy(b[at:], m.Self)
	return b, nil
}
