package seal

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/corpus"
)

const good = `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets, widgets.example.org]
  providers:
  - aescbc: {keys: [{name: "a:b", secret: AAAAAAAAAAAAAAAAAAAAAA==}]}
  - secretbox:
      keys:
      - name: box
        secret: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=
  - kms: {apiVersion: v2, name: vault, endpoint: unix:///run/kms.sock, timeout: 5s}
  - identity: {}
- resources: ['*.apps', '*.']
  providers:
  - kms: {name: old:one, endpoint: "unix:///run/old.sock", cachesize: 10}
`

func TestParse(t *testing.T) {
	t.Parallel()
	c, err := Parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	p := c.Rules[0].Providers
	if len(c.Rules) != 2 || len(p) != 4 || p[0].Type != AESCBC || p[0].Keys[0].Name != "a:b" || len(p[0].Keys[0].Secret) != 16 ||
		p[1].Type != Secretbox || p[2].KMS.Name != "vault" || p[2].KMS.Timeout.Seconds() != 5 || p[3].Type != Identity || c.Rules[1].Providers[0].KMS.APIVersion != "v1" {
		t.Errorf("%+v", c)
	}
	if _, err := apiserverParse([]byte(good)); err != nil {
		t.Errorf("the apiserver does not take it: %v", err)
	}
}

// TestRulesAsTheAPIServer: the keys tried first are those of the rule that the
// apiserver seals a resource with: the one that names it, else its group, else any.
func TestRulesAsTheAPIServer(t *testing.T) {
	t.Parallel()
	const text = `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets, widgets.example.org]
  providers: [{secretbox: {keys: [{name: k, secret: BAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=}]}}]
- resources: [deployments.apps]
  providers: [{secretbox: {keys: [{name: k, secret: CAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=}]}}]
- resources: ['*.apps', '*.']
  providers: [{secretbox: {keys: [{name: k, secret: DAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=}]}}]
- resources: ['*.*']
  providers: [{secretbox: {keys: [{name: k, secret: EAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=}]}}]
`
	c, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for resource, want := range map[string]int{
		"secrets": 0, "widgets.example.org": 0, "gadgets.example.org": 3, "deployments.apps": 1, "daemonsets.apps": 2, "configmaps": 2, "pods": 2, "secrets.other": 3, "apps": 2,
	} {
		if used := c.used(resource); len(used) != 1 || used[0] != want {
			t.Errorf("%s: rules %v, want %d", resource, used, want)
		}
		// All keys are called the same: the right rule's comes first, and any opens.
		list := c.candidates(Header{Provider: Secretbox, Version: "v1"}, []byte("k:body"), resource)
		if len(list) != 4 || !bytes.Equal(list[0].secret, c.Rules[want].Providers[0].Keys[0].Secret) {
			t.Errorf("%s: candidates %v", resource, list)
		}
	}
	if got := c.used(""); got != nil {
		t.Errorf("a value of no resource: %v", got)
	}
}

