//go:build unix

package cli

import (
	"io"
	"log/syslog"
)

func openSyslog() (io.WriteCloser, error) {
	w, err := syslog.New(syslog.LOG_NOTICE|syslog.LOG_AUTHPRIV, "etcdctl-plus")
	if err != nil {
		return nil, Failf(Config, "audit: the system log cannot be reached: %w", err)
	}
	return w, nil
}
