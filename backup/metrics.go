package backup

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/etcdctl-plus/etcdctl-plus/backup/place"
)

// Metrics are what Prometheus is told of a run, by way of the node exporter's textfile
// collector (https://github.com/prometheus/node_exporter#textfile-collector).
type Metrics struct {
	Store   string
	Attempt time.Time
	Seconds float64
	Run     *Run // nil when there is none
	Failed  bool
}

const metricsPrefix = "etcdctl_plus_backup_"

// help describes the metrics, in the order in which they are written. Those of the last
// success stay what they were when a run fails.
var metricsHelp = []struct {
	name, help string
	ofSuccess  bool
}{
	{"last_attempt_timestamp_seconds", "When the last run began.", false},
	{"last_attempt_success", "1 when the last run took a backup, else 0.", false},
	{"last_attempt_duration_seconds", "How long the last run took.", false},
	{"last_success_timestamp_seconds", "When the last run began that took a backup.", true},
	{"bytes", "Size of the last backup as stored.", true},
	{"database_bytes", "Size of the database in the last backup.", true},
	{"revision", "Revision in the last backup.", true},
	{"keys", "Live keys in the last backup.", true},
	{"verified_level", "Level up to which the last backup was verified; see snapshot verify.", true},
	{"sequence", "Number of the last backup in its repository.", true},
	{"kept", "Backups of the cluster after the policy of the last run was applied.", true},
}

// Write replaces the file. What it said of the last success stays when there is no newer
// one.
func (m Metrics) Write(path string) error {
	values := map[string]float64{
		"last_attempt_timestamp_seconds": float64(m.Attempt.Unix()),
		"last_attempt_duration_seconds":  m.Seconds,
		"last_attempt_success":           1,
	}
	if m.Failed {
		values["last_attempt_success"] = 0
	}
	if r := m.Run; r != nil {
		values["last_success_timestamp_seconds"] = float64(m.Attempt.Unix())
		values["bytes"], values["database_bytes"] = float64(r.Manifest.Bytes), float64(r.Manifest.DatabaseBytes)
		values["revision"], values["keys"] = float64(r.Manifest.Revision), float64(r.Manifest.Keys)
		values["verified_level"], values["sequence"] = float64(r.Manifest.Verified), float64(r.Manifest.Sequence)
		if r.Pruned != nil {
			values["kept"] = float64(r.Pruned.Kept)
		}
	}
	before, err := lastMetrics(path)
	if err != nil {
		return fmt.Errorf("write metrics: %w", err)
	}
	var b bytes.Buffer
	for _, h := range metricsHelp {
		v, ok := values[h.name]
		line := fmt.Sprintf("%s%s{store=%s} %v\n", metricsPrefix, h.name, label(m.Store), number(v))
		if !ok && h.ofSuccess {
			line, ok = before[h.name], before[h.name] != ""
		}
		if ok {
			fmt.Fprintf(&b, "# HELP %s%s %s\n# TYPE %s%s gauge\n%s", metricsPrefix, h.name, h.help, metricsPrefix, h.name, line)
		}
	}
	f, err := place.Temp(path)
	if err != nil {
		return fmt.Errorf("write metrics: %w", err)
	}
	// The exporter runs as another user; nothing here is secret.
	_, err = f.Write(b.Bytes())
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write metrics: %w", err), os.Remove(f.Name()))
	}
	return nil
}

func number(v float64) string { return strings.TrimSuffix(fmt.Sprintf("%.3f", v), ".000") }

// label quotes the value of a label, as the text format wants it.
func label(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}

// lastMetrics are the lines of a file that was written before, by name.
func lastMetrics(path string) (map[string]string, error) {
	lines := map[string]string{}
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return lines, nil
	}
	if err != nil {
		return nil, err
	}
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), metricsPrefix); ok {
			name, _, _ := strings.Cut(rest, "{")
			lines[name] = s.Text() + "\n"
		}
	}
	return lines, nil
}
