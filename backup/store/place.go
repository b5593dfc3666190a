package store

import (
	"errors"
	"io/fs"
)

// placeByLink gives the file its name besides the temporary one, then takes that
// away. Killed in between, it leaves both names; the next sweep takes the one away.
func (d *subfolder) placeByLink(tmp, base string) error {
	if err := d.root.Link(tmp, base); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return ErrExists
		}
		return err
	}
	return d.root.Remove(tmp)
}
