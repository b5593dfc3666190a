package kv

import (
	"fmt"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// keyArgs is `KEY [END]` with --prefix and --from-key, as get, del and watch
// take it.
type keyArgs struct {
	prefix, fromKey bool
	explicitEnd     bool
	rng             keyspace.Range
}

func (k *keyArgs) complete(verb string, args []string) error {
	switch {
	case len(args) == 0 || len(args) > 2:
		return cli.Usagef("%s command needs one argument as key and an optional argument as range_end", verb)
	case k.prefix && k.fromKey:
		return cli.Usagef("`--prefix` and `--from-key` cannot be set at the same time, choose one")
	case len(args) > 1 && (k.prefix || k.fromKey):
		return cli.Usagef("too many arguments, only accept one argument when `--prefix` or `--from-key` is set")
	case len(args) > 1:
		k.explicitEnd = true
		k.rng = keyspace.Range{Key: []byte(args[0]), End: []byte(args[1])}
		if args[1] == "" {
			k.rng.End, k.explicitEnd = nil, false
		}
	case k.prefix:
		k.rng = keyspace.Prefix([]byte(args[0]))
	case k.fromKey:
		k.rng = keyspace.From([]byte(args[0]))
	default:
		k.rng = keyspace.One([]byte(args[0]))
	}
	if len(k.rng.Key) == 0 {
		return &cli.Error{Code: cli.Usage, Err: fmt.Errorf("etcdserver: key is not provided"), Hint: `for every key say "" --prefix`, DropIn: 1}
	}
	return nil
}

// single tells whether exactly one key is meant.
func (k *keyArgs) single() bool { return len(k.rng.End) == 0 }

func (k *keyArgs) String() string {
	switch {
	case k.single():
		return fmt.Sprintf("%q", k.rng.Key)
	case string(k.rng.Key) == "\x00":
		return "all keys"
	case k.prefix:
		return fmt.Sprintf("keys under %q", k.rng.Key)
	default:
		return fmt.Sprintf("keys from %q to %q", k.rng.Key, k.rng.End)
	}
}
