package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os/exec"
	"path"
	"regexp"
	"strings"
	"sync"
	"time"
)

// remote keeps objects where the user's rclone reaches. Each operation is one run
// of it, or a few.
type remote struct {
	bin  string
	base string // REMOTE:PATH

	mu    sync.Mutex
	swept map[string]bool
}

func openRclone(base string, o Options) (*remote, error) {
	bad := func(store, format string, a ...any) error {
		return &Error{Op: "open", Store: store, Kind: ErrConfig, Err: fmt.Errorf(format, a...)}
	}
	backend, inline := strings.CutPrefix(base, ":")
	name, _, ok := strings.Cut(backend, ":")
	switch {
	case strings.ContainsAny(name, ",="): // not repeated: it may be a secret
		return nil, bad("rclone:…", "options of a remote belong into rclone's configuration or variables, where other users of this host do not see them")
	case !ok, name == "", strings.HasPrefix(name, "-") && !inline:
		return nil, bad("rclone:"+base, "a remote is named rclone:REMOTE:PATH")
	}
	bin, err := exec.LookPath(cmp.Or(o.Rclone, "rclone"))
	if err != nil {
		return nil, bad("rclone:"+base, "rclone is not installed, or not in PATH: %w", err)
	}
	return &remote{bin: bin, base: base, swept: map[string]bool{}}, nil
}

func (s *remote) String() string { return "rclone:" + s.base }

func (s *remote) Close() error { return nil }

// at is the argument that names an object or folder.
func (s *remote) at(name string) string {
	if name == "" || strings.HasSuffix(s.base, ":") || strings.HasSuffix(s.base, "/") {
		return s.base + name
	}
	return s.base + "/" + name
}

// rcloneEnd is how long rclone has to end by itself when it is not wanted any more.
const rcloneEnd = 5 * time.Second

func (s *remote) command(ctx context.Context, args ...string) (*exec.Cmd, *lastWords) {
	cmd := exec.CommandContext(ctx, s.bin, args...)
	cmd.Cancel = func() error { return terminate(cmd.Process) }
	cmd.WaitDelay = rcloneEnd
	said := &lastWords{}
	cmd.Stderr = said
	return cmd, said
}

// run runs rclone and returns what it wrote to stdout.
func (s *remote) run(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
	var out bytes.Buffer
	cmd, said := s.command(ctx, args...)
	cmd.Stdin, cmd.Stdout = stdin, &out
	if err := cmd.Run(); err != nil {
		return nil, rcloneError(ctx, args[0], err, said)
	}
	return out.Bytes(), nil
}

// rcloneError gives the end of a run a kind, by its exit code
// (https://rclone.org/docs/#exit-code) and by what it said.
func rcloneError(ctx context.Context, verb string, err error, said *lastWords) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	text := said.String()
	var exit *exec.ExitError
	code := 0
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	}
	full := fmt.Errorf("rclone %s: %w", verb, err)
	if text != "" {
		full = fmt.Errorf("%w: %s", full, text)
	}
	switch {
	case code == 3, code == 4:
		return as(ErrNotExist, full)
	case strings.Contains(text, "didn't find section in config file"), strings.Contains(text, "didn't find backend called"):
		return as(ErrConfig, full)
	case strings.Contains(text, "NoSuchBucket"):
		return as(ErrNoBucket, full)
	case strings.Contains(text, "AccessDenied"), strings.Contains(text, "InvalidAccessKeyId"), strings.Contains(text, "SignatureDoesNotMatch"), strings.Contains(text, "Forbidden"):
		return as(ErrDenied, full)
	case code == 5, strings.Contains(text, "connection refused"), strings.Contains(text, "no such host"), strings.Contains(text, "i/o timeout"):
		return as(ErrUnreachable, full)
	}
	return full
}

// lastWords keeps the end of what rclone says.
type lastWords struct {
	mu sync.Mutex
	b  []byte
}

const maxWords = 4 << 10

func (w *lastWords) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.b = append(w.b, p...)
	if len(w.b) > maxWords {
		w.b = append(w.b[:0], w.b[len(w.b)-maxWords:]...)
	}
	return len(p), nil
}

var stamp = regexp.MustCompile(`^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d `)

// String is the last line, which sums up, and a line before it that is an error.
func (w *lastWords) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var words []string
	for line := range strings.SplitSeq(strings.TrimSpace(string(w.b)), "\n") {
		line = stamp.ReplaceAllString(strings.TrimSpace(line), "")
		if line != "" && !strings.HasPrefix(line, "NOTICE:") {
			words = append(words, line)
		}
	}
	return strings.Join(words[max(0, len(words)-2):], "; ")
}

// rcloneItem is an object as lsjson prints it.
type rcloneItem struct {
	Path    string
	Size    int64
	ModTime time.Time
	IsDir   bool
	Hashes  map[string]string
}

