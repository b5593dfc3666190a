//go:build unix

package pipeline_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/pipeline"
)

// mapped maps a file of three pages and cuts it to one.
func mapped(t *testing.T) (path string, mem []byte) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "file")
	size := 3 * os.Getpagesize()
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mem, err = unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem) })
	if err := os.Truncate(path, 1); err != nil {
		t.Fatal(err)
	}
	return path, mem
}

var sink byte

func TestGuardNamesTheFile(t *testing.T) {
	path, mem := mapped(t)
	release := pipeline.Mapped(path, mem)
	at := 2*os.Getpagesize() + 5
	read := func() error { sink = mem[at]; return nil }
	err := pipeline.Guard(read)
	var fault *pipeline.FaultError
	// The processor may report the address or only its page.
	if !errors.As(err, &fault) || fault.File != path || fault.Offset > int64(at) || fault.Offset < int64(2*os.Getpagesize()) || !errors.Is(err, keyspace.ErrCorrupt) {
		t.Errorf("error %v", err)
	}
	// Nested: the inner one has it, the outer one goes on.
	err = pipeline.Guard(func() error {
		if inner := pipeline.Guard(read); !errors.As(inner, &fault) {
			t.Errorf("inner: %v", inner)
		}
		sink = mem[0]
		return pipeline.Guard(read)
	})
	if !errors.As(err, &fault) {
		t.Errorf("nested: %v", err)
	}
	// Memory nobody registered is a bug of ours.
	release()
	defer func() {
		if recover() == nil {
			t.Error("a fault elsewhere was swallowed")
		}
	}()
	_ = pipeline.Guard(read)
}
