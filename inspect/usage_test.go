package inspect

import "testing"

func TestGroupEnd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		prefix, key string
		depth       int
		want        string
	}{
		{"", "/registry/pods/a/x", 1, "/registry/"},
		{"", "/registry/pods/a/x", 2, "/registry/pods/"},
		{"", "/registry/pods/a/x", 9, "/registry/pods/a/"},
		{"", "/registry/pods/a/x/", 9, "/registry/pods/a/x/"},
		{"", "registry/pods", 1, "registry/"},
		{"", "plain", 1, ""},
		{"", "/", 1, "/"},
		{"", "//a", 1, "//"},
		{"/registry/", "/registry/pods/a/x", 1, "/registry/pods/"},
		{"/registry", "/registry/pods/a/x", 1, "/registry/pods/"},
		{"/reg", "/registry/pods/a/x", 1, "/registry/"},
		{"/registry/", "/registry/leaf", 3, "/registry/"},
	} {
		if got := c.key[:groupEnd([]byte(c.key), len(c.prefix), c.depth)]; got != c.want {
			t.Errorf("%q of %q at depth %d: %q, want %q", c.key, c.prefix, c.depth, got, c.want)
		}
	}
}
