//go:build unix

package config

import (
	"os"
	"syscall"
	"testing"
)

func owner(t *testing.T, path string) (uid, gid uint32) {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	s := st.Sys().(*syscall.Stat_t)
	return s.Uid, s.Gid
}
