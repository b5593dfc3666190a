// Package cli is what every command stands on: the outside world in one value
// (Env), typed errors with exit codes and hints, the connection, and the flags
// that several commands share.
package cli

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"charm.land/lipgloss/v2"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/term"

	"github.com/etcdctl-plus/etcdctl-plus/commands/config"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

// ErrBrokenPipe says that whoever read standard output went away.
var ErrBrokenPipe = errors.New("standard output: broken pipe")

// Personality is whose manners the program has.
type Personality int

// The personalities. As etcdctl or etcdutl the program is a drop-in: their
// commands, flags, variables, output and exit codes.
const (
	Own Personality = iota
	Etcdctl
	Etcdutl
)

// PersonalityOf reads it off the name the program was started under.
func PersonalityOf(name string) Personality {
	switch name {
	case "etcdctl":
		return Etcdctl
	case "etcdutl":
		return Etcdutl
	}
	return Own
}

// Env holds everything outside the process. Settings and the client are made
// when first asked for, so help and completion never dial.
type Env struct {
	Name        string
	Version     string // of the program; set by the tree of commands
	Personality Personality
	Stdin       io.Reader
	Stdout      io.Writer
	Stderr      io.Writer
	StdinTTY    bool
	StdoutTTY   bool
	StderrTTY   bool
	Width       func() int // columns of the terminal at stdout; 0: unknown
	Getenv      func(string) string
	Now         func() time.Time
	Flags       *config.Flags

	warn     sync.Mutex
	settings *config.Settings
	client   *clientv3.Client
	closers  []func() error
	out      *bufio.Writer
	// incomplete says that what was read is not all there is; everything else went well.
	incomplete error
	taken      bool       // signals, by the command
	raise      os.Signal  // at the end
	files      []*os.File // stdin, stdout and stderr of the process; nil in tests
}

// SystemEnv is the Env of this process.
func SystemEnv(name string) *Env {
	e := &Env{
		Name: name, Personality: PersonalityOf(name),
		Stdin: os.Stdin, Stdout: stdout(), Stderr: os.Stderr,
		StdinTTY:  term.IsTerminal(int(os.Stdin.Fd())),
		StdoutTTY: term.IsTerminal(int(os.Stdout.Fd())),
		StderrTTY: term.IsTerminal(int(os.Stderr.Fd())),
		Getenv:    os.Getenv,
		Now:       time.Now,
		files:     []*os.File{os.Stdin, os.Stdout, os.Stderr},
	}
	e.Width = func() int {
		if w, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil {
			return w
		}
		w, _ := strconv.Atoi(os.Getenv("COLUMNS"))
		return w
	}
	return e.guarded()
}

// NewEnv is an Env without a process around it, for tests and embedding: nothing
// is a terminal, and variables come from getenv.
func NewEnv(name string, stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string) *Env {
	return &Env{
		Name: name, Personality: PersonalityOf(name), Stdin: stdin, Stdout: stdout, Stderr: stderr,
		Width: func() int { return 0 }, Getenv: getenv, Now: time.Now,
	}
}

// guarded puts a terminal guard in front of both streams where they are
// terminals, and a buffer in front of stdout where it is none.
func (e *Env) guarded() *Env {
	if e.StdoutTTY {
		e.Stdout = output.NewTerminal(e.Stdout)
	} else {
		e.out = bufio.NewWriterSize(e.Stdout, 64<<10)
		e.Stdout = e.out
	}
	if e.StderrTTY {
		e.Stderr = output.NewTerminal(e.Stderr)
	}
	return e
}

// Raw returns stdin, stdout and stderr for a child process, without the guards
// that stand in front of them; false when they are not the process's own.
func (e *Env) Raw() ([]*os.File, bool) { return e.files, e.files != nil }

// DropIn tells whether the program was started as etcdctl or etcdutl.
func (e *Env) DropIn() bool { return e.Personality != Own }

// Settings resolves flags, variables and context, once.
func (e *Env) Settings() (*config.Settings, error) {
	if e.settings == nil {
		s, err := e.Flags.Load()
		if err != nil {
			return nil, err
		}
		e.settings = s
		for _, w := range s.Warnings {
			e.Warn("%s", w)
		}
		if s.Debug {
			e.tellSettings(s)
		}
	}
	return e.settings, nil
}

// OutputOnly resolves the settings of output and nothing else: for commands that reach
// no cluster and have to work when the contexts are wrong.
func (e *Env) OutputOnly() error {
	if e.settings != nil {
		return nil
	}
	s, err := e.Flags.LoadOutput()
	if err == nil {
		e.settings = s
	}
	return err
}

