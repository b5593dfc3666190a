package dbfile_test

import "io/fs"

var errNotDir = fs.ErrNotExist
