package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcdctl-plus/etcdctl-plus/backup"
	"github.com/etcdctl-plus/etcdctl-plus/backup/place"
	"github.com/etcdctl-plus/etcdctl-plus/backup/store"
	"github.com/etcdctl-plus/etcdctl-plus/commands/config"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/live"
	"github.com/etcdctl-plus/etcdctl-plus/output"
	"github.com/etcdctl-plus/etcdctl-plus/watchtail"
)

// Code is an exit code under our own name. `help exit-codes` lists them.
type Code int

// The exit codes. 2 is left to Go's own panics.
const (
	OK           Code = 0
	Failure      Code = 1  // anything that has no code of its own
	Partial      Code = 3  // some targets failed
	Negative     Code = 4  // the answer is no: not found, compare false, lock not free
	Precondition Code = 5  // a compare-and-swap lost
	Integrity    Code = 10 // damage or a difference was found
	Busy         Code = 11 // a file or checkpoint is locked
	Unavailable  Code = 20
	Timeout      Code = 21 // timeout or stall
	Auth         Code = 22 // authentication or permission, as the server says
	Compacted    Code = 30
	Diverged     Code = 31
	Checkpoint   Code = 32 // checkpoint unreadable
	Refused      Code = 40 // a guard said no
	Usage        Code = 64
	Data         Code = 65 // bad input data
	CantCreate   Code = 73 // cannot create, or exists already
	IO           Code = 74 // input/output, disk full
	Permission   Code = 77 // local permission
	Config       Code = 78
	LockLost     Code = 123 // a lock or leadership, while it was held
	NotAcquired  Code = 124 // a lock or leadership, in time
	ToolFailed   Code = 125 // before or after the command that was to run under a lock
)

// CodeInfo describes one exit code for help and machine-readable errors.
type CodeInfo struct {
	Code      Code
	Class     string
	Meaning   string
	Retryable bool
}

// Codes lists every exit code in order.
var Codes = []CodeInfo{
	{OK, "ok", "done", false},
	{Failure, "failure", "other failure", false},
	{2, "panic", "reserved: the program itself failed (Go panic)", false},
	{Partial, "partial", "some targets failed, the others answered", false},
	{Negative, "negative", "the answer is no: not found, compare false, lock not free with --try", false},
	{Precondition, "precondition", "precondition lost: somebody else changed the key (compare-and-swap)", false},
	{Integrity, "integrity", "damage or a difference was found", false},
	{Busy, "busy", "a file or checkpoint is in use by another process", true},
	{Unavailable, "unavailable", "no endpoint could be reached, or it has no leader", true},
	{Timeout, "timeout", "no answer in time, or a stream stalled", true},
	{Auth, "auth", "the server refused user, password, token, certificate or permission", false},
	{Compacted, "compacted", "the history asked for has been compacted", false},
	{Diverged, "diverged", "the cluster's history is no longer the one that was followed", false},
	{Checkpoint, "checkpoint", "checkpoint unreadable", false},
	{Refused, "refused", "a guard refused; nothing was changed", false},
	{Usage, "usage", "wrong command line", false},
	{Data, "data", "input is not what it should be", false},
	{CantCreate, "exists", "cannot create, or it exists already", false},
	{IO, "io", "input/output error, disk full", false},
	{Permission, "permission", "this machine does not allow it", false},
	{Config, "config", "wrong configuration", false},
	{LockLost, "lock-lost", "lock, elect: what was held is lost; the command under it was stopped", false},
	{NotAcquired, "not-acquired", "lock, elect: not acquired in time, or the place in the queue is lost", false},
	{ToolFailed, "tool", "lock -- CMD, elect -- CMD: the program itself failed", false},
}

// Info returns the description of c.
func (c Code) Info() CodeInfo {
	for _, i := range Codes {
		if i.Code == c {
			return i
		}
	}
	return CodeInfo{Code: c, Class: "failure", Meaning: "failure"}
}

