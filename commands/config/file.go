package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/etcdctl-plus/etcdctl-plus/backup/place"
)

// maxFile bounds the configuration file: real ones have a few kilobytes.
const maxFile = 4 << 20

// noFile stands where a path would be when there is no home to have a file in.
const noFile = "(no configuration file)"

// File is the configuration file: the contexts, and which of them counts.
type File struct {
	Path     string
	Current  string    // current-context; "" when none
	Contexts []Context // in the order of the file

	doc yaml.Node // its zero value: there is no file, or nothing in it
}

// Context is a name for some settings.
type Context struct {
	Name     string         // as it is written in the file; case does not count
	Settings map[string]any // by the names of flags, lower case
}

// contextOnly are the settings that a context may hold besides those of Define.
var contextOnly = []string{"encryption-config"}

// secrets are the settings that nobody is shown.
var secrets = []string{"password", "auth-jwt-token"}

// FilePath returns where the configuration file is or would be, and what named it:
// "flag", a variable, or "" for the usual place.
func (f *Flags) FilePath() (path, from string) {
	if path, from = f.value("config"); path != "" {
		return path, from
	}
	dir := f.getenv("XDG_CONFIG_HOME")
	if dir == "" {
		home := f.getenv("HOME")
		if home == "" {
			return noFile, ""
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "etcdctl-plus", "config.yaml"), ""
}

// File reads the configuration file. A file that is not there is empty; that it was
// named makes no difference, because it can be written. Errors are *Error; one that
// wraps fs.ErrPermission says that the file may not be read.
func (f *Flags) File() (*File, error) {
	path, from := f.FilePath()
	c, err := readFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c, nil
	case err != nil:
		return nil, &Error{"config", from, err}
	}
	return c, nil
}

// readFile reads a file of contexts. When there is none it returns an empty one along
// with the error.
func readFile(path string) (*File, error) {
	c := &File{Path: path}
	if path == noFile {
		return c, &fs.PathError{Op: "read", Path: path, Err: fs.ErrNotExist}
	}
	b, err := readBounded(path)
	if err != nil {
		var perr *os.PathError
		if errors.As(err, &perr) {
			err = perr.Err
		}
		return c, fmt.Errorf("read %s: %w", path, err)
	}
	return c, c.parse(b)
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("more than %d bytes are no configuration file", maxFile)
	}
	return b, err
}

func (c *File) parse(b []byte) error {
	d := yaml.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(&c.doc); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		return fmt.Errorf("read %s: %w", c.Path, err)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s holds more than one YAML document", c.Path)
	}
	root := c.root()
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil
	}
	if root.Kind != yaml.MappingNode {
		return fmt.Errorf("%s is not a map of current-context and contexts", c.Path)
	}
	seen := map[string]bool{}
	for i := 0; i < len(root.Content); i += 2 {
		k := strings.ToLower(root.Content[i].Value)
		if seen[k] {
			return fmt.Errorf("%s has the member %q twice", c.Path, k)
		}
		seen[k] = true
		if k != "current-context" && k != "contexts" {
			return fmt.Errorf("%s has an unknown member %q; it takes current-context and contexts", c.Path, root.Content[i].Value)
		}
	}
	if n := member(root, "current-context"); n != nil {
		if n.Kind != yaml.ScalarNode {
			return fmt.Errorf("%s: current-context is not a name", c.Path)
		}
		if n.Tag != "!!null" {
			c.Current = n.Value
		}
	}
	return c.parseContexts(member(root, "contexts"))
}

func (c *File) parseContexts(all *yaml.Node) error {
	if all == nil || all.Kind == yaml.ScalarNode && all.Tag == "!!null" {
		return nil
	}
	if all.Kind != yaml.MappingNode {
		return fmt.Errorf("%s: contexts is not a map", c.Path)
	}
	for i := 0; i < len(all.Content); i += 2 {
		name := all.Content[i].Value
		if c.Find(name) != nil {
			return fmt.Errorf("%s: there are two contexts %q (case does not count)", c.Path, name)
		}
		x := Context{Name: name, Settings: map[string]any{}}
		n := all.Content[i+1]
		if n.Kind == yaml.ScalarNode && n.Tag != "!!null" || n.Kind == yaml.SequenceNode {
			return fmt.Errorf("%s: context %q is not a map of settings", c.Path, name)
		}
		m := map[string]any{}
		if err := n.Decode(&m); err != nil {
			return fmt.Errorf("%s: context %q is not a map of settings: %w", c.Path, name, err)
		}
		for k, v := range m {
			x.Settings[strings.ToLower(k)] = v
		}
		if len(x.Settings) != len(m) {
			return fmt.Errorf("%s: context %q has a setting twice (case does not count)", c.Path, name)
		}
		c.Contexts = append(c.Contexts, x)
	}
	return nil
}

// root is the map of the document; nil when there is none.
func (c *File) root() *yaml.Node {
	if len(c.doc.Content) == 0 {
		return nil
	}
	return c.doc.Content[0]
}

