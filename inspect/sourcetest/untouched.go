package sourcetest

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

type fileState struct {
	bytes []byte
	mode  fs.FileMode
	mod   time.Time
}

// Untouched proves that the test leaves path, a file or a whole folder, as it is:
// when the test ends, its files are the same ones with the same bytes, mode and
// time of change.
func Untouched(tb testing.TB, path string) {
	tb.Helper()
	before := stateOf(tb, path)
	// The times are set back, so that a write within the clock's resolution shows.
	past := time.Now().Add(-time.Hour).Truncate(time.Second)
	for name, s := range before {
		if err := os.Chtimes(name, past, past); err != nil {
			tb.Fatal(err)
		}
		s.mod = past
		before[name] = s
	}
	tb.Cleanup(func() {
		after := stateOf(tb, path)
		for name, b := range before {
			a, ok := after[name]
			switch {
			case !ok:
				tb.Errorf("%s is gone", name)
			case !bytes.Equal(a.bytes, b.bytes):
				tb.Errorf("%s has other bytes", name)
			case !a.mod.Equal(b.mod):
				tb.Errorf("%s was written to: modified %v, before %v", name, a.mod, b.mod)
			case a.mode != b.mode:
				tb.Errorf("%s has mode %v, before %v", name, a.mode, b.mode)
			}
		}
		for name := range after {
			if _, ok := before[name]; !ok {
				tb.Errorf("%s was left behind", name)
			}
		}
	})
}

func stateOf(tb testing.TB, path string) map[string]fileState {
	tb.Helper()
	states := map[string]fileState{}
	err := filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		b, err := os.ReadFile(name)
		states[name] = fileState{bytes: b, mode: info.Mode(), mod: info.ModTime()}
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return states
}
