package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"
)

// Kinds of errors; the package's comment has the table. ErrNotExist and ErrExists
// are also fs.ErrNotExist and fs.ErrExist.
var (
	ErrNotExist    error = &kind{"no such object", fs.ErrNotExist}
	ErrExists      error = &kind{"exists already", fs.ErrExist}
	ErrLocked      error = &kind{"locked", nil}
	ErrLockLost    error = &kind{"the lock was lost", nil}
	ErrChecksum    error = &kind{"checksum differs", nil}
	ErrName        error = &kind{"not a name for an object", nil}
	ErrDenied      error = &kind{"access denied", nil}
	ErrNoBucket    error = &kind{"no such bucket", nil}
	ErrConfig      error = &kind{"not set up", nil}
	ErrUnreachable error = &kind{"cannot be reached", nil}
)

type kind struct {
	text string
	is   error
}

func (k *kind) Error() string        { return k.text }
func (k *kind) Is(target error) bool { return k.is != nil && target == k.is }

// errText is an error that only tells.
type errText string

func (e errText) Error() string { return string(e) }

// Error is the failure of a store.
type Error struct {
	Op    string // what was being done: open, put, get, stat, list, delete, lock
	Store string // as Store.String gives it
	Name  string // of the object; "" when it is about the store
	Kind  error  // one of this package's; nil: see Err
	Err   error  // what the file system, server or program said; may be nil
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Name != "" {
		fmt.Fprintf(&b, " %s in", e.Name)
	}
	b.WriteString(" " + e.Store)
	if e.Kind != nil && !(e.Err != nil && saysItself(e.Kind)) {
		b.WriteString(": " + e.Kind.Error())
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	return b.String()
}

// saysItself tells kinds whose cause is always a sentence of ours.
func saysItself(k error) bool {
	return k == ErrConfig || k == ErrLocked || k == ErrChecksum //nolint:errorlint // identity is meant
}

// Unwrap gives the kind and the cause.
func (e *Error) Unwrap() []error {
	var errs []error
	for _, err := range []error{e.Kind, e.Err} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// fail makes the *Error of one operation, keeping the kind that err has. The end
// of ctx comes before whatever else it led to.
func fail(ctx context.Context, op, store, name string, err error) error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return err
	}
	out := &Error{Op: op, Store: store, Name: name, Err: err}
	var k *kind
	if errors.As(err, &k) {
		out.Kind = k
		var kd *kinded
		switch {
		case err == error(k): //nolint:errorlint // the bare kind
			out.Err = nil
		case errors.As(err, &kd):
			out.Err = kd.err
		}
	}
	if cause := context.Cause(ctx); cause != nil && (out.Kind == nil || k == ErrUnreachable) { //nolint:errorlint // identity is meant
		out.Kind, out.Err = nil, cause
	}
	return out
}

// kinded gives an error a kind on its way to fail.
type kinded struct{ kind, err error }

func (k *kinded) Error() string   { return k.kind.Error() + ": " + k.err.Error() }
func (k *kinded) Unwrap() []error { return []error{k.kind, k.err} }

func as(k, err error) error { return &kinded{k, err} }

func asf(k error, format string, a ...any) error { return as(k, fmt.Errorf(format, a...)) }

// ChecksumError says which bytes differ from what was promised. It is ErrChecksum.
type ChecksumError struct {
	What      string // of what the checksum is, and who computed Got
	Want, Got string // in hex, or as the server writes it
}

func (e *ChecksumError) Error() string {
	return fmt.Sprintf("%s is %s, not %s", e.What, e.Got, e.Want)
}

// Unwrap makes it an ErrChecksum.
func (e *ChecksumError) Unwrap() error { return ErrChecksum }

// LockedError says who holds a lock. It is ErrLocked.
type LockedError struct {
	Name  string
	Owner Owner // the zero value when it cannot be read
}

func (e *LockedError) Error() string {
	if e.Owner.Host == "" {
		return fmt.Sprintf("the lock %q is held by somebody else", e.Name)
	}
	return fmt.Sprintf("the lock %q is held by process %d on %s since %s", e.Name, e.Owner.PID, e.Owner.Host, e.Owner.Since.UTC().Format(time.RFC3339))
}

// Unwrap makes it an ErrLocked.
func (e *LockedError) Unwrap() error { return ErrLocked }
