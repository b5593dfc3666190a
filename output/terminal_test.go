package output

import (
	"bytes"
	"testing"
	"unicode/utf8"
)

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"plain\tand\n":               "plain\tand\n",
		"\x1b]0;title\x07":           `\x1b]0;title\x07`,
		"a\rb\bc\x00":                `a\x0db\x08c\x00`,
		"del\x7f":                    `del\u007f`,
		"c1 \u009b31m":               `c1 \u009b31m`,
		"raw \x9b31m":                `raw \x9b31m`,
		"zero\u200bwidth \U000e0041": `zero\u200bwidth \udb40\udc41`,
		"bidi \u202e\u2066":          `bidi \u202e\u2066`,
		"ok é 世界 🙂":                  "ok é 世界 🙂",
		"cut \xe4\xb8":               `cut \xe4\xb8`,
		"replacement \ufffd stay":    "replacement \ufffd stay",
	} {
		if got := Clean(in); got != want {
			t.Errorf("Clean(%q) = %q, want %q", in, got, want)
		}
	}
	if got := CleanLine("a\nb\tc"); got != `a\nb\tc` {
		t.Errorf("CleanLine = %q", got)
	}
}

// FuzzTerminal cuts the input into two writes anywhere: the screen must show the
// same as for one write, and never a control byte.
func FuzzTerminal(f *testing.F) {
	f.Add([]byte("héllo\x1b[31m\u009b世"), 3)
	f.Add([]byte("\xe4\xb8\x96\xff\xc2"), 1)
	f.Add([]byte("\xf0\x9f\x99\x82\xc2\x9b"), 2)
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		cut = max(0, min(cut, len(in)))
		var one, two bytes.Buffer
		whole, parts := NewTerminal(&one), NewTerminal(&two)
		for term, pieces := range map[*Terminal][][]byte{whole: {in}, parts: {in[:cut], in[cut:]}} {
			for _, p := range pieces {
				if n, err := term.Write(p); n != len(p) || err != nil {
					t.Fatalf("Write = %d, %v", n, err)
				}
			}
			if err := term.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		if one.String() != two.String() {
			t.Errorf("one write %q, two writes %q", one.String(), two.String())
		}
		if !utf8.Valid(one.Bytes()) {
			t.Errorf("not UTF-8: %q", one.Bytes())
		}
		for _, r := range one.String() {
			if r < 0x20 && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || hidden(r) {
				t.Errorf("%U reached the terminal in %q", r, one.String())
			}
		}
	})
}
