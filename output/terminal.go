package output

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Terminal guards a terminal against what keys and values hold. Every control
// character but newline and tab, every byte that is no UTF-8 and every
// character that hides or reorders text is written as a visible escape: \x1b for ASCII
// controls, \u009b for the others (in JSON, whose encoder already escapes ASCII
// controls, that is still valid JSON).
//
// Our own colours go through Styled, whose caller has cleaned the text.
type Terminal struct {
	mu   sync.Mutex
	w    io.Writer
	part []byte // the start of a character cut by the end of a Write
	buf  []byte
}

// NewTerminal returns a guard in front of w.
func NewTerminal(w io.Writer) *Terminal { return &Terminal{w: w} }

// Write cleans p and writes it. A character cut off at the end of p waits for
// the next Write or Flush. It reports len(p) on success, as io.Writer wants.
func (t *Terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	in := p
	if len(t.part) > 0 {
		in = slices.Concat(t.part, p)
		t.part = nil
	}
	cut := len(in)
	for i := 1; i <= min(len(in), utf8.UTFMax-1); i++ {
		if c := in[len(in)-i]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(in[len(in)-i:]) {
				cut = len(in) - i
			}
			break
		}
	}
	t.part = append([]byte(nil), in[cut:]...)
	t.buf = appendClean(t.buf[:0], in[:cut])
	if _, err := t.w.Write(t.buf); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush writes what a cut-off character left behind.
func (t *Terminal) Flush() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.part) == 0 {
		return nil
	}
	b := appendClean(nil, t.part)
	t.part = nil
	_, err := t.w.Write(b)
	return err
}

// Styled writes s as it is. The caller vouches that every part of it that came
// from outside went through Clean.
func (t *Terminal) Styled(s string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := io.WriteString(t.w, s)
	return err
}

// Clean returns s as Terminal would show it.
func Clean(s string) string {
	for i := range len(s) {
		if c := s[i]; c >= utf8.RuneSelf || c < 0x20 || c == 0x7f {
			return string(appendClean(make([]byte, 0, len(s)+16), []byte(s)))
		}
	}
	return s
}

// CleanLine is Clean for one line of text: newlines and tabs are escaped too.
func CleanLine(s string) string {
	c := Clean(s)
	var out []byte
	for i := range len(c) {
		switch c[i] {
		case '\n':
			out = append(grow(out, c, i), `\n`...)
		case '\t':
			out = append(grow(out, c, i), `\t`...)
		default:
			if out != nil {
				out = append(out, c[i])
			}
		}
	}
	if out == nil {
		return c
	}
	return string(out)
}

// grow returns out, started with the first i bytes of s when it was still nil.
func grow(out []byte, s string, i int) []byte {
	if out == nil {
		return append(make([]byte, 0, len(s)+8), s[:i]...)
	}
	return out
}

func appendClean(dst, src []byte) []byte {
	for i := 0; i < len(src); {
		c := src[i]
		if c < utf8.RuneSelf {
			switch {
			case c >= 0x20 && c != 0x7f, c == '\n', c == '\t':
				dst = append(dst, c)
			case c == 0x7f:
				dst = append(dst, `\u007f`...)
			default:
				dst = fmt.Appendf(dst, `\x%02x`, c)
			}
			i++
			continue
		}
		r, n := utf8.DecodeRune(src[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			dst = fmt.Appendf(dst, `\x%02x`, c)
		case hidden(r) || r < 0xa0:
			dst = appendEscape(dst, r)
		default:
			dst = append(dst, src[i:i+n]...)
		}
		i += n
	}
	return dst
}

// appendEscape writes r as JSON does: above U+FFFF as two surrogates.
func appendEscape(dst []byte, r rune) []byte {
	if hi, lo := utf16.EncodeRune(r); hi != utf8.RuneError {
		return fmt.Appendf(dst, `\u%04x\u%04x`, hi, lo)
	}
	return fmt.Appendf(dst, `\u%04x`, r)
}

// hidden tells whether r shows nothing by itself, or changes the direction or the line
// structure of the text around it, so that a line would read as something else than it is:
// Unicode's format characters, and its separators of lines and paragraphs.
func hidden(r rune) bool { return unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) }
