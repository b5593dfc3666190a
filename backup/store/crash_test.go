package store_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/etcdctl-plus/etcdctl-plus/backup/store"
	"github.com/etcdctl-plus/etcdctl-plus/backup/store/storetest"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("STORE_TEST_VICTIM"); dir != "" {
		fmt.Println(victim(dir))
		return
	}
	os.Exit(m.Run())
}

// victim is what a process of its own does until it is killed: it holds the lock,
// says so, and puts one object after the other.
func victim(dir string) error {
	ctx := context.Background()
	s, err := store.Open(dir, store.Options{})
	if err != nil {
		return err
	}
	if _, err := s.Lock(ctx, "lock", store.LockOptions{TTL: time.Hour}); err != nil {
		return err
	}
	fmt.Println("running")
	for i := 0; ; i++ {
		b := bytes.Repeat(fmt.Appendf(nil, "%08d", i), 1<<16)
		if err := s.Put(ctx, fmt.Sprintf("objects/%d-%d", os.Getpid(), i), slow{bytes.NewReader(b)}, int64(len(b)), sha256.Sum256(b), store.PutOptions{}); err != nil {
			return err
		}
	}
}

// slow leaves a Put under way most of the time.
type slow struct{ io.ReaderAt }

func (s slow) ReadAt(b []byte, off int64) (int, error) {
	time.Sleep(time.Millisecond)
	return s.ReaderAt.ReadAt(b, off)
}

// TestKilled kills a writer, again and again: what is listed is whole, the lock of
// a dead process is taken over at once although it would last an hour, and the
// next Put removes what the dead ones left.
func TestKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	seen := 0
	for range 20 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "STORE_TEST_VICTIM="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line := make([]byte, 200)
		n, _ := out.Read(line)
		if got := string(line[:n]); got != "running\n" {
			_ = cmd.Process.Kill()
			t.Fatalf("the writer says %q", got)
		}
		time.Sleep(rand.N(20 * time.Millisecond))
		s := open(t, dir, store.Options{})
		_, err = s.Lock(t.Context(), "lock", store.LockOptions{})
		var held *store.LockedError
		if !errors.As(err, &held) || held.Owner.PID != cmd.Process.Pid {
			t.Errorf("the lock of process %d: %v", cmd.Process.Pid, err)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed
		left, err := leftIn(dir)(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		seen += len(left)
		whole(t, s)
	}
	if seen < 5 {
		t.Errorf("only %d of 20 writers were killed at work: this shows nothing", seen)
	}
	s := open(t, dir, store.Options{})
	l, err := s.Lock(t.Context(), "lock", store.LockOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(); err != nil {
		t.Error(err)
	}
	if err := put(t, s, "objects/next", "x", store.PutOptions{}); err != nil {
		t.Error(err)
	}
	if left, err := leftIn(dir)(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("still there: %q, %v", left, err)
	}
}

func whole(t *testing.T, s store.Store) {
	t.Helper()
	names, err := storetest.Names(t.Context(), s, "objects/")
	if err != nil {
		t.Error(err)
	}
	for _, name := range names {
		b, err := storetest.Get(t.Context(), s, name)
		_, i, _ := strings.Cut(filepath.Base(name), "-")
		if want := strings.Repeat(fmt.Sprintf("%08s", i), 1<<16); err != nil || string(b) != want {
			t.Errorf("%s is %d bytes, %v", name, len(b), err)
		}
	}
}