// TestParseErrors: each mistake is named with its place, and the apiserver finds
// it wrong too. No secret is in a message.
func TestParseErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ from, to, want string }{
		{"v1\n", "v2\n", `apiVersion: want apiserver.config.k8s.io/v1`},
		{"kind: EncryptionConfiguration", "kind: EncryptionConfig", `kind: want EncryptionConfiguration`},
		{"kind: EncryptionConfiguration\n", "", `kind: is required`},
		{"resources: [secrets, widgets.example.org]", "resources: []", `resources[0].resources: at least one entry is required`},
		{"resources: [secrets, widgets.example.org]", "resources: [secrets, secrets]", `resources[0].resources[1]: "secrets" is listed twice`},
		{"resources: [secrets, widgets.example.org]", "resources: [Secrets]", `resources[0].resources[0]: "Secrets": must not have capital letters`},
		{"resources: [secrets, widgets.example.org]", "resources: ['*']", `resources[0].resources[0]: "*": use "*."`},
		{"resources: [secrets, widgets.example.org]", "resources: [secrets, '*.']", `resources[0].resources[1]: "secrets" and "*." overlap`},
		{"resources: [secrets, widgets.example.org]", "resources: [events.events.k8s.io]", `resources[0].resources[0]: "events.events.k8s.io": events are stored`},
		{"resources: [secrets, widgets.example.org]", "resources: ['secrets.*']", `one resource across all groups`},
		{"resources: [secrets, widgets.example.org]", "resources: [ingresses.extensions]", `the group extensions has been removed`},
		{"resources: [secrets, widgets.example.org]", "resources: [serviceipallocations]", `has no REST API`},
		{"resources: [secrets, widgets.example.org]", "resources: secrets", `resources[0].resources: want a list, not a string`},
		{"AAAAAAAAAAAAAAAAAAAAAA==", "AAAAAAAAAAAAAAAAAAAAAAAA", `resources[0].providers[0].aescbc.keys[0].secret: has 18 bytes, want 16, 24, 32`},
		{"AAAAAAAAAAAAAAAAAAAAAA==", "'notbase64*'", `resources[0].providers[0].aescbc.keys[0].secret: is not base64`},
		{"AAAAAAAAAAAAAAAAAAAAAA==", "''", `resources[0].providers[0].aescbc.keys[0].secret: must not be empty`},
		{`name: "a:b", `, ``, `resources[0].providers[0].aescbc.keys[0].name: is required`},
		{`name: "a:b", `, `name: 17, `, `resources[0].providers[0].aescbc.keys[0].name: want a string, not a number`},
		{`name: "a:b", `, `name: a, nane: b, `, `resources[0].providers[0].aescbc.keys[0]: unknown field "nane"`},
		{"  - identity: {}", "  - identity: {}\n    aescbc: {keys: []}", `resources[0].providers[3]: want exactly one`},
		{"  - identity: {}", "  - identity:", `resources[0].providers[3]: want exactly one`},
		{"  - identity: {}", "  - rot13: {}", `resources[0].providers[3]: unknown field "rot13"`},
		{"  - identity: {}", "  - aesgcm: {keys: []}", `resources[0].providers[3].aesgcm.keys: at least one entry is required`},
		{"name: vault", "name: va:ult", `resources[0].providers[2].kms.name: "va:ult": the name of a KMS v2 provider must not contain a colon`},
		{"unix:///run/kms.sock", "http://kms", `resources[0].providers[2].kms.endpoint: want a unix:// URL`},
		{"timeout: 5s", "timeout: -5s", `resources[0].providers[2].kms.timeout: want a positive duration`},
		{"timeout: 5s", "cachesize: 5", `resources[0].providers[2].kms.cachesize: is not supported in v2`},
		{"cachesize: 10", "cachesize: 0", `resources[1].providers[0].kms.cachesize: must be positive`},
		{"apiVersion: v2", "apiVersion: v3", `resources[0].providers[2].kms.apiVersion: want v1 or v2`},
		{"{name: old:one,", "{apiVersion: v2, name: vault,", `resources[1].providers[0].kms.name: "vault" is used twice, first at resources[0].providers[2].kms.name`},
		{"kind: EncryptionConfiguration", "kind: EncryptionConfiguration\nkind: EncryptionConfiguration", `already`},
		{good, "", `is empty`},
		{good, "[1, 2]", `want an object, not a list`},
		{good, "\x00\x01", `not YAML or JSON`},
	} {
		if !strings.Contains(good, c.from) {
			t.Fatalf("%q is not in the configuration", c.from)
		}
		text := strings.Replace(good, c.from, c.to, 1)
		_, err := Parse([]byte(text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q for %q:\n got %v\nwant %s", c.to, c.from, err, c.want)
		}
		if err != nil && (strings.Contains(err.Error(), "AAAAAA") || strings.Contains(err.Error(), "notbase64")) {
			t.Errorf("the error shows a secret: %v", err)
		}
		if _, err := apiserverParse([]byte(text)); err == nil {
			t.Errorf("%q for %q: the apiserver takes it", c.to, c.from)
		}
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	if _, err := Load(corpus.EncryptionConfig()); err != nil {
		t.Error(err)
	}
	missing := filepath.Join(t.TempDir(), "none.yaml")
	if _, err := Load(missing); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("%v", err)
	}
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("kind: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(bad); err == nil || !strings.Contains(err.Error(), bad+": apiVersion: is required") {
		t.Errorf("%v", err)
	}
	if _, err := Load(t.TempDir()); err == nil {
		t.Error("a folder was read")
	}
	if _, err := Parse(bytes.Repeat([]byte("a"), maxConfig+1)); err == nil || !strings.Contains(err.Error(), "limit") {
		t.Errorf("%v", err)
	}
}

// TestBomb: aliases do not unfold to more than the reader allows.
func TestBomb(t *testing.T) {
	t.Parallel()
	b := "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	for i := 1; i < 12; i++ {
		p, n := string(rune('0'+(i-1)%10)), string(rune('0'+i%10))
		if i >= 10 {
			n = "b" + n
		}
		if i > 10 {
			p = "b" + p
		}
		b += "a" + n + ": &a" + n + " [" + strings.TrimSuffix(strings.Repeat("*a"+p+",", 10), ",") + "]\n"
	}
	if _, err := Parse([]byte(b)); err == nil {
		t.Error("the bomb was accepted")
	}
}

// FuzzParse: what we take, the apiserver takes, and the other way round.
func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	if b, err := os.ReadFile(corpus.EncryptionConfig()); err == nil {
		f.Add(b)
	}
	f.Add([]byte(`{"apiVersion":"apiserver.config.k8s.io/v1","kind":"EncryptionConfiguration","resources":[{"resources":["*.*"],"providers":[{"identity":{}}]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Parse(b)
		want, wantErr := apiserverParse(b)
		if err == nil && wantErr != nil {
			t.Errorf("taken, but the apiserver says %v", wantErr)
		}
		if err != nil || wantErr != nil {
			return
		}
		if len(c.Rules) != len(want.Resources) {
			t.Fatalf("%d rules, want %d", len(c.Rules), len(want.Resources))
		}
		for i, r := range want.Resources {
			for j, p := range r.Providers {
				if p.AESCBC != nil {
					for k, key := range p.AESCBC.Keys {
						if got := c.Rules[i].Providers[j].Keys[k]; got.Name != key.Name || base64.StdEncoding.EncodeToString(got.Secret) != strings.NewReplacer("\r", "", "\n", "").Replace(key.Secret) {
							t.Errorf("key %q, want %q", got.Name, key.Name)
						}
					}
				}
			}
		}
	})
}
