//go:build !linux

package server

// extendedAttributes are there on the other systems that the server runs on.
func extendedAttributes(string) error { return nil }
