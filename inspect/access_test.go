package inspect

import (
	"slices"
	"testing"
)

func TestAllowed(t *testing.T) {
	t.Parallel()
	grants := []Grant{
		{Role: "a", Access: Read, Key: []byte("a"), End: []byte("c")},
		{Role: "b", Access: Read | Write, Key: []byte("c"), End: []byte("m")},
		{Role: "c", Access: Write, Key: []byte("x")},
		{Role: "d", Access: Read, Key: []byte("p"), End: []byte{0}},
		{Role: "e", Access: Read, Key: []byte("b"), End: []byte("bb")},
	}
	for _, c := range []struct {
		need     Access
		key, end string
		by       []string // nil: refused
	}{
		{Read, "a", "", []string{"a"}},
		{Read, "a", "c", []string{"a"}},
		{Read, "a", "f", []string{"a", "b"}},
		{Read, "a", "m", []string{"a", "b"}},
		{Read, "a", "m\x00", nil},
		{Read, "m", "", nil},
		{Read, "p", "\x00", []string{"d"}},
		{Read, "o", "\x00", nil},
		{Read, "c", "\x00", nil},
		{Write, "a", "", nil},
		{Write, "d", "", []string{"b"}},
		{Write, "x", "", []string{"c"}},
		{Write, "x", "y", nil},
		{Write, "c", "m", []string{"b"}},
		{Read | Write, "d", "e", []string{"b"}},
	} {
		by, ok := Allowed(grants, c.need, []byte(c.key), []byte(c.end))
		if ok != (c.by != nil) || !slices.Equal(by, c.by) {
			t.Errorf("%d %q %q: %v, %v; want %v", c.need, c.key, c.end, by, ok, c.by)
		}
	}
	if _, ok := Allowed(nil, Read, []byte("a"), nil); ok {
		t.Error("nothing allows something")
	}
	root := []Grant{{Role: "root", Access: Read | Write, Key: []byte{0}, End: []byte{0}}}
	if by, ok := Allowed(root, Write, []byte{0}, []byte{0}); !ok || !slices.Equal(by, []string{"root"}) {
		t.Error(by, ok)
	}
}