// member finds a member of a map, whatever the case of its name; nil for none.
func member(m *yaml.Node, name string) *yaml.Node {
	if m == nil {
		return nil
	}
	for i := 0; i+1 < len(m.Content); i += 2 {
		if strings.EqualFold(m.Content[i].Value, name) {
			return m.Content[i+1]
		}
	}
	return nil
}

// Find returns the context of a name, nil when there is none.
func (c *File) Find(name string) *Context {
	for i := range c.Contexts {
		if strings.EqualFold(c.Contexts[i].Name, name) {
			return &c.Contexts[i]
		}
	}
	return nil
}

// Names returns the names of all contexts.
func (c *File) Names() []string {
	var names []string
	for _, x := range c.Contexts {
		names = append(names, x.Name)
	}
	return names
}

// Missing is the error for a context that the file does not have.
func (c *File) Missing(name, from string) error {
	known := strings.Join(c.Names(), ", ")
	if known == "" {
		known = "none"
	}
	return &Error{"context", from, fmt.Errorf("no context %q in %s (there: %s)", name, c.Path, known)}
}

// InForce names the context that counts, and what chose it: "flag", a variable, or
// "current-context". "" for none. It need not be in the file.
func (f *Flags) InForce(c *File) (name, from string) {
	if name, from = f.value("context"); name != "" {
		return name, from
	}
	if path, _ := f.value("config"); c.Current == "" || path == "" && f.getenv(SandboxVariable) != "" {
		return "", ""
	}
	return c.Current, "current-context"
}

// Text writes a setting as a flag would have it.
func Text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case []any:
		var all []string
		for _, x := range v {
			all = append(all, Text(x))
		}
		return strings.Join(all, ",")
	}
	return fmt.Sprint(v)
}

// Shown writes a setting for people: a secret is only said to be set.
func Shown(name string, v any) string {
	const hidden = "(set, not shown)"
	s := Text(v)
	if slices.Contains(secrets, name) && s != "" {
		return hidden
	}
	if user, pw, ok := strings.Cut(s, ":"); name == "user" && ok && pw != "" {
		return user + ":" + hidden
	}
	return s
}

// Secret tells whether a setting's value holds a password or a token.
func Secret(name string, v any) bool {
	return Shown(name, v) != Text(v)
}

// Settable returns the names of all settings that a context may hold.
func Settable() []string {
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	Define(set, false, func(string) string { return "" })
	var names []string
	set.VisitAll(func(fl *pflag.Flag) {
		if fl.Name != "context" && fl.Name != "config" {
			names = append(names, fl.Name)
		}
	})
	return append(names, contextOnly...)
}

// Check tells what is wrong with a context by itself: unknown settings, values that are
// none, a certificate without its key. Errors are *Error.
func (c *File) Check(x *Context) error {
	if err := c.known(x); err != nil {
		return err
	}
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	f := Define(set, false, func(string) string { return "" })
	_, err := f.load(x.Name, x.Settings)
	return err
}

// known refuses settings that do not exist: a misspelt one would be without effect.
func (c *File) known(x *Context) error {
	all := Settable()
	for _, k := range slices.Sorted(maps.Keys(x.Settings)) {
		if !slices.Contains(all, k) {
			return &Error{"context", c.Path, fmt.Errorf("context %q has an unknown setting %q", x.Name, k)}
		}
	}
	return nil
}

// Edit changes the configuration file: it takes the lock that all writers take, reads,
// lets change do its work, checks what came out, and puts the new file in the place of
// the old one in one step, with mode 0600. Comments, order and members that are not
// changed stay; blank lines and indentation do not. A file that is wrong is not written
// to. It returns the file as it is then. place.ErrBusy says that another writer is at
// work.
func (f *Flags) Edit(change func(*File) error) (_ *File, err error) {
	path, from := f.FilePath()
	if path == noFile {
		return nil, &Error{"config", from, errors.New("there is no home to have a configuration file in: name one with --config")}
	}
	// The file may be a link into a folder that is kept elsewhere.
	if real, lerr := filepath.EvalSymlinks(path); lerr == nil {
		path = real
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of the configuration file: %w", err)
	}
	lock, err := place.Take(path + ".lock")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	place.Sweep(path)
	c, err := readFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, &Error{"config", from, err}
	}
	if err := change(c); err != nil {
		return nil, err
	}
	return c.write()
}

// write puts the file in its place and returns it as it reads then.
func (c *File) write() (*File, error) {
	spellNulls(&c.doc, false)
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := errors.Join(e.Encode(&c.doc), e.Close()); err != nil {
		return nil, fmt.Errorf("write %s: %w", c.Path, err)
	}
	// What is written has to be what is read.
	now := &File{Path: c.Path}
	if err := now.parse(b.Bytes()); err != nil {
		return nil, &Error{"config", "", fmt.Errorf("the change cannot be written; nothing was changed: %w", err)}
	}
	if err := replace(c.Path, b.Bytes()); err != nil {
		return nil, fmt.Errorf("write configuration file: %w", err)
	}
	return now, nil
}

