// Package config decides every connection and output setting: a flag wins over
// ETCDCTL_PLUS_X, that over ETCDCTL_X, that over the context, that over the
// default. It is the only importer of viper.
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// Settings is everything a command may need to reach a cluster.
type Settings struct {
	Endpoints   []string
	DialTimeout time.Duration
	// CommandTimeout bounds one unary command; 0: no bound. CommandTimeoutFrom tells where
	// it came from, as EndpointsFrom does: what takes long by nature has a default of its own.
	CommandTimeout     time.Duration
	CommandTimeoutFrom string
	KeepaliveTime      time.Duration
	KeepaliveTimeout   time.Duration
	MaxRequestBytes    int // 0: 2 MiB
	MaxRecvBytes       int // 0: no limit but the protocol's
	Debug              bool
	Hex                bool
	WriteOut           string

	Cert, Key, CACert     string
	InsecureTransport     bool
	InsecureSkipTLSVerify bool
	InsecureDiscovery     bool
	DiscoverySRV          string
	DiscoverySRVName      string

	User, Password string
	AuthToken      string

	ReadOnly bool
	// Audit is the file that gets a line for every write, or "syslog"; "": none does.
	Audit string
	// KeyPrefix stands before every key: commands see what is under it alone.
	KeyPrefix string
	// WriteOutAsked says that WriteOut comes from a flag: a command that does not
	// have it refuses. What a variable or context says is only a preference.
	WriteOutAsked bool
	// Warnings are what an operator should know about the settings.
	Warnings []string
	Context  string // name of the context in force; "" when none
	// EncryptionConfig is the API server's EncryptionConfiguration that opens sealed
	// values where no flag names one; EncryptionFrom tells who named it, as
	// EndpointsFrom does.
	EncryptionConfig, EncryptionFrom string

	// EndpointsFrom tells where Endpoints came from: "flag", a variable's name,
	// "context NAME" or "default". For messages.
	EndpointsFrom string
}

// Flags is the set of settings as flags. Defaults stand in one place: here.
type Flags struct {
	set      *pflag.FlagSet
	dropIn   bool // started as etcdctl: no variables, contexts or flags of our own
	getenv   func(string) string
	warnings []string
}

// SandboxVariable marks the environment of a command that runs in a sandbox: no
// context of a real cluster counts there unless one is asked for. With the value
// SandboxReadOnly the command may only read. (Its name does not begin with
// ETCDCTL_, because etcdctl warns about every such variable it does not know.)
const (
	SandboxVariable = "ETCD_PLUS_SANDBOX"
	SandboxReadOnly = "read-only"
)

// ours are the settings that etcdctl does not have.
var ours = []string{"read-only", "audit", "key-prefix", "context", "config", "encryption-config"}

