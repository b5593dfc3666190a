//go:build unix

package sandbox

const defaultShell = "/bin/sh"
