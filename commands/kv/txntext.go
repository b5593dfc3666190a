package kv

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
)

// textWords are the words of a line: in double quotes with Go's escapes, in single
// quotes as they are, or bare up to the next space.
var textWords = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|'[^']*'|[^'"\s]\S*`)

// splitWords splits a line of txn or of an interactive watch.
func splitWords(line string) ([]string, error) {
	words := textWords.FindAllString(line, -1)
	for i, w := range words {
		switch w[0] {
		case '\'':
			words[i] = w[1 : len(w)-1]
		case '"':
			u, err := strconv.Unquote(w)
			if err != nil {
				return nil, fmt.Errorf("%s: the quotes are not as Go writes them", w)
			}
			words[i] = u
		}
	}
	return words, nil
}

// parseCompare reads a line such as
//
//	mod("key") > "0"
//
// Targets are ver(sion), c(reate), m(od), val(ue) and lease; a lease is given in
// hexadecimal or decimal. Operators are = != < >. As in etcdctl, what follows the
// value is of no account.
func parseCompare(env *cli.Env, line string) (clientv3.Cmp, error) {
	target, rest, ok := strings.Cut(line, "(")
	if !ok {
		return clientv3.Cmp{}, fmt.Errorf("malformed comparison: %s", line)
	}
	key, rest, ok := quotedWord(rest)
	if !ok || !strings.HasPrefix(rest, ")") {
		return clientv3.Cmp{}, fmt.Errorf("malformed comparison: %s: behind %s( comes the key in quotes, and )", line, target)
	}
	rest = strings.TrimLeft(rest[1:], " \t")
	op, rest, _ := strings.Cut(rest, " ")
	val, rest, ok := quotedWord(rest)
	if !ok {
		return clientv3.Cmp{}, fmt.Errorf("malformed comparison: %s: expected an operator, a space, and the value in quotes", line)
	}
	if rest = strings.TrimSpace(rest); rest != "" && !env.DropIn() {
		return clientv3.Cmp{}, fmt.Errorf("malformed comparison: %s: %q is too much", line, rest)
	}
	c, err := newCompare(env, target, key, op, val)
	if err != nil {
		return c, fmt.Errorf("malformed comparison: %s: %w", line, err)
	}
	return c, nil
}

// newCompare makes a comparison of one key.
func newCompare(env *cli.Env, target, key, op, val string) (clientv3.Cmp, error) {
	switch op {
	case "=", "!=", "<", ">":
	default:
		return clientv3.Cmp{}, fmt.Errorf("operator %q is none of = != < >", op)
	}
	switch target {
	case "val", "value":
		return clientv3.Compare(clientv3.Value(key), op, val), nil
	case "lease":
		id, err := parseLease(env, val)
		return clientv3.Compare(clientv3.LeaseValue(key), op, id), err
	}
	of := map[string]func(string) clientv3.Cmp{"ver": clientv3.Version, "version": clientv3.Version,
		"c": clientv3.CreateRevision, "create": clientv3.CreateRevision, "m": clientv3.ModRevision, "mod": clientv3.ModRevision}[target]
	if of == nil {
		return clientv3.Cmp{}, fmt.Errorf("unknown target %s; there are version, create, mod, value and lease", target)
	}
	n, err := strconv.ParseInt(val, 10, 64)
	if err != nil {
		return clientv3.Cmp{}, fmt.Errorf("%q is not a number", val)
	}
	return clientv3.Compare(of(key), op, n), nil
}

// parseLease reads the lease of a comparison; 0 is no lease. Here decimal ids are
// taken under every name: etcdctl itself takes none.
func parseLease(env *cli.Env, text string) (int64, error) {
	if id, err := strconv.ParseInt(text, 16, 64); err == nil {
		return id, nil
	}
	if id, err := strconv.ParseInt(text, 10, 64); err == nil {
		return id, nil
	}
	id, err := cli.ParseID(env, "lease", text)
	return int64(id), err
}

// quotedWord cuts a quoted word off the front.
func quotedWord(s string) (word, rest string, ok bool) {
	s = strings.TrimLeft(s, " \t")
	q, err := strconv.QuotedPrefix(s)
	if err != nil || q[0] == '\'' {
		return "", s, false
	}
	word, err = strconv.Unquote(q)
	return word, s[len(q):], err == nil
}

// short tells whether text stands for a command, as far as it is written out.
func short(text, command string) bool { return strings.HasPrefix(command, text) }

// parseRequest reads a line such as `put key value`, `get key --prefix` or `del key`,
// with the flags of these commands.
func parseRequest(env *cli.Env, line string) (clientv3.Op, error) {
	words, err := splitWords(line)
	if err != nil {
		return clientv3.Op{}, err
	}
	if len(words) < 2 {
		return clientv3.Op{}, fmt.Errorf("invalid txn request: %s", line)
	}
	verb, flags := words[0], pflag.NewFlagSet(words[0], pflag.ContinueOnError)
	flags.Usage = func() {}
	wrap := func(err error) error { return fmt.Errorf("invalid txn request: %s: %w", line, err) }
	switch {
	case short(verb, "put"):
		o := putOptions{env: env}
		o.define(flags)
		if err := flags.Parse(words[1:]); err != nil {
			return clientv3.Op{}, wrap(err)
		}
		if flags.NArg() < 2 && !o.ignoreValue {
			return clientv3.Op{}, wrap(cli.Usagef("put needs a key and a value"))
		}
		if err := o.complete(flags.Args()); err != nil {
			return clientv3.Op{}, err
		}
		return clientv3.OpPut(o.key, o.value, o.ops()...), nil
	case short(verb, "get"):
		o := getOptions{env: env}
		o.define(flags)
		if err := flags.Parse(words[1:]); err != nil {
			return clientv3.Op{}, wrap(err)
		}
		if err := o.complete(flags.Args()); err != nil {
			return clientv3.Op{}, err
		}
		return clientv3.OpGet(string(o.keys.rng.Key), o.ops()...), nil
	case short(verb, "del"):
		o := delOptions{env: env}
		o.define(flags)
		if err := flags.Parse(words[1:]); err != nil {
			return clientv3.Op{}, wrap(err)
		}
		if err := o.keys.complete("del", flags.Args()); err != nil {
			return clientv3.Op{}, err
		}
		return clientv3.OpDelete(string(o.keys.rng.Key), o.ops()...), nil
	}
	return clientv3.Op{}, fmt.Errorf("invalid txn request: %s: %q is none of put, get and del", line, verb)
}
