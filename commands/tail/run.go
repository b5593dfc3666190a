package tail

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/output"
	"github.com/etcdctl-plus/etcdctl-plus/watchtail"
)

// farBack is from how many revisions on the history is read from a snapshot.
const farBack = 5000

func (o *options) run(ctx context.Context) error {
	formats := []output.Format{output.Simple, output.JSONL, output.Template, output.JSONPath}
	if o.out != "" { // which has to be read on
		formats = []output.Format{output.JSONL, output.Simple}
	}
	p, err := o.env.Printer(formats...)
	if err != nil {
		return err
	}
	o.form, o.printer = p.Format, p
	if o.source.DB != "" {
		return o.offline(ctx, p)
	}
	s, err := o.env.Settings()
	if err != nil {
		return err
	}
	if err := o.objects(ctx, func(ctx context.Context) (keyspace.Source, error) { return o.source.Live(ctx, o.env, false) }); err != nil {
		return err
	}
	r := &watchtail.Runner{Form: watchtail.Checkpoint{Selection: o.selected(s.KeyPrefix)}, Render: o.renderer(), UntilRev: o.untilRev, UntilIdle: o.untilIdle}
	w, err := o.stream(ctx, s.KeyPrefix)
	if err != nil {
		return err
	}
	kept, done, err := o.resume(r, w)
	if err != nil {
		return err
	}
	defer done()
	return o.follow(ctx, r, w, func(ctx context.Context) (err error) {
		r.Sink, err = o.sink(ctx, r, p, kept)
		return err
	})
}

// stream says what to follow, from where --from says.
func (o *options) stream(ctx context.Context, keyPrefix string) (*watchtail.Options, error) {
	if err := o.env.Login(); err != nil { // a password is asked for once
		return nil, err
	}
	endpoints, err := o.env.Endpoints(ctx, false)
	if err != nil {
		return nil, err
	}
	open := func(ctx context.Context) (keyspace.Source, error) { return o.source.Live(ctx, o.env, false) }
	return &watchtail.Options{
		Endpoints: endpoints, Dial: o.env.ClientOf, Ranges: o.ranges, Prefix: []byte(keyPrefix), PrevKV: o.previous(), MaxSilence: o.maxSilence,
		From: o.rev, Oldest: o.from == fromOldest, Listed: o.snapshot, BacklogRevs: farBack,
		List: open, Backlog: func(ctx context.Context) (keyspace.HistorySource, error) {
			src, err := open(ctx)
			if err != nil {
				return nil, err
			}
			h, ok := src.(keyspace.HistorySource)
			if !ok {
				return nil, errors.New("this source has no history")
			}
			return h, nil
		},
		ResyncCompacted: o.onCompacted == resync, ResyncDiverged: o.onDiverged == resync, Trouble: o.trouble(),
	}, nil
}

// resume goes on from the checkpoint, where there is one. It returns what that says of the
// output, and what gives the checkpoint back.
func (o *options) resume(r *watchtail.Runner, w *watchtail.Options) (*watchtail.Output, func(), error) {
	if o.checkpoint == "" {
		return nil, func() {}, nil
	}
	f, err := watchtail.LockCheckpoint(o.checkpoint)
	if err != nil {
		return nil, nil, err
	}
	done := func() { _ = f.Close() } // the process ends anyway
	c, damaged, err := f.Load()
	switch {
	case err != nil:
		done()
		return nil, nil, err
	case damaged != nil:
		o.env.Warn("%v; the generation before it is used, of revision %d", damaged, c.Revision)
		r.Damaged = true
	}
	r.Save = f.Save
	if c == nil {
		if o.from == fromCheckpoint {
			done()
			return nil, nil, cli.WithHint(cli.Failf(cli.Checkpoint, "checkpoint %s is not there", o.checkpoint), "leave --from away: then it begins now, and with the checkpoint from the next time on")
		}
		return nil, done, nil
	}
	if c.Selection != r.Form.Selection {
		done()
		return nil, nil, cli.WithHint(cli.Failf(cli.Config, "checkpoint %s is of %s, not of %s", o.checkpoint, c.Selection, r.Form.Selection), "what else was changed meanwhile cannot be known: use another checkpoint and output, or the same keys and format")
	}
	if c.Revision == 0 { // it had not begun
		return c.Output, done, nil
	}
	if o.from != "" && o.from != fromCheckpoint {
		done()
		return nil, nil, cli.WithHint(cli.Usagef("--from %s, and checkpoint %s says to go on behind revision %d", o.from, o.checkpoint, c.Revision), "remove the checkpoint to begin elsewhere")
	}
	r.Resumed = true
	w.From, w.Known, w.Listed, w.Oldest = c.Revision+1, c.History(), false, false
	return c.Output, done, nil
}

func (o *options) sink(ctx context.Context, r *watchtail.Runner, p *output.Printer, kept *watchtail.Output) (watchtail.Sink, error) {
	if o.exec != "" || o.execBatch != "" {
		return &command{ctx: ctx, env: o.env, script: o.exec + o.execBatch, batch: o.execBatch != "", retries: o.retries}, nil
	}
	if o.out == "" {
		return watchtail.NewStream(flushed{p.Out, o.env.Flush}), nil
	}
	f, after, err := watchtail.OpenFile(watchtail.FileOptions{Path: o.out, Parse: o.parser(), RotateBytes: int64(o.rotate), Keep: o.keep}, kept)
	if err != nil {
		return nil, err
	}
	r.After = after
	return f, nil
}