// Error is an error on its way to the operator. Everything but Err may be left
// out: Describe fills what can be told from Err.
type Error struct {
	Code      Code
	Class     string // "" : the class of Code; "unknown-outcome" for a write that may have happened
	Err       error
	Hint      string // what to do about it
	Endpoint  string
	Revision  int64
	Retryable bool
	// DropIn is the exit code under the name etcdctl or etcdutl; 0: 1.
	DropIn int
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Usagef says that the command line is wrong.
func Usagef(format string, a ...any) error {
	return &Error{Code: Usage, Err: fmt.Errorf(format, a...), DropIn: 128}
}

// Failf makes an error with a code.
func Failf(code Code, format string, a ...any) error {
	return &Error{Code: code, Err: fmt.Errorf(format, a...)}
}

// WithHint adds what to do; it keeps a hint that is already there.
func WithHint(err error, hint string) error {
	if err == nil {
		return nil
	}
	d := *Describe(err)
	if d.Hint == "" {
		d.Hint = hint
	}
	return &d
}

// Describe finds code, hint and the rest for any error. It never returns nil
// for a non-nil error.
func Describe(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		d := *e
		d.Err = err
		if e == err { //nolint:errorlint // the message of the error itself, not of a wrapper
			d.Err = e.Err
		}
		return finish(&d)
	}
	d := &Error{Err: err, Code: Failure}
	var compacted *keyspace.CompactedError
	var future *keyspace.FutureError
	var cfg *config.Error
	var lost *live.NoLeaderError
	var diverged *watchtail.DivergedError
	var checkpoint *watchtail.CheckpointError
	var out *watchtail.OutputError
	var silence *watchtail.SilenceError
	var query *output.QueryError
	var kept *store.Error
	var format *output.UnknownFormatError
	switch {
	case errors.As(err, &compacted):
		d.Code, d.Revision = Compacted, compacted.CompactRev
		d.Hint = fmt.Sprintf("read at revision %d or later, or look into an older snapshot with --db", compacted.CompactRev)
	case errors.As(err, &diverged):
		d.Code, d.Hint = Diverged, "what was followed up to here stays true of the old history; --on-diverged=resync lists the new one, or begin anew with another checkpoint"
	case errors.As(err, &checkpoint):
		d.Code, d.Hint = Checkpoint, "`tail checkpoint verify` looks at it and at the generation before; an output file says itself how far it is"
	case errors.As(err, &out):
		d.Code, d.Hint = Config, "move the file and send HUP, or let --rotate-size do it; logrotate's copytruncate loses events"
	case errors.As(err, &silence):
		d.Code = Timeout
	case errors.As(err, &future):
		d.Code, d.Revision = Usage, future.Newest
		d.DropIn = 1
	case errors.As(err, &lost):
		d.Code, d.Endpoint, d.Hint = Unavailable, lost.Endpoint, noLeaderHint
	case errors.Is(err, keyspace.ErrLocked):
		d.Code = Busy
		d.Hint = "read a private copy of the file with --db-copy, or ask the running etcd with --endpoints"
	case errors.Is(err, keyspace.ErrCorrupt):
		d.Code = Integrity
		var sum *dbfile.ChecksumError
		var stripped *dbfile.StrippedError
		switch {
		case errors.As(err, &sum):
			d.Hint = "use another copy of the snapshot; --db-skip-hash-check reads this one all the same"
		case errors.As(err, &stripped):
			d.Hint = "use another copy; if this is a member's own file, or you trust it as it is, --db-skip-hash-check reads it; `snapshot verify` looks at each record"
		default:
			d.Hint = "`snapshot verify` lists all that is damaged; with --salvage OUT it copies what is sound"
		}
	case errors.As(err, &kept):
		describeStore(d, kept)
	case errors.Is(err, backup.ErrExists), errors.Is(err, backup.ErrNoFolder):
		d.Code = CantCreate
	case errors.Is(err, place.ErrBusy):
		d.Code, d.Hint = Busy, "another run writes there; wait for it"
	case errors.Is(err, dbfile.ErrEncrypted):
		d.Code, d.Hint = Config, "--identity FILE names the file with the age identity it was encrypted to"
	case errors.Is(err, dbfile.ErrUnpack):
		d.Code = Data
		d.Hint = "if you trust the file, allow more with --db-unpack-limit BYTES"
	case errors.Is(err, keyspace.ErrNotDatabase), errors.Is(err, dbfile.ErrSealed):
		d.Code = Usage
	case errors.As(err, &cfg):
		d.Code = Config
	case errors.As(err, &query), errors.As(err, &format):
		d.Code, d.DropIn = Usage, 1
	default:
		describeSystem(d)
	}
	return finish(d)
}

// describeStore is for what a repository's store says.
func describeStore(d *Error, err *store.Error) {
	switch {
	case errors.Is(err, store.ErrLocked):
		d.Code, d.Hint = Busy, "another run is at work on the repository; wait for it"
	case errors.Is(err, store.ErrLockLost):
		d.Code, d.Hint = Busy, "the store could not be reached for too long, or another run took over; run it again"
	case errors.Is(err, store.ErrChecksum):
		d.Code = Integrity
	case errors.Is(err, store.ErrNotExist):
		d.Code = Negative
	case errors.Is(err, store.ErrExists):
		d.Code = CantCreate
	case errors.Is(err, store.ErrDenied):
		d.Code, d.Hint = Auth, "check the credentials, and what they may do: list, read, write and delete below the prefix"
	case errors.Is(err, store.ErrNoBucket):
		d.Code, d.Hint = Config, "make the bucket first, or correct its name"
	case errors.Is(err, store.ErrConfig), errors.Is(err, store.ErrName):
		d.Code = Config
	case errors.Is(err, store.ErrUnreachable):
		d.Code = Unavailable
	default:
		describeSystem(d)
	}
}

func describeSystem(d *Error) {
	switch err := d.Err; {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		d.Code, d.Hint = IO, "free some space, or write to another file system"
	case errors.Is(err, syscall.EROFS):
		d.Code, d.Hint = IO, "in a systemd unit with ProtectSystem=strict, ReadWritePaths= names the folders that may be written to"
	case errors.Is(err, fs.ErrPermission):
		d.Code = Permission
	case errors.Is(err, fs.ErrExist):
		d.Code = CantCreate
	case errors.Is(err, fs.ErrNotExist):
		d.Code = Usage
	case isPathError(err):
		d.Code = IO
	case errors.Is(err, context.DeadlineExceeded):
		d.Code = Timeout
	default:
		describeServer(d)
	}
}

