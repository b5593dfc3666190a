//go:build !linux

package place

// Rename moves a file or folder to a name that is free; an error wraps fs.ErrExist when
// it is not. Folders are renamed after a look, files by a second link.
func Rename(from, to string) error { return renameElse(from, to) }
