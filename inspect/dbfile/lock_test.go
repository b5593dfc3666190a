//go:build unix

package dbfile_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sandbox"
)

func TestLockedFile(t *testing.T) {
	t.Parallel()
	path := manyRecords(t)
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoFreelistSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	wantError(t, "locked", openError(t, path), keyspace.ErrLocked, path, "running etcd")
	// A copy may be had all the same.
	s := open(t, path, dbfile.Options{Copy: true, TempDir: t.TempDir()})
	if n := len(records(t, s, keyspace.All())); n != 3998 {
		t.Errorf("%d records in the copy", n)
	}
}

// A reader, be it in the middle of a read, must never keep etcd from starting. It
// is the reader that gives up when etcd then writes.
func TestWriterIsNotHeldUp(t *testing.T) {
	t.Parallel()
	path := manyRecords(t)
	s := open(t, path, dbfile.Options{})
	var db *bolt.DB
	n := 0
	var last error
	for _, err := range s.Records(t.Context(), keyspace.All()) {
		if err != nil {
			last = err
			break
		}
		if n++; n != 1 {
			continue
		}
		var err error
		if db, err = bolt.Open(path, 0o600, &bolt.Options{Timeout: time.Second, NoFreelistSync: true}); err != nil {
			t.Fatalf("the file cannot be opened for writing while it is read: %v", err)
		}
		defer db.Close()
	}
	if last == nil {
		// Opening alone may leave the file as it is.
		for _, last = range s.Records(t.Context(), keyspace.All()) {
			if last != nil {
				t.Fatalf("nothing was written, yet: %v", last)
			}
		}
	}
	if err := db.Update(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("meta")).Put([]byte("consistent_index"), make([]byte, 8))
	}); err != nil {
		t.Fatal(err)
	}
	var changed *dbfile.ChangedError
	for _, err := range s.Records(t.Context(), keyspace.All()) {
		if !errors.As(err, &changed) || !errors.Is(err, keyspace.ErrLocked) {
			t.Errorf("records after a write: %v", err)
		}
		break
	}
	if _, err := s.Info(t.Context()); !errors.As(err, &changed) {
		t.Errorf("Info after a write: %v", err)
	}
}

// The folder of an etcd that runs and is written to: refused, and copied as one
// consistent state.
func TestRunningEtcd(t *testing.T) {
	t.Parallel()
	run, err := sandbox.Start(t.Context(), sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	c, err := run.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, stop := context.WithCancel(t.Context())
	written := make(chan error, 1)
	defer func() {
		stop()
		if err := <-written; err != nil {
			t.Error(err)
		}
	}()
	ready := make(chan struct{})
	go func() {
		defer close(written)
		for i := 0; ctx.Err() == nil; i++ {
			v := fmt.Sprint(i)
			_, err := c.Txn(t.Context()).Then(clientv3.OpPut("left", v), clientv3.OpPut("right", v), clientv3.OpPut("filler/"+fmt.Sprint(i%500), v)).Commit()
			if err != nil {
				written <- err
				return
			}
			if i == 500 {
				close(ready)
			}
		}
	}()
	<-ready
	time.Sleep(150 * time.Millisecond) // etcd writes its batches every 100 ms
	_, err = dbfile.Open(t.Context(), run.DataDir(), dbfile.Options{})
	wantError(t, "running", err, keyspace.ErrLocked, filepath.Join("member", "snap", "db"))
	for range 5 {
		s := open(t, run.DataDir(), dbfile.Options{Copy: true, TempDir: t.TempDir()})
		if err := s.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		l, r := records(t, s, keyspace.One([]byte("left"))), records(t, s, keyspace.One([]byte("right")))
		if len(l) != 1 || len(r) != 1 || string(l[0].Value) != string(r[0].Value) || l[0].ModRev != r[0].ModRev {
			t.Errorf("left %+v, right %+v", l, r)
		}
		s.Close()
	}
}

// A file that is committed to a thousand times a second is copied whole or not at
// all.
func TestCopyOfBusyFile(t *testing.T) {
	t.Parallel()
	path := manyRecords(t)
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoFreelistSync: true, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(stopped)
		// Records move from one place to another, over pages that were free.
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			err := db.Update(func(tx *bolt.Tx) error {
				b := tx.Bucket([]byte("key"))
				c := b.Cursor()
				for k, v := c.Seek(revKey(keyspace.Revision{Main: int64(2 + i*37%3500)})); k != nil && i%40 < 38; k, v = c.Next() {
					return b.Put(append([]byte(nil), k...), append([]byte(nil), v...))
				}
				return nil
			})
			if err != nil {
				stopped <- err
				return
			}
			if i%200 == 0 {
				time.Sleep(3 * time.Millisecond)
			}
		}
	}()
	defer func() {
		close(stop)
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	}()
	copied, refused := 0, 0
	for range 15 {
		s, err := dbfile.Open(t.Context(), path, dbfile.Options{Copy: true, TempDir: t.TempDir()})
		var changed *dbfile.ChangedError
		if errors.As(err, &changed) {
			refused++
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Check(t.Context()); err != nil {
			t.Errorf("a copy is damaged: %v", err)
		}
		if n := len(records(t, s, keyspace.All())); n != 3998 {
			t.Errorf("a copy has %d records", n)
		}
		s.Close()
		copied++
	}
	t.Logf("%d copied, %d refused", copied, refused)
}