// tellSettings answers --debug. Secrets are only said to be set.
func (e *Env) tellSettings(s *config.Settings) {
	user, _, _ := strings.Cut(s.User, ":")
	redacted := func(v string) string {
		if v == "" {
			return ""
		}
		return "(set, not shown)"
	}
	fmt.Fprintf(e.Stderr, "endpoints=%s (from %s) context=%q dial-timeout=%s command-timeout=%s cacert=%q cert=%q key=%q user=%q password=%q auth-jwt-token=%q read-only=%t\n",
		strings.Join(s.Endpoints, ","), s.EndpointsFrom, s.Context, s.DialTimeout, s.CommandTimeout, s.CACert, s.Cert, s.Key, user,
		redacted(s.Password+strings.TrimPrefix(s.User, user)), redacted(s.AuthToken), s.ReadOnly)
}

// Client dials when first called.
func (e *Env) Client(ctx context.Context) (*clientv3.Client, error) {
	if e.client == nil {
		s, err := e.Settings()
		if err != nil {
			return nil, err
		}
		c, err := Dial(ctx, s, e.AskPassword)
		if err != nil {
			return nil, err
		}
		e.client = c
		e.OnClose(c.Close)
	}
	return e.client, nil
}

// ClientOf dials one endpoint with the settings in force. Whoever asks closes the client.
// It may be called from several goroutines, once Login has been.
func (e *Env) ClientOf(ctx context.Context, endpoint string) (*clientv3.Client, error) {
	s, err := e.Settings()
	if err != nil {
		return nil, err
	}
	one := *s
	one.Endpoints, one.DiscoverySRV, one.EndpointsFrom = []string{endpoint}, "", "argument"
	return Dial(ctx, &one, e.AskPassword)
}

// Login asks for a password that is missing, once for all clients to come.
func (e *Env) Login() error {
	s, err := e.Settings()
	if err != nil || s.User == "" || s.Password != "" || s.AuthToken != "" || strings.Contains(s.User, ":") {
		return err
	}
	s.Password, err = e.AskPassword(s.User)
	return err
}

// Endpoints are those of the settings, those that an SRV record names, or, with cluster,
// the client addresses that the cluster's member list has.
func (e *Env) Endpoints(ctx context.Context, cluster bool) ([]string, error) {
	s, err := e.Settings()
	if err != nil {
		return nil, err
	}
	if err := e.Login(); err != nil {
		return nil, err
	}
	if !cluster {
		return endpoints(s)
	}
	members, err := e.Members(ctx)
	if err != nil {
		return nil, fmt.Errorf("failed to fetch endpoints from etcd cluster member list: %w", err)
	}
	var all []string
	for _, m := range members.Members {
		all = append(all, m.ClientURLs...)
	}
	return all, nil
}

