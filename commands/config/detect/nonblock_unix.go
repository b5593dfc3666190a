//go:build unix

package detect

import "syscall"

// nonblock keeps a pipe that lies in the place of a file from holding us up.
const nonblock = syscall.O_NONBLOCK
