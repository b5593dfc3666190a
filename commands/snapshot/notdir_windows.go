package snapshot

// isNotDir: what should be a folder in a path is a file. Windows says that it is absent.
func isNotDir(error) bool { return false }