func (s *remote) Stat(ctx context.Context, name string) (Object, error) {
	i, err := s.stat(ctx, name)
	if err != nil {
		return Object{}, fail(ctx, "stat", s.String(), name, err)
	}
	return Object{Name: name, Bytes: i.Size, ModTime: i.ModTime}, nil
}

func (s *remote) stat(ctx context.Context, name string) (*rcloneItem, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	return s.look(ctx, name)
}

// look describes what lies under any name, also a temporary one.
func (s *remote) look(ctx context.Context, name string, flags ...string) (*rcloneItem, error) {
	out, err := s.run(ctx, nil, append([]string{"lsjson", "--stat", "--no-mimetype", s.at(name)}, flags...)...)
	if errors.Is(err, ErrNotExist) {
		return nil, ErrNotExist
	}
	if err != nil {
		return nil, err
	}
	var i *rcloneItem
	if err := json.Unmarshal(out, &i); err != nil {
		return nil, fmt.Errorf("rclone lsjson answers with what is no JSON: %w", err)
	}
	if i == nil || i.IsDir {
		return nil, ErrNotExist
	}
	return i, nil
}

func (s *remote) Put(ctx context.Context, name string, src io.ReaderAt, size int64, sum [32]byte, o PutOptions) error {
	return fail(ctx, "put", s.String(), name, s.put(ctx, name, src, size, sum, o))
}

func (s *remote) put(ctx context.Context, name string, src io.ReaderAt, size int64, sum [32]byte, o PutOptions) (err error) {
	if err := CheckName(name); err != nil {
		return err
	}
	if !o.Replace {
		if _, err := s.stat(ctx, name); !errors.Is(err, ErrNotExist) {
			return cmp.Or(err, ErrExists)
		}
	}
	dir := path.Dir(name)
	s.sweep(ctx, dir)
	tmp := path.Join(dir, partName())
	moved := false
	defer func() {
		if !moved {
			// Also when ctx has ended.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
			defer cancel()
			_, _ = s.run(ctx, nil, "deletefile", "--retries", "1", s.at(tmp)) // it may not be there; the next sweep removes what is
		}
	}()
	hashes, err := s.send(ctx, tmp, src, size, sum, o.Progress)
	if err != nil {
		return err
	}
	if err := s.compare(ctx, tmp, size, hashes); err != nil {
		return err
	}
	// Without --ignore-times, what has the size and time of the old object would
	// not be moved but dropped.
	flag := "--ignore-times"
	if !o.Replace {
		flag = "--ignore-existing" // looked at by rclone once more, right before
	}
	if _, err := s.run(ctx, nil, "moveto", flag, s.at(tmp), s.at(name)); err != nil {
		return err
	}
	if o.Replace {
		moved = true
		return nil
	}
	switch _, err := s.look(ctx, tmp); {
	case errors.Is(err, ErrNotExist):
		moved = true
		return nil
	case err != nil:
		return err
	}
	return ErrExists // not moved
}

// send streams the source to a temporary name, and returns its hashes.
func (s *remote) send(ctx context.Context, tmp string, src io.ReaderAt, size int64, sum [32]byte, tell func(int64)) (map[string]string, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	md5, sha1, sha256 := md5.New(), sha1.New(), sha256.New()
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := copyChecked(ctx, io.MultiWriter(w, md5, sha1, sha256), src, size, sum, tell)
		if err != nil {
			stop(err) // or rclone would take the end for the end of the object
		}
		w.CloseWithError(err)
		ended <- err
	}()
	_, err := s.run(ctx, r, "rcat", "--size", fmt.Sprint(size), s.at(tmp))
	r.CloseWithError(cmp.Or(err, io.ErrClosedPipe)) // lets go of a writer whose reader is gone
	if e := <-ended; e != nil && (err == nil || !errors.Is(e, err)) {
		return nil, cmp.Or(context.Cause(ctx), e)
	}
	return map[string]string{
		"md5": hex.EncodeToString(md5.Sum(nil)), "sha1": hex.EncodeToString(sha1.Sum(nil)), "sha256": hex.EncodeToString(sha256.Sum(nil)),
	}, err
}

// compare compares what is stored by size and by the hashes that the remote knows.
func (s *remote) compare(ctx context.Context, tmp string, size int64, hashes map[string]string) error {
	i, err := s.look(ctx, tmp, "--hash-type", "md5", "--hash-type", "sha1", "--hash-type", "sha256")
	if err != nil {
		return err
	}
	if i.Size != size && i.Size >= 0 { // encrypting remotes can be unable to tell
		return &ChecksumError{What: "the number of bytes in the store", Want: fmt.Sprint(size), Got: fmt.Sprint(i.Size)}
	}
	for kind, got := range i.Hashes {
		if want := hashes[strings.ToLower(kind)]; want != "" && got != "" && !strings.EqualFold(got, want) {
			return &ChecksumError{What: "the " + kind + " that the store computed", Want: want, Got: got}
		}
	}
	return nil
}