// Members asks the cluster for its members.
func (e *Env) Members(ctx context.Context) (*clientv3.MemberListResponse, error) {
	client, err := e.Client(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel, err := e.CommandContext(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	return client.MemberList(ctx)
}

// AskPassword asks on the terminal. Without one it is an error that says so.
func (e *Env) AskPassword(user string) (string, error) {
	f, ok := e.Stdin.(*os.File)
	if !e.StdinTTY || !ok {
		return "", &config.Error{Setting: "user", Err: fmt.Errorf("no password for user %q, and standard input is not a terminal to ask for it; use --password or ETCDCTL_PASSWORD", user)}
	}
	fmt.Fprintf(e.Stderr, "Password: ")
	b, err := term.ReadPassword(int(f.Fd()))
	fmt.Fprintln(e.Stderr)
	if err != nil {
		return "", fmt.Errorf("read password: %w", err)
	}
	return string(b), nil
}

// CommandContext bounds one unary call by --command-timeout.
func (e *Env) CommandContext(ctx context.Context) (context.Context, context.CancelFunc, error) {
	s, err := e.Settings()
	if err != nil {
		return nil, nil, err
	}
	if s.CommandTimeout == 0 {
		c, cancel := context.WithCancel(ctx)
		return c, cancel, nil
	}
	c, cancel := context.WithTimeout(ctx, s.CommandTimeout)
	return c, cancel, nil
}

// OnClose registers something to close at the end, last in, first out.
func (e *Env) OnClose(f func() error) { e.closers = append(e.closers, f) }

// Close lets go of everything that was opened and flushes stdout. Main calls it.
func (e *Env) Close() error {
	var errs []error
	for i := len(e.closers) - 1; i >= 0; i-- {
		if err := e.closers[i](); err != nil && !errors.Is(err, context.Canceled) {
			errs = append(errs, err)
		}
	}
	e.closers = nil
	return errors.Join(append(errs, e.Flush())...)
}

// Incomplete returns why a command that did all it could must not end with 0: its
// source lacks something. nil: nothing is missing.
func (e *Env) Incomplete() error { return e.incomplete }

// TakeSignals says that the command deals with INT, TERM and HUP itself: its error decides
// how the process ends, and what came is not raised again; raise is instead, unless nil.
func (e *Env) TakeSignals(raise os.Signal) { e.taken, e.raise = true, raise }

// TakenSignals returns what TakeSignals was told last, and whether it was called.
func (e *Env) TakenSignals() (raise os.Signal, taken bool) { return e.raise, e.taken }

// Flush writes what waits in front of stdout.
func (e *Env) Flush() error {
	if t, ok := e.Stdout.(*output.Terminal); ok {
		return t.Flush()
	}
	if e.out != nil {
		return e.out.Flush()
	}
	return nil
}

// Printer makes a printer for a command that offers the given formats, the
// first being its default.
func (e *Env) Printer(formats ...output.Format) (*output.Printer, error) {
	s, err := e.Settings()
	if err != nil {
		return nil, err
	}
	name := s.WriteOut
	if name == "" {
		name = string(formats[0])
	}
	f, arg, err := output.Parse(name, formats)
	if err != nil {
		if s.WriteOutAsked {
			return nil, &Error{Code: Usage, Err: err, DropIn: 4}
		}
		f, arg = formats[0], "" // a preference this command cannot follow
	}
	p := &output.Printer{Out: e.Stdout, Err: e.Stderr, Format: f, Arg: arg, Color: e.Color()}
	if e.StdoutTTY {
		p.Width = e.Width()
	}
	return p, p.CheckQuery()
}

// Color tells whether to style: only on a terminal, and not with NO_COLOR set
// (https://no-color.org) or TERM=dumb.
func (e *Env) Color() bool {
	return e.StdoutTTY && e.Getenv("NO_COLOR") == "" && e.Getenv("TERM") != "dumb"
}

// Warn tells one line on stderr that an operator should know of. It may be called from
// any goroutine. With -w json or jsonl it is a line of JSON, {"warning": "..."}.
func (e *Env) Warn(format string, a ...any) { e.tell("warning", fmt.Sprintf(format, a...)) }

// Say tells one line on stderr that is no warning: what was done besides the answer. With
// -w json or jsonl it is {"note": "..."}.
func (e *Env) Say(format string, a ...any) { e.tell("", fmt.Sprintf(format, a...)) }

// Damage tells one line on stderr of what is lost. With -w json or jsonl it is
// {"damage": "..."}.
func (e *Env) Damage(format string, a ...any) { e.tell("damage", fmt.Sprintf(format, a...)) }

// tell writes one line of a kind on stderr; "" is a note.
func (e *Env) tell(kind, message string) {
	e.warn.Lock()
	defer e.warn.Unlock()
	if e.JSONMessages() {
		fmt.Fprintln(e.Stderr, jsonMessage(cmp.Or(kind, "note"), message))
		return
	}
	line := output.CleanLine(message)
	if kind == "" {
		fmt.Fprintln(e.Stderr, line)
		return
	}
	line = kind + ": " + line
	if t, ok := e.Stderr.(*output.Terminal); ok && e.Getenv("NO_COLOR") == "" && e.Getenv("TERM") != "dumb" {
		_ = t.Styled(lipgloss.NewStyle().Foreground(lipgloss.Yellow).Render(line) + "\n") // nowhere left to report it
		return
	}
	fmt.Fprintln(e.Stderr, line)
}

// JSONMessages tells whether what goes to stderr is for a program: under our own name with
// -w json or jsonl. Before the settings are known it is not.
func (e *Env) JSONMessages() bool {
	if e.settings == nil || e.DropIn() {
		return false
	}
	switch output.Format(e.settings.WriteOut) {
	case output.JSON, output.JSONL:
		return true
	}
	return false
}

func jsonMessage(kind, message string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(map[string]string{kind: message}) // strings are always written
	return strings.TrimSuffix(b.String(), "\n")
}

// ReadStdin reads all of stdin. On a terminal it says first that it waits.
func (e *Env) ReadStdin(what string) ([]byte, error) {
	if e.StdinTTY {
		fmt.Fprintf(e.Stderr, "reading %s from the terminal; end it with Ctrl-D\n", what)
	}
	b, err := io.ReadAll(io.LimitReader(e.Stdin, MaxInput+1))
	if err != nil {
		return nil, fmt.Errorf("read %s from standard input: %w", what, err)
	}
	if len(b) > MaxInput {
		return nil, TooLong(what + " from standard input")
	}
	return b, nil
}

// MaxInput is how many bytes are read at most of what is held in memory as a whole.
const MaxInput = 256 << 20

// TooLong is the error for input of more than MaxInput.
func TooLong(what string) error {
	return Failf(Data, "%s is longer than %d MiB", what, MaxInput>>20)
}

// PrinterNamed is Printer with a format that a flag of the command's own gave;
// "" leaves the choice to -w.
func (e *Env) PrinterNamed(name string, formats ...output.Format) (*output.Printer, error) {
	s, err := e.Settings()
	if err != nil {
		return nil, err
	}
	if name != "" {
		if s.WriteOutAsked && s.WriteOut != name {
			return nil, Usagef("-o %s and -w %s contradict each other", name, s.WriteOut)
		}
		s.WriteOut, s.WriteOutAsked = name, true
	}
	return e.Printer(formats...)
}
