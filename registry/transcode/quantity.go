package transcode

import (
	"errors"
	"math"
	"math/big"
	"strconv"
	"strings"
)

var (
	errQuantity     = errors.New("not a quantity")
	errQuantityHuge = errors.New("the quantity is out of bounds")
)

// maxExponent bounds the exponents that are computed. Kubernetes has no bound and
// would fill the memory with zeros for "1e1000000000".
const maxExponent = 4096

// maxQuantity bounds the length of a quantity's text, for the same reason.
const maxQuantity = 4096

type quantityForm uint8

const (
	decimalSI       quantityForm = iota // 500m, 2k, 3
	binarySI                            // 64Mi
	decimalExponent                     // 12e6
)

// decimalSuffix and binarySuffix are indexed by exponent/3+3 and exponent/10.
var (
	decimalSuffix = [...]string{"n", "u", "m", "", "k", "M", "G", "T", "P", "E"}
	binarySuffix  = [...]string{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
	bigTen        = big.NewInt(10)
	big1024       = big.NewInt(1024)
	maxBinary     = big.NewInt(math.MaxInt64)
)

// CanonicalQuantity returns s as Kubernetes prints a parsed quantity: "0.5" is
// "500m", "1024Ki" is "1Mi". Text that is canonical already, and some that only
// looks so to Kubernetes ("1.500", "+1Ki"), comes back unchanged.
func CanonicalQuantity(s string) (string, error) {
	if s == "0" {
		return s, nil
	}
	if s == "" || len(s) > maxQuantity {
		return "", errQuantity
	}
	p, err := splitQuantity(s)
	if err != nil {
		return "", err
	}
	exponent, form, ok := quantitySuffix(p.suffix)
	if !ok {
		return "", errQuantity
	}
	if c, ok := p.short(s, exponent, form); ok {
		return c, nil
	}
	return p.long(exponent, form)
}

// quantityParts is a quantity taken apart: sign, digits before (without leading
// zeros, "0" if there are none) and after the point, and the suffix.
type quantityParts struct {
	negative  bool
	digits    bool // the number has at least one digit
	num, frac string
	suffix    string
}

func splitQuantity(s string) (p quantityParts, err error) {
	i := 0
	if s[0] == '-' || s[0] == '+' {
		p.negative = s[0] == '-'
		i++
	}
	start := i
	for i < len(s) && s[i] == '0' {
		i++
	}
	if i == len(s) {
		// All zeros, or a lone sign, which Kubernetes takes for zero.
		p.num, p.digits = "0", true
		return p, nil
	}
	p.digits = i > start
	from := i
	i = skipDigits(s, i)
	p.num = s[from:i]
	p.digits = p.digits || p.num != ""
	if p.num == "" {
		p.num = "0"
	}
	if i < len(s) && s[i] == '.' {
		from = i + 1
		i = skipDigits(s, from)
		p.frac = s[from:i]
		p.digits = p.digits || p.frac != ""
	}
	from = i
	for i < len(s) && strings.IndexByte("eEinumkKMGTP", s[i]) >= 0 {
		i++
	}
	if i < len(s) && (s[i] == '-' || s[i] == '+') {
		i++
	}
	if i = skipDigits(s, i); i < len(s) {
		return p, errQuantity
	}
	p.suffix = s[from:]
	return p, nil
}

func skipDigits(s string, i int) int {
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	return i
}

// quantitySuffix returns the exponent of a suffix, to base 2 for binarySI and to
// base 10 otherwise.
func quantitySuffix(s string) (exponent int, form quantityForm, ok bool) {
	for i, d := range decimalSuffix {
		if s == d {
			return 3 * (i - 3), decimalSI, true
		}
	}
	for i, b := range binarySuffix[1:] {
		if s == b {
			return 10 * (i + 1), binarySI, true
		}
	}
	if len(s) > 1 && (s[0] == 'e' || s[0] == 'E') {
		n, err := strconv.ParseInt(s[1:], 10, 64)
		return int(int32(n)), decimalExponent, err == nil
	}
	return 0, decimalExponent, false
}

// short handles what fits 64 bits by Kubernetes' own test for it. That test also
// decides whether the text is kept as written, so it must be the same test. It is
// false when the number has to go the long way.
func (p *quantityParts) short(s string, exponent int, form quantityForm) (string, bool) {
	scale, factor := 0, int64(1)
	var room int32 // decimal digits that are left
	if form == binarySI {
		if p.frac != "" {
			return "", false
		}
		factor = 1 << uint(exponent)
		room = 15 - int32(len(p.num)) - int32(float32(exponent)*3/10) - 1
	} else {
		scale = exponent
		room = 18 - int32(len(p.num)+len(p.frac))
	}
	// The scale is a 32-bit number in Kubernetes and may wrap.
	scale = int(int32(scale) - int32(len(p.frac)))
	if room < 0 || scale < -9 {
		return "", false
	}
	shifted := p.num + p.frac
	v, err := strconv.ParseInt(shifted, 10, 64)
	if err != nil {
		return "", false
	}
	if v != 0 && factor > math.MaxInt64/v {
		return "", false
	}
	amount := v * factor
	if p.negative {
		amount = -amount
	}
	if form == binarySI {
		if v&7 != 0 {
			return s, true
		}
	} else if scale%3 == 0 && !strings.HasSuffix(shifted, "000") && shifted[0] != '0' {
		return s, true
	}
	return printQuantity(big.NewInt(amount), scale, form), true
}

// long handles every other number with arithmetic of any size: the result is
// rounded away from zero to 1n, and a binary one capped at 2^63-1.
func (p *quantityParts) long(exponent int, form quantityForm) (string, error) {
	if !p.digits {
		return "", errQuantity
	}
	m, ok := new(big.Int).SetString(p.num+p.frac, 10)
	if !ok {
		return "", errQuantity
	}
	scale := -len(p.frac)
	if form == binarySI {
		m.Lsh(m, uint(exponent))
	} else {
		scale += exponent
	}
	if m.Sign() == 0 {
		return "0", nil
	}
	if scale > maxExponent || scale < -maxExponent-maxQuantity {
		return "", errQuantityHuge
	}
	if scale < -9 {
		unit := new(big.Int).Exp(bigTen, big.NewInt(int64(-9-scale)), nil)
		rest := new(big.Int)
		m.QuoRem(m, unit, rest)
		if rest.Sign() != 0 {
			m.Add(m, big.NewInt(1))
		}
		scale = -9
	}
	if form == binarySI {
		one := new(big.Int).Exp(bigTen, big.NewInt(int64(-scale)), nil) // scale is never above 0 here
		if limit := new(big.Int).Mul(maxBinary, one); m.Cmp(limit) > 0 {
			m, scale = new(big.Int).Set(maxBinary), 0
		} else if m.Cmp(one) < 0 {
			form = decimalSI
		}
	}
	if p.negative {
		m.Neg(m)
	}
	return printQuantity(m, scale, form), nil
}

// printQuantity prints m × 10^scale.
func printQuantity(m *big.Int, scale int, form quantityForm) string {
	if m.Sign() == 0 {
		return "0"
	}
	if form == binarySI {
		whole, exact := m, true
		if scale < 0 {
			rest := new(big.Int)
			whole, rest = new(big.Int).QuoRem(m, new(big.Int).Exp(bigTen, big.NewInt(int64(-scale)), nil), rest)
			exact = rest.Sign() == 0
		}
		// Below 1Ki, and where a fraction would be lost, the decimal form is exact.
		if !exact || whole.CmpAbs(big1024) < 0 {
			form = decimalSI
		} else {
			whole, times := removeFactors(whole, big1024)
			return whole.String() + at(binarySuffix[:], times)
		}
	}
	m, times := removeFactors(m, bigTen)
	scale += times
	for ; scale%3 != 0; scale-- {
		m = new(big.Int).Mul(m, bigTen)
	}
	if form == decimalExponent {
		if scale == 0 {
			return m.String()
		}
		return m.String() + "e" + strconv.Itoa(scale)
	}
	return m.String() + at(decimalSuffix[:], scale/3+3)
}

// at returns "" outside the list: Kubernetes has no suffix there and prints none.
func at(list []string, i int) string {
	if i < 0 || i >= len(list) {
		return ""
	}
	return list[i]
}

func removeFactors(m, factor *big.Int) (*big.Int, int) {
	q, rest := new(big.Int), new(big.Int)
	for times := 0; ; times++ {
		if q.QuoRem(m, factor, rest); rest.Sign() != 0 || m.Sign() == 0 {
			return m, times
		}
		m, q = q, new(big.Int)
	}
}
