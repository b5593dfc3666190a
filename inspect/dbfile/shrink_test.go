//go:build unix

package dbfile_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/pipeline"
)

// manyRecords makes a file of about 2 MB.
func manyRecords(t *testing.T) string {
	t.Helper()
	var all []keyspace.Event
	for rev := int64(2); rev < 4000; rev++ {
		rec := keyspace.Record{Key: fmt.Appendf(nil, "key-%05d", rev), Value: []byte(strings.Repeat("v", 300)), CreateRev: rev, ModRev: rev, Version: 1}
		all = append(all, keyspace.Event{Rev: keyspace.Revision{Main: rev}, Record: rec})
	}
	b := build(t, 4096)
	b.events(all)
	return b.done()
}

// A file that is cut short while it is read ends the read, not the process.
func TestCutWhileRead(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{0, 4096, 5000, 100_000} {
		for name, read := range map[string]func(*dbfile.Source) error{
			"records": func(s *dbfile.Source) error { return cutDuring(s.Records(t.Context(), keyspace.All()), s.Path(), size) },
			"events":  func(s *dbfile.Source) error { return cutDuring(s.Events(t.Context(), whole), s.Path(), size) },
			"info": func(s *dbfile.Source) error {
				if err := os.Truncate(s.Path(), size); err != nil {
					return err
				}
				_, err := s.Info(t.Context())
				return err
			},
			"check": func(s *dbfile.Source) error {
				if err := os.Truncate(s.Path(), size); err != nil {
					return err
				}
				return s.Check(t.Context())
			},
		} {
			path := manyRecords(t)
			s := open(t, path, dbfile.Options{})
			err := read(s)
			if !errors.Is(err, keyspace.ErrCorrupt) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s, cut to %d: %v", name, size, err)
			}
		}
	}
}

// cutDuring cuts the file after the first item.
func cutDuring[T any](seq func(func(T, error) bool), path string, size int64) error {
	first := true
	for _, err := range seq {
		if err != nil {
			return err
		}
		if first {
			first = false
			if err := os.Truncate(path, size); err != nil {
				return err
			}
		}
	}
	return nil
}

// The loop's body looks at bytes that are gone: Guard around the loop makes that
// an error too, in the caller's goroutine and in the workers of Map.
func TestCutUnderTheConsumer(t *testing.T) {
	t.Parallel()
	s := open(t, manyRecords(t), dbfile.Options{})
	sum := 0
	err := pipeline.Guard(func() error {
		for r, err := range s.Records(t.Context(), keyspace.All()) {
			if err != nil {
				return err
			}
			if err := os.Truncate(s.Path(), 0); err != nil {
				return err
			}
			for _, b := range r.Value {
				sum += int(b)
			}
		}
		return nil
	})
	var fault *pipeline.FaultError
	if !errors.As(err, &fault) || fault.File != s.Path() || fault.Offset <= 0 || !errors.Is(err, keyspace.ErrCorrupt) {
		t.Errorf("in the body: %v", err)
	}

	s = open(t, manyRecords(t), dbfile.Options{})
	cut := false
	for _, err := range pipeline.Map(t.Context(), s.Records(t.Context(), keyspace.All()), pipeline.Options{Workers: 2, Batch: 16}, func(_ context.Context, rs []keyspace.Record) (int, error) {
		sum := 0
		for _, r := range rs {
			for _, b := range r.Value {
				sum += int(b)
			}
		}
		return sum, nil
	}) {
		if !cut {
			cut = true
			if err := os.Truncate(s.Path(), 0); err != nil {
				t.Fatal(err)
			}
		}
		if err != nil {
			if !errors.Is(err, keyspace.ErrCorrupt) {
				t.Errorf("in a worker: %v", err)
			}
			return
		}
	}
	t.Error("in a worker: no error")
}
