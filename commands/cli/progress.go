package cli

import (
	"fmt"
	"sync"
	"time"

	"github.com/etcdctl-plus/etcdctl-plus/output"
)

// Progress draws one changing line on stderr, on a terminal only, and only for
// what takes longer than a second. It is safe for concurrent use; a nil
// *Progress does nothing.
type Progress struct {
	mu          sync.Mutex
	term        *output.Terminal
	now         func() time.Time
	what        string
	start, last time.Time
	drawn       bool
}

// Progress starts a progress line for what ("read records").
func (e *Env) Progress(what string) *Progress {
	t, ok := e.Stderr.(*output.Terminal)
	if !ok {
		return nil
	}
	now := e.Now()
	return &Progress{term: t, now: e.Now, what: output.CleanLine(what), start: now, last: now}
}

// Set says how much is done; total 0 means unknown.
func (p *Progress) Set(done, total int64) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if now.Sub(p.start) < time.Second || now.Sub(p.last) < 200*time.Millisecond {
		return
	}
	p.last = now
	line := fmt.Sprintf("%s: %d", p.what, done)
	if total > 0 {
		line = fmt.Sprintf("%s: %d of %d (%d %%)", p.what, done, total, done*100/total)
	}
	p.drawn = true
	_ = p.term.Styled("\r\x1b[K" + line) // a progress line is not worth failing for
}

// Done takes the line away.
func (p *Progress) Done() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn {
		_ = p.term.Styled("\r\x1b[K")
		p.drawn = false
	}
}