// Define adds the flags to set. With dropIn only etcdctl's own flags exist and
// only ETCDCTL_ variables count.
func Define(set *pflag.FlagSet, dropIn bool, getenv func(string) string) *Flags {
	f := &Flags{set: set, dropIn: dropIn, getenv: getenv}
	set.StringSlice("endpoints", []string{"127.0.0.1:2379"}, "gRPC endpoints")
	set.Bool("debug", false, "tell on stderr which settings and endpoints are in force")
	formats := "output format: simple, fields, json, table, protobuf; many commands also have jsonl, yaml, wide, template=…, jsonpath=…"
	if dropIn {
		formats = "set the output format (fields, json, protobuf, simple, table)"
	}
	// The default is empty so that each command has its own: simple where
	// etcdctl has one, table elsewhere.
	set.StringP("write-out", "w", "", formats)
	set.Bool("hex", false, "print byte strings as hex encoded strings")
	set.Duration("dial-timeout", 2*time.Second, "dial timeout for client connections")
	set.Duration("command-timeout", 5*time.Second, "timeout for short running commands (excluding dial timeout)")
	set.Duration("keepalive-time", 2*time.Second, "keepalive time for client connections")
	set.Duration("keepalive-timeout", 6*time.Second, "keepalive timeout for client connections")
	set.Int("max-request-bytes", 0, "client-side request send limit in bytes (0: 2 MiB)")
	set.Int("max-recv-bytes", 0, "client-side response receive limit in bytes (0: 2 GiB)")
	set.Bool("insecure-transport", true, "do not use TLS for an endpoint without a scheme, unless a certificate is given")
	set.Bool("insecure-discovery", true, "accept insecure SRV records describing cluster endpoints")
	set.Bool("insecure-skip-tls-verify", false, "skip server certificate verification (CAUTION: this option should be enabled only for testing purposes)")
	set.String("cert", "", "identify secure client using this TLS certificate file")
	set.String("key", "", "identify secure client using this TLS key file")
	set.String("cacert", "", "verify certificates of TLS-enabled secure servers using this CA bundle")
	set.String("user", "", "username[:password] for authentication (prompt if password is not supplied)")
	set.String("password", "", "password for authentication (if this option is used, --user option shouldn't include password)")
	set.String("auth-jwt-token", "", "JWT token used for authentication (if this option is used, --user and --password should not be set)")
	set.StringP("discovery-srv", "d", "", "domain name to query for SRV records describing cluster endpoints")
	set.String("discovery-srv-name", "", "service name to query when using DNS discovery")
	if !dropIn {
		set.Bool("read-only", false, "refuse every request that would change the cluster")
		set.String("audit", "", "append a line of JSON for every request that can change the cluster to this file, or \"syslog\"; keys and names, never values")
		set.String("key-prefix", "", "work below this prefix alone: keys are given and shown without it")
		set.String("context", "", "name of the context in the configuration file to use")
		set.String("config", "", "configuration file (default: etcdctl-plus/config.yaml in the user's configuration folder)")
	}
	return f
}

// Env returns the names of the variables of a flag, the strongest first.
func Env(flag string, dropIn bool) []string {
	x := strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
	switch {
	case dropIn:
		return []string{"ETCDCTL_" + x}
	case slices.Contains(ours, flag):
		return []string{"ETCDCTL_PLUS_" + x}
	default:
		return []string{"ETCDCTL_PLUS_" + x, "ETCDCTL_" + x}
	}
}

// Error is a wrong setting: which one, where it came from, and why.
type Error struct {
	Setting, From string
	Err           error
}

func (e *Error) Error() string {
	if e.From == "" {
		return fmt.Sprintf("setting %s: %v", e.Setting, e.Err)
	}
	return fmt.Sprintf("setting %s (from %s): %v", e.Setting, e.From, e.Err)
}
func (e *Error) Unwrap() error { return e.Err }

// Load resolves all settings. Errors are *Error.
func (f *Flags) Load() (*Settings, error) {
	if f.dropIn {
		return f.load("", nil)
	}
	name, m, err := f.context()
	if err != nil {
		return nil, err
	}
	return f.load(name, m)
}

// LoadOutput resolves the settings of output alone. No context counts, and none is
// read: what edits contexts has to work when they are wrong.
func (f *Flags) LoadOutput() (*Settings, error) {
	s := &Settings{}
	var from string
	s.WriteOut, from = f.value("write-out")
	s.WriteOutAsked = from == "flag"
	debug, from := f.value("debug")
	g := getter{from: map[string]string{"debug": from}}
	s.Debug = g.parse("debug", debug)
	return s, g.err
}

