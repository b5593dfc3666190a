package store

import (
	"strings"
	"testing"
)

// FuzzProfile reads any file as AWS's shared ones: nothing of another section gets
// into a profile, and nothing but lines with "=" does.
func FuzzProfile(f *testing.F) {
	for _, s := range []string{
		"[default]\nregion = x\n", "[profile a]\ns3 =\n  addressing_style = path\n[b]\nregion=no\n", "[a\nx=1", "]\n[", "[a]\n=\n = \n\t=x", "# c\n; d\n[ profile  a ]\nk = v # w",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p := &profile{value: map[string]string{}}
		found := p.read(b, "profile a")
		if !found && len(p.value) > 0 {
			t.Errorf("settings without a section: %q", p.value)
		}
		for k, v := range p.value {
			if v == "" || !strings.Contains(string(b), v) || strings.TrimSpace(v) != v {
				t.Errorf("%q is %q", k, v)
			}
		}
	})
}

// FuzzName: what is a legal name stays below a folder and is no temporary one.
func FuzzName(f *testing.F) {
	for _, s := range []string{"a", "a/b", "..", "a/../b", "/a", ".etcdctl-plus-x", partName(), "a//b", `a\b`, "\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if CheckName(name) != nil {
			return
		}
		for seg := range strings.SplitSeq(name, "/") {
			if _, ok := partOf(seg); ok || seg == "" || seg == "." || seg == ".." {
				t.Errorf("%q has the segment %q", name, seg)
			}
		}
	})
}
