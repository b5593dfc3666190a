package cli

import "testing"

func TestBytesFlag(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]Bytes{"0": 0, "500": 500, "64K": 64 << 10, "10MiB": 10 << 20, "1.5g": 3 << 29, "2 tb": 2 << 40, "7B": 7} {
		var b Bytes
		if err := b.Set(s); err != nil || b != want {
			t.Errorf("%q is %d, %v", s, b, err)
		}
	}
	for _, s := range []string{"", "x", "-1", "1kk", "10X", "NaN", "Inf", "1e30G", "B"} {
		var b Bytes
		if err := b.Set(s); err == nil {
			t.Errorf("%q is taken as %d", s, b)
		}
	}
}
