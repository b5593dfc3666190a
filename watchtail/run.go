package watchtail

import (
	"context"
	"errors"
	"iter"
	"time"
)

// checkpointEvery is how far apart checkpoints are at least.
const checkpointEvery = 100 * time.Millisecond

// Runner moves what a stream gives into a sink, and writes down how far it came.
type Runner struct {
	Sink Sink
	// Render appends the lines of a step's events, and tells how many events they are of.
	Render func(dst []byte, s Step) ([]byte, int, error)
	// Save keeps a checkpoint; nil: none is kept. What it gets holds everything but the
	// history, which History says of the step that was taken last.
	Save    func(Checkpoint) error
	History func() History
	Form    Checkpoint // what every checkpoint holds: the selection
	Resumed bool       // there is a checkpoint already,
	Damaged bool       // and it is to be written anew
	// After is a revision that the output has already, with all before it; what the stream
	// gives up to there is left out.
	After int64
	// UntilRev is the last revision to give; 0: there is none. UntilIdle ends it when no event
	// has come for so long; 0: it goes on.
	UntilRev  int64
	UntilIdle time.Duration
	// Reopen, where it is not nil, is asked for between two revisions: a new file is to be
	// begun.
	Reopen <-chan struct{}
	// Each is called after each step; nil: nobody is.
	Each func(Stats)
}

// Stats are what a run has done.
type Stats struct {
	Rev         int64 // up to which everything is given
	Revisions   int64 // that had events
	Events      int64
	Bytes       int64 // of output
	Checkpoints int64
}

// SinkError says that the output cannot be written. Then nothing more is written, and no
// checkpoint either.
type SinkError struct{ Err error }

func (e *SinkError) Error() string { return e.Err.Error() }
func (e *SinkError) Unwrap() error { return e.Err }

// running is a run under way.
type running struct {
	*Runner
	stats Stats
	saved time.Time // when the last checkpoint was written
	dirty bool      // it is no longer up to date
	list  bool      // within a list, which counts as a whole
	torn  bool      // a step was taken whose events are not in the output
	event time.Time // when the last event came
	buf   []byte
}

// errDone ends a run that has given everything that was asked for.
var errDone = errors.New("done")

// Run goes on until the stream ends, or what is asked for is there. However it ends, what was
// taken from the stream is then in the output, and the checkpoint says so, unless the output
// itself has failed. The error is that of the stream, a *SinkError, or that of the checkpoint;
// nil when it was to end, also by ErrEnough as the cause of ctx.
func (r *Runner) Run(ctx context.Context, steps iter.Seq2[Step, error]) (Stats, error) {
	g := &running{Runner: r, event: time.Now()}
	err := g.all(steps)
	if errors.Is(err, errDone) || ctx.Err() != nil && errors.Is(err, ErrEnough) {
		err = nil
	}
	if g.torn {
		return g.stats, err
	}
	if cerr := g.checkpoint(); err == nil {
		err = cerr
	}
	return g.stats, err
}

// ErrEnough as the cause of a context's end says that a run was to end then.
var ErrEnough = errors.New("it was to end")

func (g *running) all(steps iter.Seq2[Step, error]) error {
	first := g.Save != nil && (!g.Resumed || g.Damaged)
	for s, err := range steps {
		if err != nil {
			return err
		}
		if first { // whoever is killed from here on begins where we did
			if err := g.begin(s); err != nil {
				return err
			}
			first = false
		}
		g.torn = true
		if err := g.step(s); err != nil {
			g.torn = !errors.Is(err, errDone)
			return err
		}
		g.torn = false
		if g.Each != nil {
			g.Each(g.stats)
		}
	}
	return nil
}

// begin writes the checkpoint of before the first step.
func (g *running) begin(s Step) error {
	h := g.History()
	switch {
	case s.List != NoList && g.Resumed: // in place of what was compacted, as it will be again
		return nil
	case s.List != NoList: // which begins anew when it does not come to its end
		h.Rev, h.Digest = 0, 0
	case !s.Idle:
		h.Rev, h.Digest = s.Rev-1, 0
	}
	return g.save(h)
}

func (g *running) step(s Step) error {
	select {
	case <-g.Reopen:
		if err := g.rotate((*FileSink).Reopen); err != nil {
			return err
		}
	default:
	}
	switch {
	case s.Idle:
		return g.idle()
	case g.UntilRev > 0 && s.Rev > g.UntilRev:
		return errDone
	}
	g.list = s.List == ListBegin || s.List == ListPart
	if s.List != 0 || len(s.Events) > 0 && s.Rev > g.After {
		if err := g.give(s); err != nil {
			return err
		}
	}
	g.stats.Rev, g.dirty = max(s.Rev, g.stats.Rev), true
	if time.Since(g.saved) >= checkpointEvery && !g.list {
		if err := g.checkpoint(); err != nil {
			return err
		}
	} else if !s.More {
		if err := g.Sink.Flush(); err != nil {
			return &SinkError{err}
		}
	}
	if g.UntilRev > 0 && s.Rev >= g.UntilRev && !g.list {
		return errDone
	}
	return nil
}

func (g *running) give(s Step) error {
	b, n, err := g.Render(g.buf[:0], s)
	if err != nil {
		return err
	}
	g.buf = b
	if cap(b) > 16*bufferBytes {
		g.buf = nil
	}
	g.event = time.Now()
	if n == 0 {
		return nil
	}
	if err := g.Sink.Write(b); err != nil {
		return &SinkError{err}
	}
	g.stats.Revisions++
	g.stats.Events += int64(n)
	g.stats.Bytes += int64(len(b))
	if f, ok := g.Sink.(*FileSink); ok && f.Full() && !g.list {
		return g.rotate((*FileSink).Rotate)
	}
	return nil
}

func (g *running) idle() error {
	if g.dirty && !g.list {
		if err := g.checkpoint(); err != nil {
			return err
		}
	}
	if g.UntilIdle > 0 && time.Since(g.event) >= g.UntilIdle {
		return errDone
	}
	return nil
}

// rotate begins a new file, and writes down that it did.
func (g *running) rotate(how func(*FileSink) error) error {
	f, ok := g.Sink.(*FileSink)
	if !ok {
		return nil
	}
	if err := how(f); err != nil {
		return &SinkError{err}
	}
	g.dirty, g.saved = true, time.Time{} // at once
	return nil
}

// checkpoint makes the output last, and then says so.
func (g *running) checkpoint() error {
	if err := g.Sink.Flush(); err != nil {
		return &SinkError{err}
	}
	if g.list {
		return nil
	}
	if g.Save == nil || !g.dirty {
		g.saved, g.dirty = time.Now(), false
		return nil
	}
	return g.save(g.History())
}

func (g *running) save(h History) error {
	if g.UntilRev > 0 && h.Rev > g.UntilRev { // what is behind it was not given
		h.Rev, h.Digest = g.UntilRev, 0
	}
	if h.Rev < g.After { // the output is further than the stream
		h.Rev, h.Digest = g.After, 0
	}
	out, err := g.Sink.Sync()
	if err != nil {
		return &SinkError{err}
	}
	c := g.Form
	c.ClusterID, c.Revision, c.Ahead, c.Digest, c.Output, c.Time = ID(h.Cluster), h.Rev, h.Ahead, ID(h.Digest), out, time.Now().UTC()
	if err := g.Save(c); err != nil {
		return err
	}
	g.saved, g.dirty = time.Now(), false
	g.stats.Checkpoints++
	return nil
}
