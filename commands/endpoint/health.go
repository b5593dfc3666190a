package endpoint

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli/reply"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/cluster"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

func newHealthCmd(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "health",
		Short: "Checks the healthiness of endpoints specified in `--endpoints` flag",
		Long: `Reads a key through every endpoint, which needs a quorum, and looks for alarms. An alarm
(NOSPACE, CORRUPT) is unhealthy. A learner answers only serializable reads, and is not
unhealthy for that.

Server cost: one small read and one request for the alarms per endpoint.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.health(c.Context()) },
	}
}

// healthJSON is a line of etcdctl's document.
type healthJSON struct {
	Endpoint string `json:"endpoint"`
	Health   bool   `json:"health"`
	Took     string `json:"took"`
	Error    string `json:"error,omitempty"`
	Learner  bool   `json:"learner,omitempty"` // not etcdctl's
}

func (o *options) health(ctx context.Context) error {
	p, err := reply.New(o.env, reply.Boxes|reply.Lines)
	if err != nil {
		return err
	}
	endpoints, dial, timeout, err := o.ask(ctx)
	if err != nil {
		return err
	}
	var rows []healthJSON
	var failed []error
	for _, h := range cluster.Healths(ctx, dial, endpoints, timeout) {
		rows = append(rows, o.row(h))
		if h.Err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", h.Endpoint, h.Err))
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := p.Print(reply.Answer{
		JSON: rows,
		Simple: func(b []byte) []byte {
			for _, r := range rows {
				if r.Error == "" {
					b = fmt.Appendf(b, "%s is healthy: successfully committed proposal: took = %s\n", r.Endpoint, r.Took)
				} else {
					o.env.Say("%s is unhealthy: failed to commit proposal: %s", r.Endpoint, r.Error)
				}
			}
			return b
		},
		Fields: func(b []byte) []byte {
			for _, r := range rows {
				b = fmt.Appendf(b, "\"Endpoint\" : %q\n\"Health\" : %t\n\"Took\" : %s\n\"Error\" : %s\n\n", r.Endpoint, r.Health, r.Took, r.Error)
			}
			return b
		},
		Boxes: func() ([]string, [][]string) {
			var cells [][]string
			for _, r := range rows {
				cells = append(cells, []string{r.Endpoint, fmt.Sprint(r.Health), r.Took, r.Error})
			}
			return []string{"endpoint", "health", "took", "error"}, cells
		},
		Table: func() output.Table { return healthTable(rows) },
	}); err != nil {
		return err
	}
	states := cluster.States(ctx, dial, endpoints, timeout)
	if !o.env.DropIn() && o.standing(ctx, states) {
		return cli.Failf(cli.Integrity, "members differ though they have applied the same: this is damage")
	}
	if len(failed) > 0 && o.env.DropIn() {
		return errors.New("unhealthy cluster")
	}
	return o.outcome(len(rows), failed)
}

func (o *options) row(h cluster.Health) healthJSON {
	r := healthJSON{Endpoint: h.Endpoint, Health: h.OK, Took: h.Took.String()}
	if !o.env.DropIn() {
		r.Learner = h.Learner
	}
	var alarms *cluster.AlarmError
	switch {
	case h.Err == nil:
	case errors.As(h.Err, &alarms) && o.env.DropIn():
		r.Error = "Active Alarm(s): " + strings.Join(alarms.Alarms, " ") + " "
	case errors.Is(h.Err, cluster.ErrNoAlarms) && o.env.DropIn():
		r.Error = "Unable to fetch the alarm list"
	default:
		r.Error = reply.Reason(h.Err)
	}
	return r
}

func healthTable(rows []healthJSON) output.Table {
	t := output.Table{Columns: []output.Column{{Name: "ENDPOINT", Keep: true}, {Name: "HEALTH", Keep: true}, {Name: "TOOK", Right: true}, {Name: "NOTE", Wrap: true}}}
	for _, r := range rows {
		health, note := "healthy", r.Error
		if !r.Health {
			health = "unhealthy"
		} else if r.Learner {
			note = "learner"
		}
		t.Rows = append(t.Rows, []string{r.Endpoint, health, r.Took, note})
	}
	return t
}
