package sourcetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// player makes random changes under one prefix.
type player struct {
	tb     testing.TB
	c      *clientv3.Client
	rng    *rand.Rand
	keys   []string
	leases []clientv3.LeaseID
}

// newPlayer picks keys that are hard to order: one is a prefix of the next, zeros
// and 0xff at the end, long common beginnings.
func newPlayer(tb testing.TB, c *clientv3.Client, rng *rand.Rand, prefix string) *player {
	long := strings.Repeat("long/", 12)
	names := []string{
		"", "a", "a\x00", "a\x00\x00", "a\x00b", "aa", "b", "pods/default/web-1", "pods/default/web-10", "pods/default/web-2",
		long, long + "1", long + "12345678", long + "12345678\x00", long + "2", strings.Repeat("k", 300), "\xff", "\xff\xff",
	}
	rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	p := &player{tb: tb, c: c, rng: rng}
	for _, n := range names[:4+rng.IntN(len(names)-4)] {
		p.keys = append(p.keys, prefix+n)
	}
	return p
}

func (p *player) key() string { return p.keys[p.rng.IntN(len(p.keys))] }

// end returns a key that may be the end of a range from start.
func (p *player) end(start string) string {
	switch k := p.key(); {
	case k > start:
		return k
	default:
		return start + "\xff"
	}
}

// value is empty, small, or longer than a page of the file.
func (p *player) value() string {
	n := p.rng.IntN(100)
	switch p.rng.IntN(12) {
	case 0:
		n = 0
	case 1:
		n = 3000 + p.rng.IntN(20_000)
	}
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(p.rng.Uint32())
	}
	return string(b)
}

func (p *player) put() clientv3.Op {
	var opts []clientv3.OpOption
	if len(p.leases) > 0 && p.rng.IntN(3) == 0 {
		opts = append(opts, clientv3.WithLease(p.leases[p.rng.IntN(len(p.leases))]))
	}
	switch p.rng.IntN(12) {
	case 0:
		return clientv3.OpPut(p.key(), "", append(opts, clientv3.WithIgnoreValue())...)
	case 1:
		return clientv3.OpPut(p.key(), p.value(), clientv3.WithIgnoreLease())
	}
	return clientv3.OpPut(p.key(), p.value(), opts...)
}

func (p *player) del() clientv3.Op {
	start := p.key()
	if p.rng.IntN(3) == 0 {
		return clientv3.OpDelete(start, clientv3.WithRange(p.end(start)))
	}
	return clientv3.OpDelete(start)
}

func (p *player) op() clientv3.Op {
	if p.rng.IntN(3) == 0 {
		return p.del()
	}
	return p.put()
}

// txn is a transaction of some changes, which may hold transactions itself.
func (p *player) txn(depth int) clientv3.Op {
	branch := func() []clientv3.Op {
		var ops []clientv3.Op
		for range p.rng.IntN(4) {
			if depth > 0 && p.rng.IntN(3) == 0 {
				ops = append(ops, p.txn(depth-1))
			} else {
				ops = append(ops, p.op())
			}
		}
		return ops
	}
	return clientv3.OpTxn([]clientv3.Cmp{p.compare()}, branch(), branch())
}

// compare is a comparison of one of all kinds, about as often true as not.
func (p *player) compare() clientv3.Cmp {
	k := p.key()
	sign := []string{"=", "!=", "<", ">"}[p.rng.IntN(4)]
	var c clientv3.Cmp
	switch p.rng.IntN(6) {
	case 0:
		c = clientv3.Compare(clientv3.Value(k), sign, p.value())
	case 1:
		c = clientv3.Compare(clientv3.CreateRevision(k), sign, 0)
	case 2:
		c = clientv3.Compare(clientv3.ModRevision(k), sign, p.rng.IntN(1000))
	case 3:
		c = clientv3.Compare(clientv3.LeaseValue(k), sign, 0)
	default:
		c = clientv3.Compare(clientv3.Version(k), sign, p.rng.IntN(3))
	}
	if p.rng.IntN(4) == 0 {
		c = c.WithRange(p.end(k))
	}
	return c
}

// refused tells whether the server knows better: a transaction may not change a
// key twice, and what is to stay must be there.
func refused(err error) bool {
	return errors.Is(err, rpctypes.ErrDuplicateKey) || errors.Is(err, rpctypes.ErrKeyNotFound)
}

// play makes n random changes, some of which change nothing.
func (p *player) play(ctx context.Context, n int) {
	p.tb.Helper()
	for range n {
		if err := p.step(ctx); err != nil {
			p.tb.Fatal(err)
		}
	}
}

func (p *player) step(ctx context.Context) error {
	switch p.rng.IntN(20) {
	case 0:
		l, err := p.c.Grant(ctx, 3600)
		if err == nil {
			p.leases = append(p.leases, l.ID)
		}
		return err
	case 1:
		if len(p.leases) == 0 {
			return nil
		}
		i := p.rng.IntN(len(p.leases))
		_, err := p.c.Revoke(ctx, p.leases[i])
		p.leases = append(p.leases[:i], p.leases[i+1:]...)
		return err
	case 2, 3, 4, 5, 6:
		_, err := p.c.Do(ctx, p.txn(2))
		if refused(err) {
			return nil
		}
		return err
	default:
		_, err := p.c.Do(ctx, p.op())
		if refused(err) {
			return nil
		}
		return err
	}
}