// load resolves all settings with those of a context; ctx is its name.
func (f *Flags) load(ctx string, m map[string]any) (*Settings, error) {
	v := viper.New()
	if err := v.MergeConfigMap(maps.Clone(m)); err != nil {
		return nil, &Error{"context", ctx, err}
	}
	from := map[string]string{}
	var bad error
	f.set.VisitAll(func(fl *pflag.Flag) {
		from[fl.Name] = f.origin(fl, v, ctx)
		// viper binds the process environment; tests and Env have their own.
		for _, n := range slices.Backward(Env(fl.Name, f.dropIn)) {
			if val := f.getenv(n); val != "" && !fl.Changed {
				v.Set(fl.Name, val)
			}
		}
		if fl.Changed || !v.IsSet(fl.Name) {
			if err := v.BindPFlag(fl.Name, fl); err != nil && bad == nil {
				bad = err
			}
		}
	})
	if bad != nil {
		return nil, bad
	}
	g := getter{v: v, from: from}
	s := &Settings{
		Endpoints:             g.list("endpoints"),
		DialTimeout:           g.duration("dial-timeout"),
		CommandTimeout:        g.duration("command-timeout"),
		CommandTimeoutFrom:    from["command-timeout"],
		KeepaliveTime:         g.duration("keepalive-time"),
		KeepaliveTimeout:      g.duration("keepalive-timeout"),
		MaxRequestBytes:       g.count("max-request-bytes"),
		MaxRecvBytes:          g.count("max-recv-bytes"),
		Debug:                 g.flag("debug"),
		Hex:                   g.flag("hex"),
		WriteOut:              v.GetString("write-out"),
		Cert:                  v.GetString("cert"),
		Key:                   v.GetString("key"),
		CACert:                v.GetString("cacert"),
		InsecureTransport:     g.flag("insecure-transport"),
		InsecureSkipTLSVerify: g.flag("insecure-skip-tls-verify"),
		InsecureDiscovery:     g.flag("insecure-discovery"),
		DiscoverySRV:          v.GetString("discovery-srv"),
		DiscoverySRVName:      v.GetString("discovery-srv-name"),
		User:                  v.GetString("user"),
		Password:              v.GetString("password"),
		AuthToken:             v.GetString("auth-jwt-token"),
		ReadOnly:              g.flag("read-only"),
		Audit:                 v.GetString("audit"),
		KeyPrefix:             v.GetString("key-prefix"),
		Context:               ctx,
		EndpointsFrom:         from["endpoints"],
	}
	s.WriteOutAsked = from["write-out"] == "flag"
	s.Warnings = f.warnings
	if !f.dropIn {
		s.EncryptionConfig, s.EncryptionFrom = f.value("encryption-config")
		if s.EncryptionConfig == "" && v.GetString("encryption-config") != "" {
			s.EncryptionConfig, s.EncryptionFrom = v.GetString("encryption-config"), "context "+ctx
		}
	}
	if f.dropIn {
		// These variables can only be meant for this program, whatever its name.
		s.Audit = f.getenv("ETCDCTL_PLUS_AUDIT")
		s.ReadOnly = g.parse("read-only", f.getenv("ETCDCTL_PLUS_READ_ONLY"))
	}
	if f.getenv(SandboxVariable) == SandboxReadOnly {
		s.ReadOnly = true
	}
	if g.err != nil {
		return nil, g.err
	}
	return s, s.check(from)
}

func (s *Settings) check(from map[string]string) error {
	if len(s.Endpoints) == 0 && s.DiscoverySRV == "" {
		return &Error{"endpoints", from["endpoints"], errors.New("no endpoint given")}
	}
	if (s.Cert == "") != (s.Key == "") {
		missing, have := "key", "cert"
		if s.Cert == "" {
			missing, have = have, missing
		}
		return &Error{missing, "", fmt.Errorf("--%s needs --%s too", have, missing)}
	}
	if s.User == "" && s.Password != "" {
		return &Error{"password", from["password"], errors.New("a password needs --user")}
	}
	if _, pw, ok := strings.Cut(s.User, ":"); ok && pw != "" && s.Password != "" {
		return &Error{"password", from["password"], errors.New("the password is given twice: in --user and in --password")}
	}
	return nil
}

