package store_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcdctl-plus/etcdctl-plus/backup/store"
	"github.com/etcdctl-plus/etcdctl-plus/backup/store/storetest"
)

func open(t *testing.T, where string, o store.Options) store.Store {
	t.Helper()
	s, err := store.Open(where, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// leftIn finds temporary files below dir.
func leftIn(dir string) func(context.Context) ([]string, error) {
	return func(context.Context) (left []string, err error) {
		err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if strings.HasPrefix(filepath.Base(path), ".etcdctl-plus-") {
				left = append(left, path)
			}
			if errors.Is(err, fs.ErrNotExist) { // moved meanwhile
				return nil
			}
			return err
		})
		return left, err
	}
}

func folderPlace(t *testing.T) storetest.Place {
	dir := t.TempDir()
	return storetest.Place{
		Open: func() (store.Store, error) { return store.Open(dir, store.Options{}) },
		Left: leftIn(dir), Part: 1 << 20,
	}
}

func TestFolder(t *testing.T) {
	t.Parallel()
	storetest.Run(t, folderPlace)
}

func TestMain(m *testing.M) {
	if dir := os.Getenv("STORE_TEST_VICTIM"); dir != "" {
		victim(dir)
		return
	}
	os.Exit(m.Run())
}