// spellNulls writes nulls out that stand in a flow map, {hex}: the encoder would make empty
// strings of them.
func spellNulls(n *yaml.Node, flow bool) {
	flow = flow || n.Style&yaml.FlowStyle != 0
	for i, x := range n.Content {
		spellNulls(x, flow)
		isName := n.Kind == yaml.MappingNode && i%2 == 0
		if flow && !isName && x.Kind == yaml.ScalarNode && x.Tag == "!!null" && x.Value == "" {
			x.Value = "null"
		}
	}
}

// replace puts a new file in the place of path, which is complete or unchanged at any
// moment.
func replace(path string, b []byte) (err error) {
	t, err := place.Temp(path)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(t.Name()))
		}
	}()
	if err := errors.Join(write(t, b), keepOwner(t, path), t.Sync(), t.Close()); err != nil {
		return err
	}
	if err := os.Rename(t.Name(), path); err != nil {
		return err
	}
	return place.SyncDir(filepath.Dir(path))
}

func write(w io.Writer, b []byte) error {
	_, err := w.Write(b)
	return err
}

// Use makes a context the current one; "" for none. One that Set has just made is there
// too.
func (c *File) Use(name string) error {
	if name == "" {
		if root := c.root(); root != nil {
			drop(root, "current-context")
		}
		return nil
	}
	all := member(c.root(), "contexts")
	if member(all, name) == nil {
		return c.Missing(name, "")
	}
	for i := 0; i < len(all.Content); i += 2 {
		if strings.EqualFold(all.Content[i].Value, name) {
			name = all.Content[i].Value
		}
	}
	put(c.ensure(), "current-context", scalar(name))
	return nil
}

// Set changes settings of a context, which is made when there is none. An empty value
// takes a setting out. comment stands above a new context; "" for none.
func (c *File) Set(name string, settings map[string]any, comment string) error {
	if strings.TrimSpace(name) == "" || strings.ContainsAny(name, "\n\r\x00") {
		return &Error{"context", "", fmt.Errorf("%q is no name for a context", name)}
	}
	all := member(c.ensure(), "contexts")
	if all == nil || all.Kind != yaml.MappingNode {
		all = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		put(c.root(), "contexts", all)
	}
	x := member(all, name)
	if x == nil || x.Kind == yaml.ScalarNode { // a null
		x = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		put(all, name, x)
		if comment != "" {
			all.Content[len(all.Content)-2].HeadComment = comment
		}
	}
	if x.Kind == yaml.AliasNode {
		return &Error{"context", c.Path, fmt.Errorf("context %q is an alias of another one: change it in an editor", name)}
	}
	for _, k := range slices.Sorted(maps.Keys(settings)) {
		v := settings[k]
		if Text(v) == "" {
			drop(x, k)
			continue
		}
		n := new(yaml.Node)
		if err := n.Encode(v); err != nil {
			return fmt.Errorf("write setting %s: %w", k, err)
		}
		put(x, k, n)
	}
	// The check looks at what the file says now, merged maps included.
	m := map[string]any{}
	if err := x.Decode(&m); err != nil {
		return &Error{"context", c.Path, err}
	}
	now := Context{Name: name, Settings: map[string]any{}}
	for k, v := range m {
		now.Settings[strings.ToLower(k)] = v
	}
	for k, v := range settings {
		if Text(v) == "" && Text(now.Settings[k]) != "" {
			return &Error{"context", c.Path, fmt.Errorf("setting %s of context %q comes from a merged map: change that in an editor", k, name)}
		}
	}
	return c.Check(&now)
}

// ensure returns the map of the document, made when there is none.
func (c *File) ensure() *yaml.Node {
	if root := c.root(); root != nil && root.Kind == yaml.MappingNode {
		return root
	}
	root := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	if old := c.root(); old != nil { // a null with comments
		root.HeadComment, root.LineComment, root.FootComment = old.HeadComment, old.LineComment, old.FootComment
	}
	c.doc.Kind, c.doc.Content = yaml.DocumentNode, []*yaml.Node{root}
	return root
}

func scalar(s string) *yaml.Node {
	n := new(yaml.Node)
	n.SetString(s)
	return n
}

// put sets a member of a map and keeps the comments of the value before. A new member
// goes to the end: in front it would come between a comment and what that is about.
func put(m *yaml.Node, name string, v *yaml.Node) {
	for i := 0; i+1 < len(m.Content); i += 2 {
		if strings.EqualFold(m.Content[i].Value, name) {
			old := m.Content[i+1]
			v.HeadComment, v.LineComment, v.FootComment = old.HeadComment, old.LineComment, old.FootComment
			m.Content[i+1] = v
			return
		}
	}
	if len(m.Content) == 0 {
		m.Style = 0 // an empty {} would go on in one line
	}
	m.Content = append(m.Content, scalar(name), v)
}

func drop(m *yaml.Node, name string) {
	for i := 0; i+1 < len(m.Content); i += 2 {
		if strings.EqualFold(m.Content[i].Value, name) {
			m.Content = slices.Delete(m.Content, i, i+2)
			return
		}
	}
}
