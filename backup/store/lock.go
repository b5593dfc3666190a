package store

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync"
	"time"
)

// LockOptions of Lock.
type LockOptions struct {
	// TTL is how long the lock lasts without being refreshed; 0: 2 minutes. It is
	// refreshed four times as often.
	TTL time.Duration
}

const defaultTTL = 2 * time.Minute

func (o LockOptions) ttl() time.Duration {
	if o.TTL <= 0 {
		return defaultTTL
	}
	return o.TTL
}

// Owner says who holds a lock. It is what lies in the store, as JSON.
type Owner struct {
	Host      string    `json:"host"`
	Boot      string    `json:"boot,omitempty"` // of the running kernel, where it says so
	PID       int       `json:"pid"`
	Since     time.Time `json:"since"`
	Refreshed time.Time `json:"refreshed"` // by the holder's clock
	TTLMillis int64     `json:"ttlMillis"`
	Token     string    `json:"token"` // of this one holding
}

func newOwner(ttl time.Duration) Owner {
	now := time.Now().UTC()
	return Owner{Host: hostname(), Boot: bootID(), PID: os.Getpid(), Since: now, Refreshed: now, TTLMillis: ttl.Milliseconds(), Token: token()}
}

// local tells whether the owner's locks on files are seen here: it runs, or ran,
// on the same kernel.
func (o Owner) local() bool { return o.Boot == bootID() && (o.Boot != "" || o.Host == hostname()) }

func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (o Owner) ttl() time.Duration {
	if o.TTLMillis <= 0 {
		return defaultTTL
	}
	return time.Duration(o.TTLMillis) * time.Millisecond
}

func (o Owner) bytes() []byte {
	b, _ := json.Marshal(o) // strings, numbers and times
	return append(b, '\n')
}

// readOwner is the zero value for what is no record.
func readOwner(b []byte) Owner {
	var o Owner
	if json.Unmarshal(b, &o) != nil {
		return Owner{}
	}
	return o
}

// Lock is a lock that is held.
type Lock struct {
	ctx     context.Context
	stop    context.CancelCauseFunc
	done    chan struct{} // the keeper has ended
	once    sync.Once
	release func(context.Context) error
	err     error
}

// Context ends when the lock is lost (its cause is ErrLockLost) or released, or
// with the context that Lock was called with.
func (l *Lock) Context() context.Context { return l.ctx }

// Release gives the lock back. It may be called more than once, also when the
// lock was lost, and takes no longer than the lock would last anyhow.
func (l *Lock) Release() error {
	l.once.Do(func() {
		l.stop(context.Canceled)
		<-l.done
		l.err = l.release(context.WithoutCancel(l.ctx))
	})
	return l.err
}

// keep starts refreshing a lock that was taken at a moment not before since.
// refresh returns ErrLockLost when somebody else has it; other errors are tried
// again until the TTL, less a quarter, is over since the last success was begun.
func keep(ctx context.Context, o Owner, since time.Time, refresh func(context.Context, Owner) error, release func(context.Context) error) *Lock {
	l := &Lock{done: make(chan struct{})}
	l.ctx, l.stop = context.WithCancelCause(ctx)
	ttl := o.ttl()
	l.release = func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, ttl)
		defer cancel()
		return release(ctx)
	}
	go func() {
		defer close(l.done)
		last := since
		for {
			select {
			case <-l.ctx.Done():
				return
			case <-time.After(ttl / 4):
			}
			begun := time.Now()
			lost := last.Add(ttl - ttl/4)
			once, cancel := context.WithDeadline(l.ctx, lost)
			o.Refreshed = begun.UTC()
			err := refresh(once, o)
			cancel()
			switch {
			case err == nil:
				last = begun
			case errors.Is(err, ErrLockLost):
				l.stop(err)
				return
			case !time.Now().Before(lost):
				l.stop(as(ErrLockLost, err))
				return
			}
		}
	}()
	return l
}
