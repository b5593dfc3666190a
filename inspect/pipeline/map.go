package pipeline

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"runtime/debug"
	"sync"
)

// Options tune Map. The zero value is right for records of a few hundred bytes.
type Options struct {
	Workers int // goroutines that work; 0: one a core
	Batch   int // items a batch; 0: 128
	Ahead   int // batches in flight, waiting or done; 0: four a worker
}

func (o Options) withDefaults() Options {
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.Batch <= 0 {
		o.Batch = 128
	}
	if o.Ahead <= 0 {
		o.Ahead = 4 * o.Workers
	}
	o.Ahead = max(o.Ahead, o.Workers)
	return o
}

// job is one batch on its way: filled by the reader, answered by one worker,
// taken by the consumer in the order the reader made them.
type job[In, Out any] struct {
	batch []In
	// err is the input's own error; such a job has no batch and needs no worker.
	err  error
	done chan result[Out]
}

type result[Out any] struct {
	out      Out
	err      error
	panicked *workerPanic
}

type workerPanic struct {
	value any
	stack []byte
}

// Map reads in, hands batches of it to workers, and yields their answers in the
// order of the input. It starts no more work once an answer, or the input, is an
// error: that error comes at its place in the order and ends the iteration.
//
// work is called by several goroutines at once. It must not keep the batch, which
// is used again, but may keep what the items point to as long as their source
// allows. At most Options.Ahead batches and answers are in memory.
//
// Cancelling ctx, an error, or a consumer that stops early ends all goroutines;
// Map's iteration returns only after the last one has, so the source may be
// closed right behind it. A fault in a mapped file becomes a *FaultError; any
// other panic in work or in the input is raised again in the consumer.
func Map[In, Out any](ctx context.Context, in iter.Seq2[In, error], o Options, work func(context.Context, []In) (Out, error)) iter.Seq2[Out, error] {
	o = o.withDefaults()
	return func(yield func(Out, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		var (
			running sync.WaitGroup
			jobs    = make(chan *job[In, Out], o.Ahead)
			order   = make(chan *job[In, Out], o.Ahead)
			free    = make(chan []In, o.Ahead+o.Workers)
		)
		defer running.Wait()
		defer cancel()

		running.Add(1 + o.Workers)
		go func() {
			defer running.Done()
			defer close(jobs)
			defer close(order)
			read(ctx, in, o.Batch, jobs, order, free)
		}()
		for range o.Workers {
			go func() {
				defer running.Done()
				for j := range jobs {
					j.done <- run(ctx, j.batch, work)
					clear(j.batch)
					select {
					case free <- j.batch[:0]:
					default:
					}
				}
			}()
		}
		deliver(ctx, order, yield)
	}
}

// read fills batches from in until it ends, fails or ctx is done.
func read[In, Out any](ctx context.Context, in iter.Seq2[In, error], size int, jobs, order chan<- *job[In, Out], free <-chan []In) {
	put := func(j *job[In, Out]) bool {
		// The order queue first: its length is what bounds the batches in flight.
		select {
		case order <- j:
		case <-ctx.Done():
			return false
		}
		if j.batch == nil {
			return true
		}
		jobs <- j // never blocks for long: as wide as order, and workers always drain it
		return true
	}
	fail := func(r result[Out]) {
		j := &job[In, Out]{err: r.err, done: make(chan result[Out], 1)}
		j.done <- r
		put(j)
	}
	fresh := func() []In {
		select {
		case b := <-free:
			return b
		default:
			return make([]In, 0, size)
		}
	}
	batch := fresh()
	flush := func() bool {
		if len(batch) == 0 {
			return true
		}
		j := &job[In, Out]{batch: batch, done: make(chan result[Out], 1)}
		batch = fresh()
		return put(j)
	}
	r := capture(func() (out Out, err error) {
		for item, err := range in {
			if err != nil {
				return out, err
			}
			batch = append(batch, item)
			if len(batch) == size && !flush() {
				return out, nil // ctx is done; deliver says so
			}
		}
		return out, nil
	})
	if !flush() {
		return
	}
	if r.err != nil || r.panicked != nil {
		fail(r)
	}
}

func run[In, Out any](ctx context.Context, batch []In, work func(context.Context, []In) (Out, error)) result[Out] {
	if err := ctx.Err(); err != nil {
		return result[Out]{err: err}
	}
	return capture(func() (Out, error) { return work(ctx, batch) })
}

// capture calls fn, turns a fault into an error and keeps any other panic for
// the consumer.
func capture[Out any](fn func() (Out, error)) (r result[Out]) {
	defer func() {
		if p := recover(); p != nil {
			r.panicked = &workerPanic{value: p, stack: debug.Stack()}
		}
	}()
	r.err = Guard(func() (err error) {
		r.out, err = fn()
		return err
	})
	return r
}

func deliver[In, Out any](ctx context.Context, order <-chan *job[In, Out], yield func(Out, error) bool) {
	var none Out
	for {
		var j *job[In, Out]
		select {
		case next, more := <-order:
			if !more {
				if err := ctx.Err(); err != nil {
					yield(none, err)
				}
				return
			}
			j = next
		case <-ctx.Done():
			yield(none, ctx.Err())
			return
		}
		r := <-j.done // a worker answers every job, at once when ctx is done
		switch {
		case r.panicked != nil:
			panic(fmt.Sprintf("%v\n\nin a worker:\n%s", r.panicked.value, r.panicked.stack))
		case r.err != nil:
			yield(none, r.err)
			return
		case !yield(r.out, nil):
			return
		}
	}
}
