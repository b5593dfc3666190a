package dbfile

import (
	"bytes"
	"unicode/utf8"
)

// tarMark stands at tarMarkAt in the header of a tar archive's first file.
const (
	tarMark   = "ustar"
	tarMarkAt = 257
)

// isTar tells a tar archive by its first header.
func isTar(head []byte) bool {
	return !hasMagic(head) && len(head) >= tarMarkAt+len(tarMark) && string(head[tarMarkAt:tarMarkAt+len(tarMark)]) == tarMark
}

// foreign says what the first bytes of a file without bbolt's mark look like,
// and what to do with it.
func foreign(head []byte) (what, hint string) {
	for _, f := range []struct {
		at          int
		mark        string
		what, unzip string
	}{
		{0, "\x1f\x8b", "a gzip archive", "gunzip"},
		{0, "\x28\xb5\x2f\xfd", "a zstd archive", "unzstd"},
		{0, "\xfd7zXZ\x00", "an xz archive", "unxz"},
		{0, "BZh", "a bzip2 archive", "bunzip2"},
		{0, "\x04\x22\x4d\x18", "an lz4 archive", "unlz4"},
		{0, "PK\x03\x04", "a zip archive", "unzip"},
		{tarMarkAt, tarMark, "a tar archive", "tar -x"},
		{0, "age-encryption.org/", "encrypted with age", "age -d"},
		{0, "-----BEGIN AGE", "encrypted with age", "age -d"},
		{0, "SQLite format 3\x00", "an SQLite database", ""},
		{0, "\x7fELF", "an executable", ""},
	} {
		if len(head) < f.at+len(f.mark) || string(head[f.at:f.at+len(f.mark)]) != f.mark {
			continue
		}
		if f.unzip != "" {
			hint = "unpack it first, with " + f.unzip
		}
		return f.what, hint
	}
	switch {
	case len(bytes.Trim(head, "\x00")) == 0:
		return "full of zeros", "its beginning was never written; look for another copy"
	case utf8.Valid(head[:max(0, len(head)-utf8.UTFMax)]) && bytes.IndexByte(head, 0) < 0:
		return "text", ""
	}
	return "of an unknown kind", ""
}
