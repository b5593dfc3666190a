package seal

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// maxConfig bounds the size of a configuration file: real ones have a few
// kilobytes. What aliases unfold to is bounded by the YAML reader.
const maxConfig = 1 << 20

// Config is a kube-apiserver EncryptionConfiguration (apiserver.config.k8s.io/v1):
// which keys open the values of which resources.
type Config struct {
	Rules []Rule // in the order of the file
}

// Rule holds the providers for some resources.
type Rule struct {
	Resources []string // "secrets", "widgets.example.org", "*.", "*.apps", "*.*"
	Providers []Provider
}

// Provider is one way to seal values.
type Provider struct {
	Type string // Identity, AESCBC, AESGCM, Secretbox or KMS
	Keys []Key  // none for identity and KMS
	KMS  *KMSConfig
}

// Key is a named key. Several keys of a provider may have the same name; they are
// tried in turn, as the apiserver does.
type Key struct {
	Name   string
	Secret []byte
}

// KMSConfig names a key management plugin.
type KMSConfig struct {
	APIVersion string // "v1" or "v2"
	Name       string
	Endpoint   string        // unix:// URL
	Timeout    time.Duration // 0: the apiserver's default, 3 s
}

// Types of providers, as they are called in the configuration and in the prefix of
// sealed values.
const (
	Identity  = "identity"
	AESCBC    = "aescbc"
	AESGCM    = "aesgcm"
	Secretbox = "secretbox"
	KMS       = "kms"
)

// Load reads an EncryptionConfiguration from a file in YAML or JSON.
func Load(path string) (*Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read encryption configuration: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read encryption configuration: %w", err)
	}
	if st.Size() > maxConfig {
		return nil, fmt.Errorf("read encryption configuration %s: %d bytes are more than the limit of %d", path, st.Size(), maxConfig)
	}
	b, err := readAll(f)
	if err != nil {
		return nil, fmt.Errorf("read encryption configuration %s: %w", path, err)
	}
	c, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("encryption configuration %s: %w", path, err)
	}
	return c, nil
}

// Parse reads an EncryptionConfiguration in YAML or JSON. What the apiserver would
// reject is rejected, unknown fields included; the error names the place, such as
// resources[0].providers[1].aescbc.keys[0].secret, and never a secret.
func Parse(b []byte) (*Config, error) {
	if len(b) > maxConfig {
		return nil, fmt.Errorf("%d bytes are more than the limit of %d", len(b), maxConfig)
	}
	j, err := yaml.YAMLToJSONStrict(b)
	if err != nil {
		return nil, fmt.Errorf("not YAML or JSON: %w", err)
	}
	var top any
	if err := json.Unmarshal(j, &top); err != nil {
		return nil, fmt.Errorf("not YAML or JSON: %w", err)
	}
	p := parser{kms: map[string]string{}}
	c := p.config(node{value: top})
	if p.err != nil {
		return nil, p.err
	}
	return c, nil
}

// node is a value of the document and where it is.
type node struct {
	path  string
	value any
}

// parser keeps the first error; after it every result is worthless.
type parser struct {
	err error
	kms map[string]string // names of KMS providers, to their path
}

func (p *parser) fail(n node, format string, args ...any) {
	if p.err == nil {
		where := n.path
		if where == "" {
			where = "document"
		}
		p.err = fmt.Errorf("%s: %s", where, fmt.Sprintf(format, args...))
	}
}

// object returns the members of n; every name must be in allowed.
func (p *parser) object(n node, allowed ...string) map[string]node {
	m, ok := n.value.(map[string]any)
	if !ok {
		p.fail(n, "want an object, not %s", kindOf(n.value))
		return nil
	}
	out := map[string]node{}
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names) // so that the same file gives the same error
	for _, name := range names {
		if !slices.Contains(allowed, name) {
			p.fail(n, "unknown field %q (known: %s)", name, strings.Join(allowed, ", "))
			return nil
		}
		path := name
		if n.path != "" {
			path = n.path + "." + name
		}
		out[name] = node{path, m[name]}
	}
	return out
}

