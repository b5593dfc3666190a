package place

import (
	"fmt"
	"os"
	"path/filepath"
)

// PrivateDir returns a folder below parent ("": the system's for temporary files) that is
// this user's alone, and makes it when it is not there. It stays: files in it have names
// that the next run of the same work finds again.
func PrivateDir(parent string) (string, error) {
	if parent == "" {
		parent = os.TempDir()
	}
	dir := filepath.Join(parent, fmt.Sprintf("etcdctl-plus-%d", os.Getuid()))
	if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
		return "", err
	}
	st, err := os.Lstat(dir) // a link there would be somebody else's trap
	if err != nil {
		return "", err
	}
	if !st.IsDir() || !private(st) {
		return "", &os.PathError{Op: "use", Path: dir, Err: fmt.Errorf("it is no folder of this user's alone (name another place with --dir or TMPDIR): %w", os.ErrPermission)}
	}
	return dir, nil
}