// flushed writes through whatever buffers there are.
type flushed struct {
	io.Writer
	flush func() error
}

func (f flushed) Write(b []byte) (int, error) {
	n, err := f.Writer.Write(b)
	if err == nil {
		err = f.flush()
	}
	return n, err
}

// follow runs until it is told to end.
func (o *options) follow(ctx context.Context, r *watchtail.Runner, w *watchtail.Options, open func(context.Context) error) error {
	ctx, reopen, stop := o.signals(ctx)
	defer stop()
	if o.out != "" {
		r.Reopen = reopen
	}
	ctx, cancel := o.ended(ctx, watchtail.ErrEnough)
	defer cancel()
	if err := open(ctx); err != nil {
		return err
	}
	s := watchtail.Follow(*w)
	r.History = s.History
	report := o.reporter(r)
	stats, err := r.Run(ctx, s.Steps(ctx))
	report(stats)
	if cerr := r.Sink.Close(); err == nil {
		err = cerr
	}
	return o.how(ctx, err)
}

// signals ends what it returns at the first INT or TERM, and at HUP where that does not
// begin a new file. A second one does not end the program before the checkpoint is written.
func (o *options) signals(parent context.Context) (ctx context.Context, reopen <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	ch, hup, done := make(chan os.Signal, 4), make(chan struct{}, 1), make(chan struct{})
	signal.Notify(ch, cli.Caught(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)...)
	ended := parent.Done()
	go func() {
		for {
			select {
			case s := <-ch:
				if s != syscall.SIGHUP || o.out == "" {
					cancel(&cli.SignalError{Signal: s})
					continue
				}
				select {
				case hup <- struct{}{}:
				default: // one is asked for already
				}
			case <-ended:
				ended = nil // of signals it is told above
				var sig *cli.SignalError
				if cause := context.Cause(parent); !errors.As(cause, &sig) {
					cancel(cause)
				}
			case <-done:
				return
			}
		}
	}()
	return ctx, hup, func() {
		if ctx.Err() == nil { // else until the process ends: another one may come late
			signal.Stop(ch)
		}
		close(done)
		cancel(nil)
	}
}

// how turns the end of a run into ours: TERM was asked for, and everything is in order.
func (o *options) how(ctx context.Context, err error) error {
	var sig *cli.SignalError
	if !errors.As(context.Cause(ctx), &sig) {
		o.env.TakeSignals(nil) // a HUP was none that ends us
		return err
	}
	asked := err == nil || errors.Is(err, context.Cause(ctx)) // also of a command that was under way
	switch {
	case asked && sig.Signal == syscall.SIGTERM:
		o.env.TakeSignals(nil)
		return nil
	case asked:
		o.env.TakeSignals(sig.Signal)
		return &cli.ExitError{Code: 1} // the signal is raised again and decides
	}
	o.env.TakeSignals(nil)
	return err
}

// offline gives the history in a file.
func (o *options) offline(ctx context.Context, p *output.Printer) error {
	src, err := o.source.History(ctx, o.env)
	if err != nil {
		return err
	}
	if err := o.objects(ctx, func(context.Context) (keyspace.Source, error) { return src, nil }); err != nil {
		return err
	}
	r := &watchtail.Runner{Render: o.renderer(), UntilRev: o.untilRev}
	if r.Sink, err = o.sink(ctx, r, p, nil); err != nil {
		return err
	}
	_, err = r.Run(ctx, watchtail.Replay(ctx, src, o.ranges, o.rev, o.previous()))
	if cerr := r.Sink.Close(); err == nil {
		err = cerr
	}
	return err
}

// trouble tells of lost connections, once each.
func (o *options) trouble() func(endpoint string, err error) {
	said := ""
	var compacted *keyspace.CompactedError
	var diverged *watchtail.DivergedError
	var note *watchtail.Note
	return func(endpoint string, err error) {
		switch {
		case errors.As(err, &note):
			o.env.Warn("%v", note)
		case errors.As(err, &compacted), errors.As(err, &diverged):
			o.env.Warn("%v; what is there now is listed instead", err)
		case err == nil:
			if said != "" {
				o.env.Say("%s: goes on", endpoint)
			}
			said = ""
		case err.Error() != said:
			said = err.Error()
			o.env.Warn("%s: %v; trying again", endpoint, err)
		}
	}
}

// reporter says every 10 s how it stands, with --stats; what it returns says it at the end.
func (o *options) reporter(r *watchtail.Runner) func(watchtail.Stats) {
	if !o.stats {
		return func(watchtail.Stats) {}
	}
	begin, last := time.Now(), time.Now()
	var before watchtail.Stats
	say := func(s watchtail.Stats, since time.Time, from watchtail.Stats) {
		rate := float64(s.Events-from.Events) / max(time.Since(since).Seconds(), 0.001)
		o.env.Say("revision %d: %d events in %d revisions, %.0f events/s, %d checkpoints", s.Rev, s.Events, s.Revisions, rate, s.Checkpoints)
	}
	r.Each = func(s watchtail.Stats) {
		if time.Since(last) >= 10*time.Second {
			say(s, last, before)
			last, before = time.Now(), s
		}
	}
	return func(s watchtail.Stats) { say(s, begin, watchtail.Stats{}) }
}
