package server

import "syscall"

func awaitStopped(int, syscall.Signal) {} // Windows stops no process
