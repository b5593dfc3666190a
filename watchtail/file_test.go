package watchtail

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// parsePlain reads lines "REV I/N" and "REV BEGIN", "REV END".
func parsePlain(b []byte) (l Line, ok bool) {
	var word string
	if n, _ := fmt.Sscanf(string(b), "%d %s", &l.Rev, &word); n != 2 || l.Rev < 1 || fmt.Sprintf("%d %s", l.Rev, word) != string(b) {
		return l, false
	}
	l.Begin, l.End = word == "BEGIN", word == "END"
	if l.Begin || l.End || word == "-" {
		return l, true
	}
	n, _ := fmt.Sscanf(word, "%d/%d", &l.I, &l.N)
	return l, n == 2 && l.I > 0
}

const sound = "1 1/1\n2 1/3\n2 2/3\n2 3/3\n5 BEGIN\n5 -\n5 -\n5 END\n6 1/2\n6 2/2\n"

// wholeUpTo is the last whole revision in the first n bytes, and where it ends.
func wholeUpTo(n int) (rev int64, end int) {
	for _, w := range []struct {
		rev  int64
		text string
	}{{1, "1 1/1\n"}, {2, "2 1/3\n2 2/3\n2 3/3\n"}, {5, "5 BEGIN\n5 -\n5 -\n5 END\n"}, {6, "6 1/2\n6 2/2\n"}} {
		if end+len(w.text) > n {
			return rev, end
		}
		rev, end = w.rev, end+len(w.text)
	}
	return rev, end
}

// A file that was torn at any byte is read on: what is whole is kept, the rest is cut off, and
// what follows is appended there.
func TestTornFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "out")
	for n := range len(sound) + 1 {
		if err := os.WriteFile(path, []byte(sound[:n]), 0o600); err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		wantRev, wantEnd := wholeUpTo(n)
		for at, first := range map[int64]bool{0: true, 6: false} { // behind nothing, and behind revision 1
			if int64(n) < at {
				continue
			}
			if err := os.WriteFile(path, []byte(sound[:n]), 0o600); err != nil {
				t.Fatal(err)
			}
			s, rev, err := OpenFile(FileOptions{Path: path, Parse: parsePlain}, &Output{Path: path, Inode: inode(st), Offset: at})
			if err != nil {
				t.Fatalf("%d bytes: %v", n, err)
			}
			if rev != wantRev && (first || wantRev != 1 || rev != 0) {
				t.Errorf("%d bytes from %d on: revision %d, want %d", n, at, rev, wantRev)
			}
			if err := errors.Join(s.Write([]byte("9 1/1\n")), s.Close()); err != nil {
				t.Fatal(err)
			}
			if b, err := os.ReadFile(path); err != nil || string(b) != sound[:wantEnd]+"9 1/1\n" {
				t.Errorf("%d bytes: %q, %v", n, b, err)
			}
		}
	}
}

// What is not ours is not cut off, nor written to.
func TestForeignFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "out")
	for name, b := range map[string]string{
		"another line":      "1 1/1\nhello\n",
		"a gap":             "1 1/1\n2 2/3\n2 3/3\n",
		"backwards":         "2 1/1\n1 1/1\n",
		"again":             "2 1/1\n2 1/1\n",
		"another number":    "2 1/3\n2 2/2\n",
		"torn in between":   "2 1/3\n3 1/1\n",
		"more than it says": "2 3/2\n",
	} {
		if err := os.WriteFile(path, []byte(b), 0o600); err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		var out *OutputError
		if _, _, err := OpenFile(FileOptions{Path: path, Parse: parsePlain}, &Output{Path: path, Inode: inode(st)}); !errors.As(err, &out) {
			t.Errorf("%s: %v", name, err)
		}
		if now, err := os.ReadFile(path); err != nil || string(now) != b {
			t.Errorf("%s: it holds %q now, %v", name, now, err)
		}
	}
	var out *OutputError
	if _, _, err := OpenFile(FileOptions{Path: path, Parse: parsePlain}, nil); !errors.As(err, &out) {
		t.Errorf("without a checkpoint: %v", err)
	}
	if _, _, err := OpenFile(FileOptions{Path: path, Parse: parsePlain}, &Output{Path: path, Inode: 1, Offset: 3}); !errors.As(err, &out) {
		t.Errorf("another file: %v", err)
	}
}

// While it is written nobody else may write to it, or cut it.
func TestWatchedFile(t *testing.T) {
	t.Parallel()
	for name, meddle := range map[string]func(path string) error{
		"cut": func(path string) error { return os.Truncate(path, 0) },
		"appended": func(path string) error {
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteString("x\n")
			return errors.Join(err, f.Close())
		},
	} {
		path := filepath.Join(t.TempDir(), "out")
		s, _, err := OpenFile(FileOptions{Path: path, Parse: parsePlain}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.Write([]byte("1 1/1\n")), s.Flush(), meddle(path), s.Write([]byte("2 1/1\n"))); err != nil {
			t.Fatal(err)
		}
		var out *OutputError
		if err := s.Flush(); !errors.As(err, &out) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzReadOn(f *testing.F) {
	f.Add([]byte(sound), uint16(0))
	f.Add([]byte(sound[:30]), uint16(6))
	f.Fuzz(func(t *testing.T, b []byte, from uint16) {
		path := filepath.Join(t.TempDir(), "out")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		at := min(int64(from), int64(len(b)))
		rev, end, err := readOn(path, at, parsePlain)
		if err != nil {
			return
		}
		if end < at || end > int64(len(b)) || end > at && b[end-1] != '\n' || (rev == 0) != (end == at) {
			t.Fatalf("revision %d ends at %d of %d, from %d", rev, end, len(b), at)
		}
		// What is whole stays whole when it is read again alone.
		if err := os.WriteFile(path, b[:end], 0o600); err != nil {
			t.Fatal(err)
		}
		if rev2, end2, err := readOn(path, at, parsePlain); err != nil || rev2 != rev || end2 != end {
			t.Fatalf("%d at %d, then %d at %d, %v", rev, end, rev2, end2, err)
		}
	})
}

func FuzzDecodeCheckpoint(f *testing.F) {
	c := Checkpoint{Format: checkpointFormat, Revision: 7, Digest: 9, Selection: "x", Output: &Output{Path: "p", Offset: 3}}
	f.Add(c.Encode())
	f.Add([]byte("{}\n" + strings.Repeat("0", 64) + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeCheckpoint(b)
		if err != nil {
			return
		}
		again, err := DecodeCheckpoint(c.Encode())
		if err != nil || !bytes.Equal(again.Encode(), c.Encode()) {
			t.Fatalf("%+v, %+v, %v", c, again, err)
		}
	})
}
