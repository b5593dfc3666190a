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
	bytes       bool
}

// ProgressBytes is Progress for a number of bytes: it also shows the rate and, where the
// total is known, the time that is left.
func (e *Env) ProgressBytes(what string) *Progress {
	p := e.Progress(what)
	if p != nil {
		p.bytes = true
	}
	return p
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
	if p.bytes {
		p.draw(p.byteLine(done, total, now.Sub(p.start)))
		return
	}
	line := fmt.Sprintf("%s: %d", p.what, done)
	if total > 0 {
		line = fmt.Sprintf("%s: %d of %d (%d %%)", p.what, done, total, done*100/total)
	}
	p.draw(line)
}

func (p *Progress) draw(line string) {
	p.drawn = true
	_ = p.term.Styled("\r\x1b[K" + line) // a progress line is not worth failing for
}

func (p *Progress) byteLine(done, total int64, took time.Duration) string {
	rate := float64(done) / took.Seconds()
	line := fmt.Sprintf("%s: %s", p.what, output.Bytes(done))
	if total > 0 {
		line += fmt.Sprintf(" of %s (%d %%)", output.Bytes(total), done*100/total)
	}
	line += fmt.Sprintf(", %s/s", output.Bytes(int64(rate)))
	if total > done && rate > 0 {
		left := time.Duration(float64(total-done) / rate * float64(time.Second))
		line += fmt.Sprintf(", %s left", max(left, time.Second).Round(time.Second))
	}
	return line
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
