package cli

import (
	"strconv"
	"strings"
)

// ParseID reads the id of a member or a lease: hexadecimal, as etcd's tools show it, or
// decimal, as JSON has it. What could be either is hexadecimal; 0x says so, and more
// than 16 digits are decimal. As etcdctl it is always hexadecimal.
func ParseID(env *Env, what, text string) (uint64, error) {
	digits, hexed := strings.CutPrefix(strings.ToLower(text), "0x")
	if env.DropIn() {
		digits = text
	}
	id, err := strconv.ParseUint(digits, 16, 64)
	if err != nil && !hexed && !env.DropIn() {
		id, err = strconv.ParseUint(digits, 10, 64)
	}
	if err != nil {
		return 0, WithHint(Usagef("bad %s ID %q, expecting ID in Hex", what, text), "`member list` and `lease list` show ids; 16 hexadecimal digits, or the decimal number of the JSON format")
	}
	return id, nil
}