// origin names where a value comes from.
func (f *Flags) origin(fl *pflag.Flag, v *viper.Viper, ctx string) string {
	if fl.Changed {
		return "flag"
	}
	for _, n := range Env(fl.Name, f.dropIn) {
		if f.getenv(n) != "" {
			return n
		}
	}
	if v.InConfig(fl.Name) {
		return "context " + ctx
	}
	return "default"
}

// getter reads typed values and keeps the first error: viper itself turns what
// it cannot parse into zero, and a timeout of "5" into five nanoseconds.
type getter struct {
	v    *viper.Viper
	from map[string]string
	err  error
}

func (g *getter) fail(name string, err error) {
	if g.err == nil {
		g.err = &Error{name, g.from[name], err}
	}
}

func (g *getter) duration(name string) time.Duration {
	raw := g.v.GetString(name)
	d, err := time.ParseDuration(raw)
	if err != nil {
		g.fail(name, fmt.Errorf("%q is not a duration such as 5s or 1m30s", raw))
	} else if d < 0 {
		g.fail(name, fmt.Errorf("%s is negative", raw))
	}
	return d
}

func (g *getter) flag(name string) bool { return g.parse(name, g.v.GetString(name)) }

func (g *getter) parse(name, raw string) bool {
	switch strings.ToLower(raw) {
	case "true", "1", "t", "yes", "on":
		return true
	case "false", "0", "f", "no", "off", "":
		return false
	default:
		g.fail(name, fmt.Errorf("%q is neither true nor false", raw))
		return false
	}
}

func (g *getter) count(name string) int {
	var n int
	raw := g.v.GetString(name)
	if _, err := fmt.Sscanf(raw, "%d", &n); err != nil || n < 0 || fmt.Sprint(n) != strings.TrimSpace(raw) {
		g.fail(name, fmt.Errorf("%q is not a number of bytes", raw))
	}
	return n
}

func (g *getter) list(name string) []string {
	var out []string
	for _, s := range g.v.GetStringSlice(name) {
		for e := range strings.SplitSeq(s, ",") {
			if e = strings.TrimSpace(e); e != "" {
				out = append(out, e)
			}
		}
	}
	return out
}

// Names returns the names of all settings in order.
func (f *Flags) Names() []string {
	var names []string
	f.set.VisitAll(func(fl *pflag.Flag) { names = append(names, fl.Name) })
	return names
}

// value returns what the flag or its variables say, "" for neither.
func (f *Flags) value(name string) (val, from string) {
	if fl := f.set.Lookup(name); fl != nil && fl.Changed {
		return fl.Value.String(), "flag"
	}
	for _, n := range Env(name, f.dropIn) {
		if s := f.getenv(n); s != "" {
			return s, n
		}
	}
	return "", ""
}

// context returns the settings of the context in force; none is no error.
func (f *Flags) context() (string, map[string]any, error) {
	name, from := f.value("context")
	path, named := f.FilePath()
	if name == "" && named == "" && f.getenv(SandboxVariable) != "" {
		return "", nil, nil
	}
	c, err := readFile(path)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist) && named == "":
	case errors.Is(err, fs.ErrPermission) && named == "":
		f.warnings = append(f.warnings, fmt.Sprintf("configuration file %s cannot be read and is left out of account", path))
	default:
		return "", nil, &Error{"config", named, err}
	}
	if name == "" {
		name, from = c.Current, c.Path
	}
	if name == "" {
		return "", nil, nil
	}
	x := c.Find(name)
	if x == nil {
		return "", nil, c.Missing(name, from)
	}
	if err := c.known(x); err != nil {
		return "", nil, err
	}
	return name, x.Settings, nil
}

// Explicit returns what a flag or a variable says, leaving context and default
// out; "" for neither.
func (f *Flags) Explicit(name string) string {
	v, _ := f.value(name)
	return v
}

// Given tells whether a setting was given as a flag.
func (f *Flags) Given(name string) bool {
	fl := f.set.Lookup(name)
	return fl != nil && fl.Changed
}
