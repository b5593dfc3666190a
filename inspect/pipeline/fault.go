package pipeline

import (
	"fmt"
	"runtime/debug"
	"sync"
	"unsafe"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// FaultError says that memory mapped from a file could not be read: the file
// became shorter after it was opened, or its disk failed. It wraps
// keyspace.ErrCorrupt.
type FaultError struct {
	File   string
	Offset int64 // where in the file, in bytes
}

func (e *FaultError) Error() string {
	return fmt.Sprintf("read %s at byte %d: the file was cut short, or its disk failed, while it was read", e.File, e.Offset)
}

// Unwrap makes errors.Is(err, keyspace.ErrCorrupt) true.
func (e *FaultError) Unwrap() error { return keyspace.ErrCorrupt }

type region struct {
	name       string
	start, end uintptr
}

var mapped struct {
	sync.Mutex
	regions map[*region]struct{}
}

// Mapped makes memory that is mapped from the file called name known to Guard,
// which can then tell a file that shrank from a bug of ours. Call release before
// the memory is unmapped.
func Mapped(name string, mem []byte) (release func()) {
	if len(mem) == 0 {
		return func() {}
	}
	start := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	r := &region{name: name, start: start, end: start + uintptr(len(mem))}
	mapped.Lock()
	defer mapped.Unlock()
	if mapped.regions == nil {
		mapped.regions = map[*region]struct{}{}
	}
	mapped.regions[r] = struct{}{}
	return func() {
		mapped.Lock()
		defer mapped.Unlock()
		delete(mapped.regions, r)
	}
}

// Guard runs fn and returns its error, or a *FaultError when fn touched memory
// of a mapped file that is no longer there. Without it such an access ends the
// whole process.
//
// The protection covers fn in the calling goroutine only: whoever hands records
// of a file to goroutines of their own wraps the work there too (Map does).
// Around a range loop, Guard goes outside: a fault in the loop's body unwinds
// through the iterator. Calls may be nested. Every other panic passes through.
func Guard(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			fault := asFault(r)
			if fault == nil {
				panic(r)
			}
			err = fault
		}
	}()
	return fn()
}

// asFault returns the error for a panic that is a fault in a mapped file.
func asFault(panicked any) error {
	// The runtime gives only faults this method, never a nil dereference.
	fault, ok := panicked.(interface {
		error
		Addr() uintptr
	})
	if !ok {
		return nil
	}
	addr := fault.Addr()
	mapped.Lock()
	defer mapped.Unlock()
	for r := range mapped.regions {
		if addr >= r.start && addr < r.end {
			return &FaultError{File: r.name, Offset: int64(addr - r.start)}
		}
	}
	return nil
}
