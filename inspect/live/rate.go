package live

import (
	"context"
	"sync"
	"time"
)

// limiter spreads bytes over time.
type limiter struct {
	rate int64 // bytes a second; 0: no limit

	mu   sync.Mutex
	next time.Time // when everything taken so far is paid for
}

// take waits until what was taken before is paid for, and puts n bytes on the
// bill.
func (l *limiter) take(ctx context.Context, n int64) error {
	if l.rate <= 0 {
		return ctx.Err()
	}
	l.mu.Lock()
	now := time.Now()
	if l.next.Before(now) {
		l.next = now
	}
	wait := l.next.Sub(now)
	l.next = l.next.Add(time.Duration(float64(n) / float64(l.rate) * float64(time.Second)))
	l.mu.Unlock()
	if wait <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