// list returns the elements of member name of n, at least one.
func (p *parser) list(n node, members map[string]node, name string) []node {
	at := node{path: strings.TrimPrefix(n.path+"."+name, ".")}
	m, ok := members[name]
	if p.err != nil {
		return nil
	}
	if !ok || m.value == nil {
		p.fail(at, "at least one entry is required")
		return nil
	}
	a, ok := m.value.([]any)
	if !ok {
		p.fail(m, "want a list, not %s", kindOf(m.value))
		return nil
	}
	if len(a) == 0 {
		p.fail(m, "at least one entry is required")
	}
	out := make([]node, len(a))
	for i, v := range a {
		out[i] = node{fmt.Sprintf("%s[%d]", m.path, i), v}
	}
	return out
}

// text returns member name of n; it must be there and not empty.
func (p *parser) text(n node, members map[string]node, name string) string {
	if p.err != nil {
		return ""
	}
	m, ok := members[name]
	if !ok || m.value == nil {
		p.fail(node{path: strings.TrimPrefix(n.path+"."+name, ".")}, "is required")
		return ""
	}
	s, ok := m.value.(string)
	if !ok {
		p.fail(m, "want a string, not %s", kindOf(m.value))
		return ""
	}
	if s == "" {
		p.fail(m, "must not be empty")
	}
	return s
}

func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case float64:
		return "a number"
	case string:
		return "a string"
	case []any:
		return "a list"
	}
	return "an object"
}

func (p *parser) config(n node) *Config {
	if n.value == nil {
		p.fail(n, "is empty")
		return nil
	}
	m := p.object(n, "apiVersion", "kind", "resources")
	if p.err != nil {
		return nil
	}
	if v := p.text(n, m, "apiVersion"); p.err == nil && v != "apiserver.config.k8s.io/v1" {
		p.fail(m["apiVersion"], "want apiserver.config.k8s.io/v1, not %q", v)
	}
	if v := p.text(n, m, "kind"); p.err == nil && v != "EncryptionConfiguration" {
		p.fail(m["kind"], "want EncryptionConfiguration, not %q", v)
	}
	c := new(Config)
	for _, r := range p.list(n, m, "resources") {
		c.Rules = append(c.Rules, p.rule(r))
	}
	return c
}

func (p *parser) rule(n node) (r Rule) {
	m := p.object(n, "resources", "providers")
	for _, e := range p.list(n, m, "resources") {
		s, ok := e.value.(string)
		if !ok {
			p.fail(e, "want a string, not %s", kindOf(e.value))
			return r
		}
		if reason := badResource(s); reason != "" {
			p.fail(e, "%q: %s", s, reason)
		}
		for _, other := range r.Resources {
			if other == s {
				p.fail(e, "%q is listed twice", s)
			} else if overlaps(other, s) {
				p.fail(e, "%q and %q overlap, so that one of them would have no effect", other, s)
			}
		}
		r.Resources = append(r.Resources, s)
	}
	for _, e := range p.list(n, m, "providers") {
		r.Providers = append(r.Providers, p.provider(e))
	}
	return r
}

// badResource returns why the apiserver does not take s as a resource.
func badResource(s string) string {
	resource, group, _ := strings.Cut(s, ".")
	switch {
	case s == "":
		return "must not be empty"
	case strings.ToLower(s) != s:
		return "must not have capital letters"
	case s == "*":
		return `use "*." for the core group or "*.*" for everything`
	case s == "apiserveripinfo" || s == "serviceipallocations" || s == "servicenodeportallocations":
		return "has no REST API and cannot be encrypted"
	case group == "events.k8s.io":
		return `events are stored in the core group; use "events"`
	case group == "extensions":
		return "the group extensions has been removed"
	case group == "*" && resource != "*":
		return "one resource across all groups is not supported"
	}
	return ""
}

func overlaps(a, b string) bool {
	if a == "*.*" || b == "*.*" {
		return true
	}
	ra, ga, _ := strings.Cut(a, ".")
	rb, gb, _ := strings.Cut(b, ".")
	return ga == gb && (ra == "*" || rb == "*")
}

