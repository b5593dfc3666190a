package detect

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// maxFile bounds what is read of a file: manifests, units and certificates have a few
// kilobytes.
const maxFile = 1 << 20

// maxLinks is how many symbolic links a path may go through, as in Linux.
const maxLinks = 40

// tree is the files of a host, which may be below another root. All its paths are those
// of the host, until real makes them ours.
type tree struct {
	root   string
	now    time.Time
	looked []string
}

// real returns where a path of the host is on this machine. Below another root an
// absolute symbolic link points into that root, and none leads out of it.
func (t *tree) real(p string) string {
	if t.root == "/" {
		return p
	}
	done, links := "", 0
	rest := strings.Split(strings.Trim(path.Clean("/"+p), "/"), "/")
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			if done != "" {
				done = strings.TrimSuffix(path.Dir(done), "/")
			}
			continue
		}
		next := done + "/" + name
		target, err := os.Readlink(filepath.Join(t.root, next))
		if err != nil || links == maxLinks {
			done = next
			continue
		}
		links++
		if path.IsAbs(target) {
			done = ""
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return filepath.Join(t.root, done)
}

// see notes that a place was looked at.
func (t *tree) see(p string) {
	if p = filepath.Join(t.root, p); !slices.Contains(t.looked, p) {
		t.looked = append(t.looked, p)
	}
}

func (t *tree) open(p string) (*os.File, error) {
	t.see(p)
	f, err := os.OpenFile(t.real(p), os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		f.Close()
		if err == nil {
			err = fmt.Errorf("%s is not a file", f.Name())
		}
		return nil, err
	}
	return f, nil
}

func (t *tree) read(p string) ([]byte, error) {
	f, err := t.open(p)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes", f.Name(), maxFile)
	}
	return b, err
}

// list returns the names in a folder in order; none when there is no such folder.
func (t *tree) list(dir string) ([]string, error) {
	entries, err := os.ReadDir(t.real(dir))
	if gone(err) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

func (t *tree) stat(p string) (fs.FileInfo, error) {
	t.see(p)
	return os.Stat(t.real(p))
}

func (t *tree) missing(p string) bool {
	_, err := t.stat(p)
	return gone(err)
}

func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// problem says why a file is of no use; hint is what to do when it is not there.
func (t *tree) problem(p string, err error, hint string) Problem {
	file := t.shown(p)
	var perr *fs.PathError
	if errors.As(err, &perr) {
		file = perr.Path // of several files that were read for one, this is the one
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return Problem{File: file, Message: "this user may not read it", Hint: "run as root", Unreadable: true}
	case gone(err):
		return Problem{File: file, Message: "is not there", Hint: hint}
	}
	if perr != nil {
		err = perr.Err
	}
	return Problem{File: file, Message: err.Error()}
}

// shown is a path for people and for other programs of this machine.
func (t *tree) shown(p string) string { return t.real(p) }
