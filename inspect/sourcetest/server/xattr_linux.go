package server

import "golang.org/x/sys/unix"

func extendedAttributes(dir string) error {
	return unix.Setxattr(dir, "user.etcdctl-plus-test", []byte("x"), 0)
}
