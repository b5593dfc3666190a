package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// IndexFile is the file of an extracted folder that says which file holds which key.
const IndexFile = "index.jsonl"

// Extracted is one key in a folder.
type Extracted struct {
	File      string `json:"file"` // with slashes, relative to the folder
	Key       string `json:"key"`
	KeyBase64 []byte `json:"keyBase64,omitempty"` // of a key that is no UTF-8
	Bytes     int    `json:"bytes"`
	CreateRev int64  `json:"createRev"`
	ModRev    int64  `json:"modRev"`
	Version   int64  `json:"version"`
	Lease     string `json:"lease,omitempty"` // hex
}

// ExtractOptions of Extract.
type ExtractOptions struct {
	// Content makes the content of a file and the end of its name, such as ".yaml"; nil:
	// the value as it is, and no end.
	Content func(keyspace.Record) (content []byte, end string)
}

// Extract writes every record into a file of its own below dir, which must be empty or
// absent, and IndexFile last. It returns how many there were. When it fails, what it wrote
// is removed again, and dir too if it was absent; where that is not possible a *PartError
// tells. It holds the names of all files in memory.
//
// A key's parts between slashes become folders. Whatever a key is called, its file lies
// inside dir and is no other key's: parts that are empty, dots, reserved or hold anything
// but letters, digits and "._-" are written with %XX, long ones end in a hash, and names
// that differ in case alone, or are a folder as well as a file, are told apart by a number.
func Extract(ctx context.Context, records iter.Seq2[keyspace.Record, error], dir string, o ExtractOptions) (n int64, err error) {
	made, err := makeDirs(dir)
	if err != nil {
		return 0, fmt.Errorf("extract: %w", err)
	}
	defer func() {
		if err != nil {
			removeEmpty(made)
		}
	}()
	root, err := os.OpenRoot(dir) // no symbolic link leads out of it
	if err != nil {
		return 0, fmt.Errorf("extract: %w", err)
	}
	defer root.Close()
	if entries, err := fs.ReadDir(root.FS(), "."); err != nil {
		return 0, fmt.Errorf("extract: %w", err)
	} else if len(entries) > 0 {
		return 0, &TargetError{Path: dir, Reason: "a folder that is not empty", Err: ErrExists}
	}
	var index bytes.Buffer
	x := extractor{root: root, used: map[string]string{strings.ToLower(IndexFile): ""}}
	defer func() {
		if err == nil {
			return
		}
		n = 0
		if left := x.undo(); left != nil {
			err = &PartError{Dir: dir, Err: err, Left: left}
		}
	}()
	enc := json.NewEncoder(&index)
	enc.SetEscapeHTML(false)
	for rec, err := range records {
		if err != nil {
			return n, err
		}
		if err := ctx.Err(); err != nil {
			return n, err
		}
		e, err := x.write(rec, o)
		if err != nil {
			return n, fmt.Errorf("extract %q: %w", rec.Key, err)
		}
		if err := enc.Encode(e); err != nil {
			return n, err
		}
		n++
	}
	if err := x.create(IndexFile, index.Bytes()); err != nil {
		return n, fmt.Errorf("extract: %w", err)
	}
	return n, nil
}

// PartError is an Extract that failed and could not take back what it had written.
type PartError struct {
	Dir  string
	Err  error // why it failed
	Left error // why the rest is still there
}

func (e *PartError) Error() string {
	return fmt.Sprintf("%v; a part of it is left in %s, without %s: %v", e.Err, e.Dir, IndexFile, e.Left)
}

// Unwrap returns why it failed.
func (e *PartError) Unwrap() error { return e.Err }

// makeDirs makes a folder and those above it, and returns those that were not there,
// the outermost first.
func makeDirs(dir string) (made []string, err error) {
	for d := filepath.Clean(dir); ; d = filepath.Dir(d) {
		if _, err := os.Lstat(d); err == nil || d == filepath.Dir(d) {
			break
		}
		made = append(made, d)
	}
	slices.Reverse(made)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		removeEmpty(made)
		return nil, err
	}
	return made, nil
}

// removeEmpty removes folders again that nothing is in.
func removeEmpty(dirs []string) {
	for _, d := range slices.Backward(dirs) {
		_ = os.Remove(d) // it may not have been made, or hold what another wrote
	}
}

