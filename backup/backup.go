// Package backup takes snapshots that can be trusted and finds out whether one can:
// saving, verifying down to every record, salvaging what is left of a damaged one,
// rehearsing a restore.
//
// It writes only what it was told to write, beside its place first and under its name
// when it is complete, and never removes what it did not write. What it reads is
// never changed.
package backup
