package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/pipeline"
)

var errInput = errors.New("input broke")

// numbers yields 0 to n-1, then err if it is not nil.
func numbers(n int, err error) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		for i := range n {
			if !yield(i, nil) {
				return
			}
		}
		if err != nil {
			yield(0, err)
		}
	}
}

func double(_ context.Context, in []int) ([]int, error) {
	time.Sleep(time.Duration(rand.IntN(200)) * time.Microsecond)
	out := make([]int, len(in))
	for i, x := range in {
		out[i] = 2 * x
	}
	return out, nil
}

// settled fails the test if goroutines of Map are still there.
func settled(t *testing.T, before int) {
	t.Helper()
	for range 200 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), before)
}

func TestMapKeepsOrder(t *testing.T) {
	before := runtime.NumGoroutine()
	for _, n := range []int{0, 1, 127, 128, 129, 5000} {
		for _, workers := range []int{0, 1, 7} {
			want := 0
			for out, err := range pipeline.Map(t.Context(), numbers(n, nil), pipeline.Options{Workers: workers, Batch: 16}, double) {
				if err != nil {
					t.Fatal(err)
				}
				for _, x := range out {
					if x != 2*want {
						t.Fatalf("%d items, %d workers: got %d at place %d", n, workers, x, want)
					}
					want++
				}
			}
			if want != n {
				t.Errorf("%d items, %d workers: %d came out", n, workers, want)
			}
		}
	}
	settled(t, before)
}

// An error comes where it belongs: behind all that was before it.
func TestMapErrors(t *testing.T) {
	before := runtime.NumGoroutine()
	n := 0
	var last error
	for out, err := range pipeline.Map(t.Context(), numbers(1000, errInput), pipeline.Options{Batch: 7}, double) {
		if last = err; err == nil {
			n += len(out)
		}
	}
	if n != 1000 || !errors.Is(last, errInput) {
		t.Errorf("input: %d items, then %v", n, last)
	}
	errWork := errors.New("work broke")
	n, last = 0, nil
	for out, err := range pipeline.Map(t.Context(), numbers(100_000, nil), pipeline.Options{Batch: 10}, func(ctx context.Context, in []int) ([]int, error) {
		if in[0] == 500 {
			return nil, errWork
		}
		return double(ctx, in)
	}) {
		if last = err; err == nil {
			n += len(out)
		}
	}
	if n != 500 || !errors.Is(last, errWork) {
		t.Errorf("work: %d items, then %v", n, last)
	}
	settled(t, before)
}

func TestMapStops(t *testing.T) {
	before := runtime.NumGoroutine()
	read := 0
	endless := func(yield func(int, error) bool) {
		for yield(read, nil) {
			read++
		}
	}
	n := 0
	for range pipeline.Map(t.Context(), endless, pipeline.Options{Workers: 2, Batch: 10, Ahead: 4}, double) {
		if n++; n == 3 {
			break
		}
	}
	// Three batches taken, at most four ahead, one being filled, one in the queue's door.
	if read > 10*(3+4+2) {
		t.Errorf("%d items were read for 3 batches of 10", read)
	}
	settled(t, before)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for _, err := range pipeline.Map(ctx, endless, pipeline.Options{Batch: 10}, double) {
		cancel()
		last = err
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("after cancel: %v", last)
	}
	settled(t, before)
}

// A slow consumer does not make the rest pile up.
func TestMapIsBounded(t *testing.T) {
	before := runtime.NumGoroutine()
	var made, taken, most atomic.Int64
	for range pipeline.Map(t.Context(), numbers(2000, nil), pipeline.Options{Workers: 3, Batch: 5, Ahead: 6}, func(context.Context, []int) (int, error) {
		if ahead := made.Add(1) - taken.Load(); ahead > most.Load() {
			most.Store(ahead)
		}
		return 0, nil
	}) {
		taken.Add(1)
		time.Sleep(50 * time.Microsecond)
	}
	if most.Load() > 8 {
		t.Errorf("%d answers at once, want about 6", most.Load())
	}
	settled(t, before)
}

func TestMapPanics(t *testing.T) {
	before := runtime.NumGoroutine()
	for name, run := range map[string]func(){
		"work": func() {
			for range pipeline.Map(t.Context(), numbers(1000, nil), pipeline.Options{Batch: 3}, func(_ context.Context, in []int) (int, error) {
				if in[0] > 100 {
					panic("a bug in work")
				}
				return 0, nil
			}) {
			}
		},
		"input": func() {
			in := func(yield func(int, error) bool) { yield(1, nil); panic("a bug in input") }
			for range pipeline.Map(t.Context(), in, pipeline.Options{}, double) {
			}
		},
		"loop": func() {
			for range pipeline.Map(t.Context(), numbers(1000, nil), pipeline.Options{}, double) {
				panic("a bug in loop")
			}
		},
	} {
		func() {
			defer func() {
				if p := fmt.Sprint(recover()); !strings.Contains(p, "a bug in "+name) {
					t.Errorf("%s: panic %q", name, p)
				}
			}()
			run()
			t.Errorf("%s: no panic", name)
		}()
	}
	settled(t, before)
}

// Other panics than faults in a mapped file are not Guard's business.
func TestGuardPassesPanics(t *testing.T) {
	for name, bug := range map[string]func(){
		"nil":    func() { var p *int; *p = 1 },
		"index":  func() { a := []int{}; i := 3; a[i]++ },
		"string": func() { panic("a bug") },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: Guard swallowed it", name)
				}
			}()
			_ = pipeline.Guard(func() error { bug(); return nil })
		}()
	}
	if err := pipeline.Guard(func() error { return errInput }); !errors.Is(err, errInput) {
		t.Errorf("error %v", err)
	}
}

func BenchmarkMap(b *testing.B) {
	n := 0
	for _, err := range pipeline.Map(b.Context(), numbers(b.N, nil), pipeline.Options{}, func(_ context.Context, in []int) (int, error) { return len(in), nil }) {
		if err != nil {
			b.Fatal(err)
		}
		n++
	}
}
