package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes is a flag value in bytes with an optional unit: 500, 64K, 10MiB, 1.5G.
// Units are powers of 1024, with or without "i" and "B".
type Bytes int64

var byteUnits = map[string]float64{"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}

// Set reads a size.
func (b *Bytes) Set(s string) error {
	text := strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(strings.TrimSpace(s)), "b"), "i")
	digits := strings.TrimRight(text, "kmgt")
	unit, ok := byteUnits[text[len(digits):]]
	n, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
	if n *= unit; err != nil || !ok || !(n >= 0) || n >= math.MaxInt64 {
		return fmt.Errorf("%q is not a number of bytes such as 500K, 10M or 1G", s)
	}
	*b = Bytes(n)
	return nil
}

// String writes the number alone; 0 for none.
func (b *Bytes) String() string { return strconv.FormatInt(int64(*b), 10) }

// Type names the value in help.
func (b *Bytes) Type() string { return "bytes" }