type extractor struct {
	root *os.Root
	made []string // files and folders, in the order they were made
	// used is, by lower-case path, what a path was made for: a folder's own key, or ""
	// for a file.
	used map[string]string
}

func (x *extractor) write(rec keyspace.Record, o ExtractOptions) (Extracted, error) {
	content, end := rec.Value, ""
	if o.Content != nil {
		content, end = o.Content(rec)
	}
	parts := strings.Split(string(rec.Key), "/")
	if parts[0] == "" && len(parts) > 1 {
		parts = parts[1:] // most keys begin with a slash
		if parts[0] == "" {
			parts[0] = "/" // this one with two
		}
	} else {
		parts[0] = "\x00" + parts[0] // and this one with none
	}
	dir := ""
	for _, p := range parts[:len(parts)-1] {
		next, err := x.folder(dir, p)
		if err != nil {
			return Extracted{}, err
		}
		dir = next
	}
	name := x.free(dir, safeName(parts[len(parts)-1]), end)
	x.used[strings.ToLower(name)] = ""
	if err := x.create(name, content); err != nil {
		return Extracted{}, err
	}
	e := Extracted{File: name, Key: string(rec.Key), Bytes: len(rec.Value), CreateRev: rec.CreateRev, ModRev: rec.ModRev, Version: rec.Version}
	if !utf8.Valid(rec.Key) {
		e.Key, e.KeyBase64 = "", bytes.Clone(rec.Key)
	}
	if rec.Lease != 0 {
		e.Lease = fmt.Sprintf("%016x", uint64(rec.Lease))
	}
	return e, nil
}

// folder returns the folder for one part of a key below dir. Parts that differ in case
// alone have folders of their own.
func (x *extractor) folder(dir, part string) (string, error) {
	own := dir + "\x00" + part
	for i := 1; ; i++ {
		name := path.Join(dir, numbered(safeName(part), i))
		was, taken := x.used[strings.ToLower(name)]
		switch {
		case taken && was == own:
			return name, nil
		case !taken:
			x.used[strings.ToLower(name)] = own
			err := x.root.Mkdir(name, 0o700)
			if err == nil {
				x.made = append(x.made, name)
			}
			return name, err
		}
	}
}

// free returns a name below dir that nothing has yet.
func (x *extractor) free(dir, name, end string) string {
	for i := 1; ; i++ {
		p := path.Join(dir, numbered(name, i)+end)
		if _, taken := x.used[strings.ToLower(p)]; !taken {
			return p
		}
	}
}

func numbered(name string, i int) string {
	if i == 1 {
		return name
	}
	return fmt.Sprintf("%s~%d", name, i)
}

func (x *extractor) create(name string, content []byte) error {
	f, err := x.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	x.made = append(x.made, name)
	_, err = f.Write(content)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// undo removes what was made, and nothing else. It returns the first reason why something
// stays.
func (x *extractor) undo() (first error) {
	for _, name := range slices.Backward(x.made) {
		if err := x.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) && first == nil {
			first = err
		}
	}
	return first
}

// maxName is how long the name of a file may be, in bytes; file systems take 255.
const maxName = 200

// safeName writes a part of a key so that every system takes it as a name.
func safeName(part string) string {
	var b strings.Builder
	for i := range len(part) {
		switch c := part[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.' && i > 0 && i < len(part)-1:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	s := b.String()
	switch {
	case s == "":
		s = "%"
	case reserved[strings.ToLower(strings.SplitN(s, ".", 2)[0])]:
		s = "%" + s
	}
	if len(s) > maxName {
		sum := sha256.Sum256([]byte(part))
		s = s[:maxName-17] + "~" + hex.EncodeToString(sum[:8])
	}
	return s
}

// reserved are names that Windows has for devices.
var reserved = map[string]bool{
	"con": true, "prn": true, "aux": true, "nul": true,
	"com1": true, "com2": true, "com3": true, "com4": true, "com5": true, "com6": true, "com7": true, "com8": true, "com9": true,
	"lpt1": true, "lpt2": true, "lpt3": true, "lpt4": true, "lpt5": true, "lpt6": true, "lpt7": true, "lpt8": true, "lpt9": true,
}
