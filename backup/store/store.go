// Package store keeps backups: named objects in a folder, in a bucket of any
// S3-compatible server, or in whatever the user's rclone reaches.
//
// All three keep the same promises; storetest is the suite that holds them to it.
//
//   - An object appears under its name whole, with the checksum its writer gave, or
//     not at all. Nobody ever sees a part of one.
//   - Nothing is replaced unless asked.
//   - A name cannot lead out of the store.
//   - What was stored is compared with the writer's checksum before Put returns.
//
// # Folder
//
// "/path" or "file:///path". Objects are files with mode 0600. They are written
// under a temporary name beside their place, synced, moved there in a way that
// never replaces anything, and the folder is synced. Temporary files of runs that
// have died are removed by the next Put into the same folder: the lock on a
// temporary file tells whether its writer lives, or its age (a day) where it was
// written from another host.
//
// # S3
//
// "s3://bucket/prefix". Region, endpoint and credentials come from Options, from
// the usual AWS_* variables, from the shared config and credentials files, from a
// container's credential endpoint or from the instance's role, in this order. A
// profile that assumes a role or signs on through a browser is not followed here;
// let its credential_process do so. Large objects go up in parts, which are read
// from the source when they are sent: no part is held in memory. Every part
// carries its SHA-256, which the server compares. "Never replaces" is a
// conditional request (If-None-Match), which the server decides. A server that
// does not know conditional requests is asked before the upload whether the name
// is taken; between that and the end of the upload another writer of the same name
// can win, and is replaced. Parts of an upload whose process was killed are seen by
// nobody but take room: let the bucket's lifecycle rules end incomplete uploads.
//
// # rclone
//
// "rclone:REMOTE:PATH". The user's rclone runs as a child process with the user's
// configuration and environment, never through a shell. Objects go up under a
// temporary name, are compared by the hashes that the remote knows, and are moved
// to their place. rclone has no conditional requests: a name is looked at before
// the move, and of two writers of one name at the same moment the later wins. On
// remotes that cannot move or copy by themselves, rclone copies once more through
// this host, and the object can be seen while it is written.
//
// # Errors
//
// Every error of a store is an *Error; its Kind is one of this package's
// sentinels, or nil: then what it wraps (an error of the file system, the end of a
// context) says what is wrong. Messages never hold credentials.
//
//	ErrNotExist     no such object
//	ErrExists       the name is taken
//	ErrLocked       somebody else holds the lock; errors.As gives the *LockedError
//	ErrLockLost     the cause of the end of a Lock's context
//	ErrChecksum     what was read or stored is not what the checksum is of
//	ErrName         a name that no store takes
//	ErrDenied       the server refuses these credentials, or what they may do
//	ErrNoBucket     no such bucket
//	ErrConfig       URL, options, credentials or rclone are not set up as they must be
//	ErrUnreachable  no answer, also after several tries
package store

import (
	"context"
	"io"
	"iter"
	"os"
	"strings"
	"time"
)

// Store is a place that keeps objects by name. Its methods may be called from
// several goroutines.
type Store interface {
	// Put stores size bytes of src under name, if sum is their SHA-256. It returns
	// ErrExists when the name is taken, unless o.Replace says otherwise, and
	// ErrChecksum when the bytes are others; then, and after any other failure,
	// nothing is left. A name cannot be an object and begin another's, "a" and
	// "a/b", where objects are files: ErrExists. One exception: when the connection fails after all was
	// sent, the object can be there, whole. Transient failures are tried again.
	// src is read from several goroutines and may be read more than once.
	Put(ctx context.Context, name string, src io.ReaderAt, size int64, sum [32]byte, o PutOptions) error
	// Get opens an object, which the caller closes; ErrNotExist. An end of the
	// object before its length is an error of the reader, never io.EOF.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// Stat describes an object without reading it; ErrNotExist.
	Stat(ctx context.Context, name string) (Object, error)
	// List yields the objects whose names begin with prefix, ordered by the bytes
	// of their names; "" is all. It ends with the first error. SHA256 is not set. A
	// bucket's and a remote's names are all held in memory.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]
	// Delete removes an object; ErrNotExist.
	Delete(ctx context.Context, name string) error
	// Lock takes the lock called name for this process, or returns ErrLocked at
	// once. Locks of other names do not matter to it. What it writes lies in the
	// store under name, or under names that begin with name and "/", and is listed.
	//
	// The lock is for several hosts. It lasts as long as it is refreshed, and is
	// taken over when it was not for its TTL; a holder that cannot refresh it loses
	// it by its own clock before anybody can take it over. In a folder a dead
	// holder on a host with the same locks is noticed at once. A folder's and a
	// bucket's clock is that of the file system or server. Over rclone the holder's
	// and the next one's own clocks are compared, with TTL as the allowance for
	// their difference, and what was written must be listed at once.
	Lock(ctx context.Context, name string, o LockOptions) (*Lock, error)
	// String names the store as the user did, without secrets.
	String() string
	// Close frees what the store holds on this host. Locks are not released by it.
	Close() error
}

