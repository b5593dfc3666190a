package store_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/etcdctl-plus/etcdctl-plus/backup/store"
)

// victim is what a process of its own does until it is killed: it holds the lock,
// says so, and puts one object after the other.
func victim(dir string) {
	ctx := context.Background()
	s, err := store.Open(dir, store.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	if os.Getenv("STORE_TEST_LOCK") != "" {
		if _, err := s.Lock(ctx, "lock", store.LockOptions{TTL: time.Hour}); err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println("running")
	for i := 0; ; i++ {
		b := bytes.Repeat(fmt.Appendf(nil, "%08d", i), 1<<15)
		src := slow{bytes.NewReader(b)}
		if err := s.Put(ctx, fmt.Sprintf("objects/%d-%d", os.Getpid(), i), src, int64(len(b)), sha256.Sum256(b), store.PutOptions{}); err != nil {
			fmt.Println(err)
			return
		}
	}
}

// slow leaves a Put under way most of the time.
type slow struct{ io.ReaderAt }

func (s slow) ReadAt(b []byte, off int64) (int, error) {
	time.Sleep(2 * time.Millisecond)
	return s.ReaderAt.ReadAt(b, off)
}
