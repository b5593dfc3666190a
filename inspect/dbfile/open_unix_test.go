//go:build unix

package dbfile_test

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

var errNotDir error = syscall.ENOTDIR

func TestSpecialFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	wantError(t, "pipe", openError(t, fifo), keyspace.ErrNotDatabase, fifo, "a named pipe")
	wantError(t, "device", openError(t, "/dev/zero"), keyspace.ErrNotDatabase, "/dev/zero", "a device")
	if l, err := net.Listen("unix", filepath.Join(dir, "s")); err == nil {
		defer l.Close()
		wantError(t, "socket", openError(t, filepath.Join(dir, "s")), keyspace.ErrNotDatabase, "a socket")
	}
	if err := os.MkdirAll(filepath.Join(dir, "data", "member", "snap", "db"), 0o700); err != nil {
		t.Fatal(err)
	}
	wantError(t, "db is a folder", openError(t, filepath.Join(dir, "data")), keyspace.ErrNotDatabase, "a folder")
}

func TestUnreadable(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("root reads everything")
	}
	path := filepath.Join(t.TempDir(), "db")
	write(t, path, someDatabase(t))
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	wantError(t, "unreadable", openError(t, path), fs.ErrPermission, path)
}