// sweep removes temporary files that are a day old, once for each folder. What
// cannot be removed is left for the next run.
func (s *remote) sweep(ctx context.Context, dir string) {
	s.mu.Lock()
	done := s.swept[dir]
	s.swept[dir] = true
	s.mu.Unlock()
	if done {
		return
	}
	items, err := s.items(ctx, strings.TrimPrefix(dir, "."))
	if err != nil {
		return
	}
	for _, i := range items {
		if _, ok := partOf(i.Path); ok && time.Since(i.ModTime) > foreignAge {
			_, _ = s.run(ctx, nil, "deletefile", "--retries", "1", s.at(path.Join(dir, i.Path))) // see above
		}
	}
}

// items lists the files of a folder; one that is not there has none.
func (s *remote) items(ctx context.Context, dir string, flags ...string) ([]rcloneItem, error) {
	out, err := s.run(ctx, nil, append([]string{"lsjson", "--files-only", "--no-mimetype", s.at(dir)}, flags...)...)
	if errors.Is(err, ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var items []rcloneItem
	if err := json.Unmarshal(out, &items); err != nil {
		return nil, fmt.Errorf("rclone lsjson answers with what is no JSON: %w", err)
	}
	return items, nil
}

// List holds all names in memory: remotes have no order.
func (s *remote) List(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		dir := ""
		if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
			if dir = prefix[:i]; CheckName(dir) != nil {
				return // no object has such a name
			}
		}
		items, err := s.items(ctx, dir, "--recursive", "--fast-list")
		if err != nil {
			yield(Object{}, fail(ctx, "list", s.String(), prefix, err))
			return
		}
		var all []Object
		for _, i := range items {
			if name := path.Join(dir, i.Path); strings.HasPrefix(name, prefix) && CheckName(name) == nil {
				all = append(all, Object{Name: name, Bytes: i.Size, ModTime: i.ModTime})
			}
		}
		inOrder(all, yield)
	}
}

func (s *remote) Delete(ctx context.Context, name string) error {
	_, err := s.stat(ctx, name) // rclone says the same of what is absent and what fails
	if err == nil {
		_, err = s.run(ctx, nil, "deletefile", s.at(name))
	}
	return fail(ctx, "delete", s.String(), name, err)
}

func (s *remote) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	r, err := s.get(ctx, name)
	if err != nil {
		return nil, fail(ctx, "get", s.String(), name, err)
	}
	return r, nil
}

func (s *remote) get(ctx context.Context, name string) (*catting, error) {
	i, err := s.stat(ctx, name)
	if err != nil {
		return nil, err
	}
	c := &catting{s: s, name: name, left: i.Size}
	c.ctx, c.stop = context.WithCancel(ctx)
	c.cmd, c.said = s.command(c.ctx, "cat", s.at(name))
	if c.out, err = c.cmd.StdoutPipe(); err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

// catting reads from an rclone that runs.
type catting struct {
	s    *remote
	name string
	ctx  context.Context
	stop context.CancelFunc
	cmd  *exec.Cmd
	out  io.ReadCloser
	said *lastWords
	left int64 // negative: the remote cannot tell
	end  error // once it has ended
}

func (c *catting) Read(p []byte) (int, error) {
	if c.end != nil {
		return 0, c.end
	}
	n, err := c.out.Read(p)
	c.left -= int64(n)
	if err == nil {
		return n, nil
	}
	// Only the end of the process tells whether this is the end of the object.
	wait := c.cmd.Wait()
	switch {
	case wait != nil:
		c.end = rcloneError(c.ctx, "cat", wait, c.said)
	case c.left > 0:
		// In a bucket, rclone takes what went meanwhile for an empty folder.
		c.end = io.ErrUnexpectedEOF
		if _, err := c.s.stat(c.ctx, c.name); errors.Is(err, ErrNotExist) {
			c.end = err
		}
	default:
		c.end = io.EOF
		return n, io.EOF
	}
	c.end = fail(c.ctx, "get", c.s.String(), c.name, c.end)
	return n, c.end
}

// Close ends rclone if it still runs.
func (c *catting) Close() error {
	if c.end == nil {
		c.stop()
		_ = c.cmd.Wait() // it was told to end
		c.end = errText("read after Close")
	}
	c.stop()
	return nil
}

// Lock takes a lock of flags: rclone cannot write under a condition.
func (s *remote) Lock(ctx context.Context, name string, o LockOptions) (*Lock, error) {
	if err := CheckName(name); err != nil {
		return nil, fail(ctx, "lock", s.String(), name, err)
	}
	return raise(ctx, s, s.String(), name, o)
}