// Strangers is what a Store also is where things can lie that are no objects.
type Strangers interface {
	// Strangers yields what lies in the store and is no object, nor a temporary file of
	// this program: "x (a symbolic link)", "x/ (an empty folder)". Nothing of it is opened
	// or followed. Control characters in names stay as they are.
	Strangers(ctx context.Context) iter.Seq2[string, error]
}

// Object describes what is stored under a name.
type Object struct {
	Name    string
	Bytes   int64
	ModTime time.Time // by the clock of the store
	// SHA256 is what the store itself computed of the stored bytes; nil when it
	// did not, as in a folder and for objects that went to S3 in parts.
	SHA256 []byte
}

// PutOptions of Put. The zero value replaces nothing.
type PutOptions struct {
	// Replace lets an object of the same name be replaced, in one step.
	Replace bool
	// Progress is told how many bytes were handed over so far. The number falls
	// back when a part is sent again. It is not called from two goroutines at once.
	Progress func(sent int64)
}

// Options of Open. The zero value takes everything from the environment.
type Options struct {
	// Create makes the folder, with mode 0700, if it is not there. Buckets are
	// never made.
	Create bool
	// Getenv looks variables up; nil: os.Getenv.
	Getenv func(string) string

	// S3.
	Endpoint    string        // URL; "": AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile's endpoint_url, or Amazon's
	Region      string        // "": AWS_REGION, AWS_DEFAULT_REGION, the profile's region, or us-east-1
	Profile     string        // of the shared files; "": AWS_PROFILE, or default
	Addressing  string        // "path" or "virtual"; "": the profile's addressing_style, or path with an endpoint and virtual without
	CAFile      string        // PEM file with the authorities to trust; "": AWS_CA_BUNDLE, or the system's
	PartBytes   int64         // of a part, from 5 MiB; 0: 8 MiB. More where an object would have over 10000 parts.
	Connections int           // how many parts are sent at a time; 0: 4
	Attempts    int           // how often a request is tried; 0: 5
	Stall       time.Duration // a request whose bytes stand still for this long fails; 0: 2 minutes

	// Rclone is the program; "": rclone in PATH.
	Rclone string
}

// Open opens the store that where names: a folder, "file:///path",
// "s3://bucket/prefix" or "rclone:REMOTE:PATH". It reads settings and, of a
// folder, that it is there; a bucket or remote is first asked when used.
func Open(where string, o Options) (Store, error) {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	scheme, rest, ok := strings.Cut(where, "://")
	switch {
	case strings.HasPrefix(where, "rclone:"):
		return openRclone(strings.TrimPrefix(where, "rclone:"), o)
	case ok && scheme == "s3":
		return openS3(rest, o)
	case ok && scheme == "file":
		path, err := filePath(rest)
		if err != nil {
			return nil, err
		}
		return openFolder(path, o)
	case ok && isScheme(scheme):
		return nil, &Error{Op: "open", Store: scheme + "://", Kind: ErrConfig, Err: errText("a store is a folder, file:///path, s3://bucket/prefix or rclone:REMOTE:PATH")}
	case where == "":
		return nil, &Error{Op: "open", Store: `""`, Kind: ErrConfig, Err: errText("no store is named")}
	}
	return openFolder(where, o)
}

// isScheme tells a URL from a path that happens to hold "://".
func isScheme(s string) bool {
	return s != "" && strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz0123456789+.-") == ""
}
