package store

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"crypto/rand"
	"encoding/hex"
	"hash/fnv"
)

// What every store takes: a file system's limit of a name, and what is left of S3's
// 1024 bytes for a prefix.
const (
	maxSegment = 200
	maxName    = 768
)

// ours begins the names that this program uses for what is not finished.
const ours = ".etcdctl-plus-"

// CheckName tells whether every store takes name for an object: segments of up to
// 200 bytes joined by "/", 768 bytes in all, UTF-8 without control characters and
// backslashes. No segment is empty, "." or "..", or begins as our temporary files do.
// The error is ErrName.
func CheckName(name string) error {
	switch {
	case name == "":
		return asf(ErrName, "it is empty")
	case len(name) > maxName:
		return asf(ErrName, "it is longer than %d bytes", maxName)
	case !utf8.ValidString(name):
		return asf(ErrName, "%q is not UTF-8", name)
	case strings.ContainsFunc(name, unicode.IsControl), strings.Contains(name, `\`):
		return asf(ErrName, "%q holds a control character or a backslash", name)
	}
	for seg := range strings.SplitSeq(name, "/") {
		switch {
		case seg == "", seg == ".", seg == "..":
			return asf(ErrName, "%q has the segment %q", name, seg)
		case len(seg) > maxSegment:
			return asf(ErrName, "a segment is longer than %d bytes", maxSegment)
		case strings.HasPrefix(seg, ours):
			return asf(ErrName, "%q is reserved for what is not finished", seg)
		}
	}
	return nil
}

// partName is a temporary name: it tells the host, and nobody has it yet.
func partName() string { return ours + hostTag() + "-" + token() + ".part" }

// partOf returns the host of a temporary name.
func partOf(base string) (host string, ok bool) {
	rest, ok := strings.CutPrefix(base, ours)
	if !ok {
		return "", false
	}
	rest, ok = strings.CutSuffix(rest, ".part")
	if !ok || len(rest) != 8+1+32 || rest[8] != '-' || !isHex(rest[:8]) || !isHex(rest[9:]) {
		return "", false
	}
	return rest[:8], true
}

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

func hostTag() string {
	h := fnv.New32a()
	h.Write([]byte(hostname()))
	return fmt.Sprintf("%08x", h.Sum32())
}

func hostname() string {
	h, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return h
}

// token is 16 random bytes in hex.
func token() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// filePath is the path of what stands behind file://.
func filePath(rest string) (string, error) {
	bad := func(why error) error {
		return &Error{Op: "open", Store: "file://" + rest, Kind: ErrConfig, Err: why}
	}
	path := strings.TrimPrefix(rest, "localhost")
	if !strings.HasPrefix(path, "/") {
		return "", bad(errors.New("a file URL has three slashes: file:///path"))
	}
	path, err := url.PathUnescape(path)
	if err != nil {
		return "", bad(err)
	}
	return path, nil
}
