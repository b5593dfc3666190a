package cli

import "io"

func openSyslog() (io.WriteCloser, error) {
	return nil, Failf(Config, "audit: this system has no syslog; name a file")
}
