package config

import "os"

// keepOwner does nothing: a file in a user's folder is theirs by what the folder says.
func keepOwner(*os.File, string) error { return nil }
