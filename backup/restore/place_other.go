//go:build !linux

package restore

func renameNew(from, to string) error { return renameChecked(from, to) }
