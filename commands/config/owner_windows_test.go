package config

import "testing"

func owner(*testing.T, string) (uid, gid uint32) { return 0, 0 }
