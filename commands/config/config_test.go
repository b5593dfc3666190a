package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// load resolves settings from a command line, an environment and a file.
func load(t *testing.T, dropIn bool, file string, env map[string]string, args ...string) (*Settings, error) {
	t.Helper()
	dir := t.TempDir()
	if file != "" {
		if err := os.MkdirAll(filepath.Join(dir, "etcdctl-plus"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "etcdctl-plus", "config.yaml"), []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	f := Define(set, dropIn, func(k string) string {
		if k == "XDG_CONFIG_HOME" {
			return dir
		}
		return env[k]
	})
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	return f.Load()
}

const contexts = `
current-context: prod
contexts:
  prod:
    endpoints: https://ctx-1:2379,https://ctx-2:2379
    cacert: /ctx/ca.crt
    dial-timeout: 7s
    read-only: true
  other:
    endpoints: [other:1, other:2]
`

func TestPrecedence(t *testing.T) {
	t.Parallel()
	plus := map[string]string{"ETCDCTL_PLUS_ENDPOINTS": "plus:1", "ETCDCTL_ENDPOINTS": "env:1"}
	for _, c := range []struct {
		name      string
		dropIn    bool
		file      string
		env       map[string]string
		args      []string
		endpoints string
		from      string
	}{
		{"default", false, "", nil, nil, "127.0.0.1:2379", "default"},
		{"context", false, contexts, nil, nil, "https://ctx-1:2379 https://ctx-2:2379", "context prod"},
		{"context by flag", false, contexts, nil, []string{"--context", "other"}, "other:1 other:2", "context other"},
		{"context by variable", false, contexts, map[string]string{"ETCDCTL_PLUS_CONTEXT": "OTHER"}, nil, "other:1 other:2", "context OTHER"},
		{"variable over context", false, contexts, map[string]string{"ETCDCTL_ENDPOINTS": "env:1, env:2"}, nil, "env:1 env:2", "ETCDCTL_ENDPOINTS"},
		{"our variable over etcdctl's", false, contexts, plus, nil, "plus:1", "ETCDCTL_PLUS_ENDPOINTS"},
		{"flag over all", false, contexts, plus, []string{"--endpoints", "flag:1,flag:2"}, "flag:1 flag:2", "flag"},
		{"drop-in knows no context and no variable of ours", true, contexts, plus, nil, "env:1", "ETCDCTL_ENDPOINTS"},
		{"drop-in: flag over variable", true, "", plus, []string{"--endpoints=flag:1"}, "flag:1", "flag"},
	} {
		s, err := load(t, c.dropIn, c.file, c.env, c.args...)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := strings.Join(s.Endpoints, " "); got != c.endpoints || s.EndpointsFrom != c.from {
			t.Errorf("%s: %s from %s, want %s from %s", c.name, got, s.EndpointsFrom, c.endpoints, c.from)
		}
	}
}

func TestEverySetting(t *testing.T) {
	t.Parallel()
	s, err := load(t, false, "", map[string]string{
		"ETCDCTL_DIAL_TIMEOUT": "3s", "ETCDCTL_COMMAND_TIMEOUT": "1m", "ETCDCTL_KEEPALIVE_TIME": "4s", "ETCDCTL_KEEPALIVE_TIMEOUT": "8s",
		"ETCDCTL_MAX_REQUEST_BYTES": "123", "ETCDCTL_MAX_RECV_BYTES": "456", "ETCDCTL_DEBUG": "true", "ETCDCTL_HEX": "1", "ETCDCTL_WRITE_OUT": "json",
		"ETCDCTL_CERT": "c", "ETCDCTL_KEY": "k", "ETCDCTL_CACERT": "ca", "ETCDCTL_INSECURE_TRANSPORT": "false", "ETCDCTL_INSECURE_SKIP_TLS_VERIFY": "true",
		"ETCDCTL_INSECURE_DISCOVERY": "false", "ETCDCTL_DISCOVERY_SRV": "example.org", "ETCDCTL_DISCOVERY_SRV_NAME": "n", "ETCDCTL_USER": "root", "ETCDCTL_PASSWORD": "pw",
		"ETCDCTL_AUTH_JWT_TOKEN": "tok", "ETCDCTL_PLUS_READ_ONLY": "yes",
	})
	if err != nil {
		t.Fatal(err)
	}
	s.EndpointsFrom, s.CommandTimeoutFrom = "", ""
	want := Settings{
		Endpoints: []string{"127.0.0.1:2379"}, DialTimeout: 3 * time.Second, CommandTimeout: time.Minute, KeepaliveTime: 4 * time.Second, KeepaliveTimeout: 8 * time.Second,
		MaxRequestBytes: 123, MaxRecvBytes: 456, Debug: true, Hex: true, WriteOut: "json", Cert: "c", Key: "k", CACert: "ca", InsecureSkipTLSVerify: true,
		DiscoverySRV: "example.org", DiscoverySRVName: "n", User: "root", Password: "pw", AuthToken: "tok", ReadOnly: true,
	}
	if got := *s; !equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	s, err = load(t, false, contexts, nil)
	if err != nil || !s.ReadOnly || s.DialTimeout != 7*time.Second || s.CACert != "/ctx/ca.crt" || s.Context != "prod" {
		t.Errorf("context: %+v, %v", s, err)
	}
	s, err = load(t, false, contexts, map[string]string{"ETCDCTL_PLUS_READ_ONLY": "false"})
	if err != nil || s.ReadOnly {
		t.Errorf("variable over context: %+v, %v", s, err)
	}
}

func equal(a, b Settings) bool {
	x, y := strings.Join(a.Endpoints, ","), strings.Join(b.Endpoints, ",")
	a.Endpoints, b.Endpoints = nil, nil
	return x == y && a.EndpointsFrom == b.EndpointsFrom && strings.EqualFold(sprint(a), sprint(b))
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		file string
		env  map[string]string
		args []string
		want string
	}{
		{env: map[string]string{"ETCDCTL_DIAL_TIMEOUT": "5"}, want: `setting dial-timeout (from ETCDCTL_DIAL_TIMEOUT): "5" is not a duration such as 5s or 1m30s`},
		{env: map[string]string{"ETCDCTL_HEX": "maybe"}, want: `setting hex (from ETCDCTL_HEX): "maybe" is neither true nor false`},
		{env: map[string]string{"ETCDCTL_MAX_RECV_BYTES": "12x"}, want: `"12x" is not a number of bytes`},
		{args: []string{"--endpoints", ""}, want: "no endpoint given"},
		{args: []string{"--cert", "x"}, want: "--cert needs --key too"},
		{args: []string{"--password", "x"}, want: "a password needs --user"},
		{args: []string{"--user", "a:b", "--password", "x"}, want: "the password is given twice"},
		{args: []string{"--context", "nope"}, file: contexts, want: `no context "nope" in `},
		{args: []string{"--config", "/does/not/exist"}, want: "read /does/not/exist: no such file or directory"},
		{file: "contexts: [1", want: "setting config"},
		{file: "current-context: a\ncontexts: {a: {endpoint: x}}", want: `context "a" has an unknown setting "endpoint"`},
		{file: "contexts: {a: 3}", want: `context "a" is not a map of settings`},
		{file: "context: a", want: `unknown member "context"`},
	} {
		_, err := load(t, false, c.file, c.env, c.args...)
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v %v: %v, want %s", c.env, c.args, err, c.want)
		}
	}
}

func sprint(s Settings) string { return fmt.Sprintf("%+v", s) }
