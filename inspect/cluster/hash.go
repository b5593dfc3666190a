package cluster

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Hash is one member's hash of its keys and their history.
type Hash struct {
	Endpoint string
	Hash     *clientv3.HashKVResponse
	Err      error
}

// Hashes asks one member after another, in the order given: a member takes no writes
// while it computes.
func Hashes(ctx context.Context, dial Dialer, endpoints []string, rev int64, timeout time.Duration) []Hash {
	var out []Hash
	for _, ep := range endpoints {
		h, err := with(ctx, dial, ep, timeout, func(ctx context.Context, c *clientv3.Client) (*clientv3.HashKVResponse, error) {
			return c.HashKV(ctx, ep, rev)
		})
		out = append(out, Hash{ep, h, err})
	}
	return out
}

// Verdict is what hashes of several members say together.
type Verdict struct {
	// Differences name members that should agree and do not: damage.
	Differences []string
	// NotCompared name members whose hashes are of different stretches of history.
	NotCompared []string
}

// Compare compares hashes. Two are of the same only when both members have compacted up
// to the same revision and hashed up to the same one.
func Compare(hashes []Hash) Verdict {
	var v Verdict
	var first *Hash
	for i := range hashes {
		h := &hashes[i]
		if h.Err != nil {
			continue
		}
		if first == nil {
			first = h
			continue
		}
		switch {
		case h.Hash.CompactRevision != first.Hash.CompactRevision:
			v.NotCompared = append(v.NotCompared, fmt.Sprintf("%s is compacted at %d and %s at %d: not compared", first.Endpoint, first.Hash.CompactRevision, h.Endpoint, h.Hash.CompactRevision))
		case h.Hash.HashRevision != 0 && first.Hash.HashRevision != 0 && h.Hash.HashRevision != first.Hash.HashRevision:
			v.NotCompared = append(v.NotCompared, fmt.Sprintf("%s has hashed up to revision %d and %s up to %d: not compared", first.Endpoint, first.Hash.HashRevision, h.Endpoint, h.Hash.HashRevision))
		case h.Hash.Hash != first.Hash.Hash:
			v.Differences = append(v.Differences, fmt.Sprintf("%s has %d and %s has %d", first.Endpoint, first.Hash.Hash, h.Endpoint, h.Hash.Hash))
		}
	}
	return v
}
