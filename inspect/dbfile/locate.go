package dbfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// locate finds the database file behind path: path itself, or in a folder the
// places where etcd keeps it. walDir is the write-ahead log's folder when the
// file lies in a member's folder, else empty. folder tells that path is one.
func locate(path string) (file, walDir string, folder bool, err error) {
	st, err := os.Stat(path)
	if err != nil {
		return "", "", false, fmt.Errorf("open database: %w", err)
	}
	if !st.IsDir() {
		if kind := special(st.Mode()); kind != "" {
			return "", "", false, &NotDatabaseError{Path: path, What: kind}
		}
		return path, walBeside(path), false, nil
	}
	for _, sub := range []string{
		filepath.Join("member", "snap", "db"), // a data folder
		filepath.Join("snap", "db"),           // its member folder
		"db",                                  // its snap folder
	} {
		file := filepath.Join(path, sub)
		st, err := os.Stat(file)
		switch {
		case err == nil && st.Mode().IsRegular():
			return file, walBeside(file), true, nil
		case err == nil:
			return "", "", false, &NotDatabaseError{Path: file, What: special(st.Mode())}
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR):
			return "", "", false, fmt.Errorf("open database: %w", err)
		}
	}
	return "", "", false, &NotDatabaseError{
		Path: path,
		What: "a folder without member/snap/db",
		Hint: "give a snapshot file, a member's db file or etcd's data folder",
	}
}

// walBeside returns the folder with the write-ahead log that belongs to the
// member's file, if there is one.
func walBeside(file string) string {
	abs, err := filepath.Abs(file)
	if err != nil || filepath.Base(abs) != "db" || filepath.Base(filepath.Dir(abs)) != "snap" {
		return ""
	}
	wal := filepath.Join(filepath.Dir(filepath.Dir(abs)), "wal")
	if st, err := os.Stat(wal); err != nil || !st.IsDir() {
		return ""
	}
	return wal
}

// special names the kind of a file that is not a regular one; empty for those.
func special(m fs.FileMode) string {
	switch {
	case m.IsRegular():
		return ""
	case m.IsDir():
		return "a folder"
	case m&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	default:
		return "not a regular file"
	}
}