func isPathError(err error) bool {
	var p *os.PathError
	return errors.As(err, &p)
}

// noLeaderHint says what still works without a quorum.
const noLeaderHint = "reads still work with --consistency s, by what the member itself has, which may be behind; or read a copy of a member's data folder with --db"

// errLearner is what a learner answers to most requests.
var errLearner = rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner)

// partOfAPI is what to think of a server that lacks a call.
const partOfAPI = "this server does not have that call: it may be older than the command needs, or not etcd (Kine and others speak part of the API)"

func describeServer(d *Error) {
	var etcd rpctypes.EtcdError
	if errors.As(rpctypes.Error(rootStatus(d.Err)), &etcd) {
		switch etcd.Code() {
		case codes.Unavailable:
			d.Code = Unavailable
		case codes.Unauthenticated, codes.PermissionDenied:
			d.Code = Auth
		case codes.DeadlineExceeded:
			d.Code = Timeout
		}
		switch {
		case errors.Is(etcd, rpctypes.ErrUserEmpty):
			d.Code, d.Hint = Auth, "the cluster has authentication enabled: give --user"
		case errors.Is(etcd, rpctypes.ErrAuthFailed):
			d.Code, d.Hint = Auth, "check --user and its password"
		case errors.Is(etcd, rpctypes.ErrInvalidAuthToken), errors.Is(etcd, rpctypes.ErrAuthOldRevision):
			d.Code, d.Hint = Auth, "the token is no longer valid: log in again"
		case errors.Is(etcd, rpctypes.ErrPermissionDenied):
			d.Code, d.Hint = Auth, "the user's roles do not allow this key or command"
		case errors.Is(etcd, rpctypes.ErrNoSpace):
			d.Code, d.Hint = IO, "the cluster is out of quota: compact, defragment, then disarm the NOSPACE alarm"
		case errors.Is(etcd, rpctypes.ErrCompacted):
			d.Code = Compacted
		case errors.Is(etcd, rpctypes.ErrFutureRev):
			d.Code, d.DropIn = Usage, 1
		case errors.Is(etcd, rpctypes.ErrRequestTooLarge):
			d.Code, d.Hint = Data, "the server takes requests up to its --max-request-bytes (1.5 MiB unless changed)"
		case errors.Is(etcd, rpctypes.ErrCorrupt):
			d.Code = Integrity
		case errors.Is(etcd, rpctypes.ErrLeaseNotFound):
			d.Code = Negative
		case errors.Is(etcd, rpctypes.ErrNoLeader):
			d.Code, d.Hint = Unavailable, noLeaderHint
		case errors.Is(etcd, rpctypes.ErrLeaderChanged):
			d.Code, d.Hint = Unavailable, "the leader changed meanwhile: try again"
		case errors.Is(etcd, errLearner):
			d.Code, d.Hint = Unavailable, "a learner answers only serializable reads: ask a voting member"
		}
		return
	}
	s, ok := status.FromError(rootStatus(d.Err))
	if !ok {
		return
	}
	switch s.Code() {
	case codes.Unavailable:
		d.Code = Unavailable
	case codes.DeadlineExceeded:
		d.Code = Timeout
	case codes.Unauthenticated, codes.PermissionDenied:
		d.Code = Auth
	case codes.Unknown:
		// Kine says so without a code.
		if strings.HasSuffix(s.Message(), "is not supported") {
			d.Hint = partOfAPI
		}
	case codes.Unimplemented:
		d.Code, d.Hint = Failure, partOfAPI
	case codes.ResourceExhausted:
		d.Code, d.Hint = Data, "the server takes requests up to its --max-request-bytes (1.5 MiB unless changed), and half a MiB around them"
		if strings.Contains(s.Message(), "trying to send") {
			d.Hint = "our own --max-request-bytes (2 MiB unless changed) is in the way; the server has one too"
		}
	}
}

// rootStatus unwraps to the innermost error that carries a gRPC status, because
// rpctypes.Error looks at the error itself only.
func rootStatus(err error) error {
	for e := err; e != nil; e = errors.Unwrap(e) {
		var etcd rpctypes.EtcdError
		if errors.As(e, &etcd) {
			return etcd
		}
		if _, ok := e.(interface{ GRPCStatus() *status.Status }); ok {
			return e
		}
	}
	return err
}

func finish(d *Error) *Error {
	info := d.Code.Info()
	if d.Class == "" {
		d.Class = info.Class
		d.Retryable = d.Retryable || info.Retryable
	}
	return d
}

// UnknownOutcome marks the failure of a write that may have reached the
// server: look tells how to find out.
func UnknownOutcome(err error, look string) error {
	if err == nil {
		return nil
	}
	d := *Describe(err)
	if d.Code != Timeout && d.Code != Unavailable {
		return &d
	}
	d.Class, d.Retryable = "unknown-outcome", false
	d.Hint = "the write may have happened: " + look
	return &d
}