func (p *parser) provider(n node) (v Provider) {
	m := p.object(n, AESGCM, AESCBC, Secretbox, Identity, KMS)
	if p.err != nil {
		return v
	}
	var found []string
	for _, name := range []string{Identity, AESCBC, AESGCM, Secretbox, KMS} {
		if e, ok := m[name]; ok && e.value != nil {
			found = append(found, name)
		}
	}
	if len(found) != 1 {
		p.fail(n, "want exactly one of identity, aescbc, aesgcm, secretbox, kms; found %d", len(found))
		return v
	}
	v.Type = found[0]
	e := m[v.Type]
	switch v.Type {
	case Identity:
		p.object(e)
	case KMS:
		v.KMS = p.kmsConfig(e)
	default:
		sizes := []int{16, 24, 32}
		if v.Type == Secretbox {
			sizes = []int{32}
		}
		for _, k := range p.list(e, p.object(e, "keys"), "keys") {
			v.Keys = append(v.Keys, p.key(k, sizes))
		}
	}
	return v
}

func (p *parser) key(n node, sizes []int) (k Key) {
	m := p.object(n, "name", "secret")
	k.Name = p.text(n, m, "name")
	text := p.text(n, m, "secret")
	if p.err != nil {
		return k
	}
	secret, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		p.fail(m["secret"], "is not base64")
	} else if !slices.Contains(sizes, len(secret)) {
		p.fail(m["secret"], "has %d bytes, want %s", len(secret), oneOf(sizes))
	}
	k.Secret = secret
	return k
}

func oneOf(sizes []int) string {
	s := make([]string, len(sizes))
	for i, n := range sizes {
		s[i] = fmt.Sprint(n)
	}
	return strings.Join(s, ", ")
}

func (p *parser) kmsConfig(n node) *KMSConfig {
	m := p.object(n, "apiVersion", "name", "cachesize", "endpoint", "timeout")
	k := &KMSConfig{APIVersion: "v1", Name: p.text(n, m, "name"), Endpoint: p.text(n, m, "endpoint")}
	if p.err != nil {
		return k
	}
	if v, ok := m["apiVersion"]; ok && v.value != nil {
		if k.APIVersion = p.text(n, m, "apiVersion"); k.APIVersion != "v1" && k.APIVersion != "v2" {
			p.fail(v, "want v1 or v2, not %q", k.APIVersion)
		}
	}
	if k.APIVersion == "v2" && strings.Contains(k.Name, ":") {
		p.fail(m["name"], "%q: the name of a KMS v2 provider must not contain a colon", k.Name)
	}
	// A v1 name can be used in several rules; v2 needs it unique.
	if at, ok := p.kms[k.Name]; ok && k.APIVersion == "v2" {
		p.fail(m["name"], "%q is used twice, first at %s", k.Name, at)
	}
	p.kms[k.Name] = m["name"].path
	if u, err := url.Parse(k.Endpoint); err != nil || u.Scheme != "unix" {
		p.fail(m["endpoint"], "want a unix:// URL")
	}
	if v, ok := m["cachesize"]; ok && v.value != nil {
		size, ok := v.value.(float64)
		switch {
		case !ok || size != float64(int32(size)):
			p.fail(v, "want a whole number")
		case k.APIVersion == "v2":
			p.fail(v, "is not supported in v2")
		case size == 0:
			p.fail(v, "must be positive, or negative to switch the cache off")
		}
	}
	if v, ok := m["timeout"]; ok && v.value != nil {
		d, err := time.ParseDuration(p.text(n, m, "timeout"))
		if p.err == nil && (err != nil || d <= 0) {
			p.fail(v, "want a positive duration such as 3s")
		}
		k.Timeout = d
	}
	return k
}

// used returns the rules, by index, whose providers the apiserver uses for a
// resource ("secrets", "widgets.example.org"; "" for none): those that name it, or
// else its group as "*.group", or else "*.*".
func (c *Config) used(resource string) (rules []int) {
	if resource == "" {
		return nil
	}
	name, group, _ := strings.Cut(resource, ".")
	for _, entry := range []string{name + "." + group, "*." + group, "*.*"} {
		for i := range c.Rules {
			if slices.ContainsFunc(c.Rules[i].Resources, func(s string) bool { return s == entry || s+"." == entry }) {
				rules = append(rules, i)
			}
		}
		if len(rules) > 0 {
			return rules
		}
	}
	return nil
}
