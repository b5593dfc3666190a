package perf

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// residentMetric is the memory of a server, as its Prometheus library has it:
// https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics
const residentMetric = "process_resident_memory_bytes"

// maxMetrics bounds what is read of a server's metrics.
const maxMetrics = 64 << 20

// Resident asks a server for the memory it has, by its metrics at url (…/metrics).
func Resident(ctx context.Context, c *http.Client, url string) (int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", url, err)
	}
	r, err := c.Do(req)
	if err != nil {
		return 0, err // which names the address
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("read %s: %s", url, r.Status)
	}
	return parseResident(url, io.LimitReader(r.Body, maxMetrics))
}

func parseResident(url string, r io.Reader) (int64, error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		value, ok := strings.CutPrefix(lines.Text(), residentMetric+" ")
		if !ok {
			continue
		}
		f, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil || !(f > 0) {
			return 0, fmt.Errorf("read %s: %s is %q", url, residentMetric, value)
		}
		return int64(f), nil
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("read %s: %w", url, err)
	}
	return 0, fmt.Errorf("read %s: there is no %s", url, residentMetric)
}
