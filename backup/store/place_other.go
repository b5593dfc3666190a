//go:build !linux

package store

// place moves a file to its name in one step and replaces nothing: ErrExists.
func (d *subfolder) place(tmp, base string) error { return d.placeByLink(tmp, base) }
