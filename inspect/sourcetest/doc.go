// Package sourcetest has what tests of a keyspace.Source need: a suite that every
// source passes (Run), a source in memory (Memory), and a proof that a file was
// not touched (Untouched).
package sourcetest
