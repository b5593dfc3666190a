package watchtail

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/etcdctl-plus/etcdctl-plus/backup/place"
)

// Checkpoint says how far a tail came, and by what the cluster is known again. The file is a
// line of JSON, and the SHA-256 of that line in hex. It is written when everything up to
// Revision is in the output for good.
type Checkpoint struct {
	Format     int       `json:"format"`     // 1
	Generation int64     `json:"generation"` // counts the times it was written
	ClusterID  ID        `json:"clusterId"`
	Revision   int64     `json:"revision"`
	Ahead      int64     `json:"raftAhead"`        // of the raft log's applied index, at least; see History
	Digest     ID        `json:"digest"`           // of the changes of Revision; 0: it had none
	Selection  string    `json:"selection"`        // which keys and events, in what form
	Output     *Output   `json:"output,omitempty"` // nil: it goes where nothing can be read on
	Time       time.Time `json:"time"`             // when it was written
}

// Output is how far a file was written.
type Output struct {
	Path   string `json:"path"`
	Inode  uint64 `json:"inode"` // 0: this system has none
	Offset int64  `json:"offset"`
}

// ID is a number that JSON has in 16 hex digits.
type ID uint64

// MarshalText writes 16 hex digits.
func (i ID) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%016x", uint64(i)), nil }

// UnmarshalText reads hex digits.
func (i *ID) UnmarshalText(b []byte) error {
	n, err := strconv.ParseUint(string(b), 16, 64)
	*i = ID(n)
	return err
}

// History is what Options.Known wants.
func (c *Checkpoint) History() History {
	return History{Cluster: uint64(c.ClusterID), Rev: c.Revision, Ahead: c.Ahead, Digest: uint64(c.Digest)}
}

// CheckpointError says that a checkpoint cannot be used.
type CheckpointError struct {
	Path   string
	Reason string
}

func (e *CheckpointError) Error() string { return fmt.Sprintf("checkpoint %s: %s", e.Path, e.Reason) }

const checkpointFormat = 1

// Encode returns the bytes of the file.
func (c *Checkpoint) Encode() []byte {
	b, err := json.Marshal(c)
	if err != nil {
		panic(err) // it holds nothing that cannot be encoded
	}
	sum := sha256.Sum256(b)
	return append(append(append(b, '\n'), hex.EncodeToString(sum[:])...), '\n')
}

// DecodeCheckpoint reads what Encode wrote; the error tells what is wrong with it.
func DecodeCheckpoint(b []byte) (*Checkpoint, error) {
	line, sum, ok := bytes.Cut(b, []byte("\n"))
	if !ok {
		return nil, errors.New("it is cut short")
	}
	want := sha256.Sum256(line)
	if string(sum) != hex.EncodeToString(want[:])+"\n" {
		return nil, errors.New("its checksum is wrong: it was cut or changed")
	}
	var format struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(line, &format); err != nil {
		return nil, err
	}
	if format.Format != checkpointFormat {
		return nil, fmt.Errorf("its format is %d, this program knows %d", format.Format, checkpointFormat)
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	c := &Checkpoint{}
	if err := d.Decode(c); err != nil {
		return nil, err
	}
	if c.Revision < 0 || c.Output != nil && c.Output.Offset < 0 {
		return nil, errors.New("it holds a negative number")
	}
	return c, nil
}

// CheckpointFile is a checkpoint that this process alone writes.
type CheckpointFile struct {
	path string
	lock *place.Lock
	last []byte // what the file holds; nil: it is not there
	gen  int64
}

// PrevSuffix is what follows the name of the generation before.
const PrevSuffix = ".prev"

// LockCheckpoint takes a checkpoint for this process; place.ErrBusy says that another one has
// it. The file need not be there yet, its folder must.
func LockCheckpoint(path string) (*CheckpointFile, error) {
	lock, err := place.Take(path + ".lock")
	if err != nil {
		return nil, fmt.Errorf("checkpoint %s: %w", path, err)
	}
	place.Sweep(path)
	place.Sweep(path + PrevSuffix)
	return &CheckpointFile{path: path, lock: lock}, nil
}

// Close gives the checkpoint back.
func (f *CheckpointFile) Close() error { return f.lock.Release() }

// Load reads the checkpoint; nil: there is none. When the file is damaged it is the
// generation before, and damaged says what is wrong. The error is a *CheckpointError when
// neither can be used.
func (f *CheckpointFile) Load() (c *Checkpoint, damaged error, err error) {
	c, b, err := ReadCheckpoint(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, serr := os.Lstat(f.path + PrevSuffix); serr == nil {
			return nil, nil, &CheckpointError{Path: f.path, Reason: "it is gone, and the generation before it is there: move that to its place to go on, or remove it to begin anew"}
		}
		return nil, nil, nil
	}
	if err == nil {
		f.last, f.gen = b, c.Generation
		return c, nil, nil
	}
	var bad *CheckpointError
	if !errors.As(err, &bad) {
		return nil, nil, err
	}
	damaged = err
	if c, _, err = ReadCheckpoint(f.path + PrevSuffix); err != nil {
		return nil, nil, damaged
	}
	f.gen = c.Generation + 1
	return c, damaged, nil
}

// ReadCheckpoint reads one file. The error is a *CheckpointError for one that is damaged.
func ReadCheckpoint(path string) (*Checkpoint, []byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	c, err := DecodeCheckpoint(b)
	if err != nil {
		return nil, nil, &CheckpointError{Path: path, Reason: err.Error()}
	}
	return c, b, nil
}

// Save puts a new generation into the place of the one before, which is kept beside it. What
// it says of the output must be there for good.
func (f *CheckpointFile) Save(c Checkpoint) error {
	f.gen++
	c.Format, c.Generation = checkpointFormat, f.gen
	b := c.Encode()
	if f.last != nil {
		if err := replace(f.path+PrevSuffix, f.last, false); err != nil {
			return fmt.Errorf("write checkpoint %s: %w", f.path, err)
		}
	}
	if err := replace(f.path, b, true); err != nil {
		return fmt.Errorf("write checkpoint %s: %w", f.path, err)
	}
	f.last = b
	return nil
}

// replace puts a file into its place, complete or not at all.
func replace(path string, b []byte, lasting bool) (err error) {
	t, err := place.Temp(path)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(t.Name()) // it is of no use
		}
	}()
	if _, err := t.Write(b); err != nil {
		return errors.Join(err, t.Close())
	}
	if lasting {
		if err := t.Sync(); err != nil {
			return errors.Join(err, t.Close())
		}
	}
	if err := t.Close(); err != nil {
		return err
	}
	if err := os.Rename(t.Name(), path); err != nil {
		return err
	}
	if !lasting {
		return nil
	}
	return place.SyncDir(filepath.Dir(path))
}
