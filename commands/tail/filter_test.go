package tail

import (
	"strings"
	"testing"

	"github.com/etcdctl-plus/etcdctl-plus/inspect"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

func TestPatterns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, key string
		want         bool
	}{
		{"/registry/pods/*/web-*", "/registry/pods/shop/web-0", true},
		{"/registry/pods/*/web-*", "/registry/pods/shop/web-0/x", false},
		{"/registry/**", "/registry/pods/shop/web-0", true},
		{"**/web-?", "/registry/pods/shop/web-0", true},
		{"**/web-?", "/registry/pods/shop/web-10", false},
		{"a.c", "abc", false},
		{"*", "line\nbreak", true},
		{"**", "a/\n/b", true},
		{"[x]", "[x]", true},
		{"[x]", "x", false},
	} {
		if got := pattern(c.pattern).MatchString(c.key); got != c.want {
			t.Errorf("%q on %q: %t", c.pattern, c.key, got)
		}
	}
}

func TestFilterByKey(t *testing.T) {
	t.Parallel()
	events := map[string]keyspace.Event{
		"create": {Record: keyspace.Record{Key: []byte("/a/1"), Version: 1}},
		"update": {Record: keyspace.Record{Key: []byte("/a/2"), Version: 2}},
		"delete": {Type: keyspace.Delete, Record: keyspace.Record{Key: []byte("/b/1")}},
	}
	for _, c := range []struct {
		f    filter
		want string
	}{
		{filter{}, "create update delete"},
		{filter{verbs: []string{"put"}}, "create update"},
		{filter{verbs: []string{"create", "delete"}}, "create delete"},
		{filter{globs: []string{"/a/*"}}, "create update"},
		{filter{globs: []string{"/a/*"}, excluded: []string{"**2"}}, "create"},
		{filter{regexps: []string{"b", "2$"}}, "update delete"},
	} {
		if err := c.f.complete(); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, name := range []string{"create", "update", "delete"} {
			e := events[name]
			if c.f.byKey(&e) {
				got = append(got, name)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %q", c.f.String(), got, c.want)
		}
	}
	for _, f := range []filter{{verbs: []string{"nonsense"}}, {regexps: []string{"("}}, {where: "."}, {where: ".a |"}, {selector: "a in b"}} {
		if err := f.complete(); (err == nil) != (f.where == ".") {
			t.Errorf("%s: %v", f.String(), err)
		}
	}
}

// The manager of a change is the one whose entry has come, or has a new time.
func TestWriter(t *testing.T) {
	t.Parallel()
	entry := func(name, at string) string {
		return `{"manager":"` + name + `","operation":"Update","time":"` + at + `"}`
	}
	object := func(entries ...string) []byte {
		return []byte(`{"metadata":{"managedFields":[` + strings.Join(entries, ",") + `]}}`)
	}
	before := object(entry("kubectl", "2026-01-01T00:00:01Z"), entry("controller", "2026-01-01T00:00:02Z"))
	for want, now := range map[string][]byte{
		"kubectl":    object(entry("kubectl", "2026-01-01T00:00:03Z"), entry("controller", "2026-01-01T00:00:02Z")),
		"newcomer":   object(entry("kubectl", "2026-01-01T00:00:01Z"), entry("controller", "2026-01-01T00:00:02Z"), entry("newcomer", "2026-01-01T00:00:03Z")),
		"controller": object(entry("kubectl", "2026-01-01T00:00:03Z"), entry("controller", "2026-01-01T00:00:04Z")),
		"":           before,
	} {
		if got := writer(before, now); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func FuzzParseText(f *testing.F) {
	f.Add("7 1/2 CREATE /a\nb 5 B")
	f.Add("7 0/0 BEGIN list")
	f.Fuzz(func(t *testing.T, line string) {
		if l, ok := parseText([]byte(line)); ok && (l.Rev < 1 || l.Begin && l.End) {
			t.Fatalf("%+v of %q", l, line)
		}
	})
}

// Who owns a field has written it last.
func TestOwner(t *testing.T) {
	t.Parallel()
	object := []byte(`{"metadata":{"managedFields":[
		{"manager":"scaler","fieldsV1":{"f:spec":{"f:replicas":{}}}},
		{"manager":"deployer","fieldsV1":{"f:metadata":{"f:labels":{".":{},"f:a.b/c":{}}},"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:image":{}}}}}}}},
		{"manager":"one","fieldsV1":{"f:status":{"f:shared":{}}}},{"manager":"two","fieldsV1":{"f:status":{"f:shared":{}}}}]}}`)
	for path, want := range map[string]string{
		".spec.replicas":                                    "scaler",
		`.metadata.labels["a.b/c"]`:                         "deployer",
		".spec.template.spec.containers[name=web].image":    "deployer",
		".spec.template.spec.containers[name=web].ports[0]": "",
		".spec.template.spec.containers[0].image":           "",
		".status.shared":                                    "",
		".status.none":                                      "",
	} {
		if got := owner(object, []inspect.Change{{Path: path}}); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
