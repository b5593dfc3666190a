package endpoint

import (
	"context"
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli/reply"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/cluster"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

func newStatusCmd(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Prints out the status of endpoints specified in `--endpoints` flag",
		Long: `The items of a line of the simple format are endpoint, ID, version, storage version, db
size, in use, percentage not in use, quota, is leader, is learner, raft term, raft
index, raft applied index, errors, downgrade target version, downgrade enabled.

Server cost: next to nothing.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.status(c.Context()) },
	}
}

// statusJSON is a line of etcdctl's document.
type statusJSON struct {
	Endpoint string                   `json:"Endpoint"`
	Status   *clientv3.StatusResponse `json:"Status"`
	Error    string                   `json:"Error,omitempty"` // not etcdctl's, which leaves the line out
}

func (o *options) status(ctx context.Context) error {
	p, err := reply.New(o.env, reply.Boxes|reply.Lines)
	if err != nil {
		return err
	}
	endpoints, dial, timeout, err := o.ask(ctx)
	if err != nil {
		return err
	}
	states := cluster.States(ctx, dial, endpoints, timeout)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	rows := []statusJSON{}
	var answered []statusJSON
	var failed []error
	for _, s := range states {
		row := statusJSON{Endpoint: s.Endpoint, Status: s.Status}
		if s.Err == nil {
			answered = append(answered, row)
		} else {
			row.Error = reply.Reason(s.Err)
			failed = append(failed, fmt.Errorf("%s: %w", s.Endpoint, s.Err))
			o.env.Say("Failed to get the status of endpoint %s (%s)", s.Endpoint, row.Error)
		}
		rows = append(rows, row)
	}
	if o.env.DropIn() {
		rows = answered
	}
	if err := p.Print(reply.Answer{
		JSON: rows,
		Simple: func(b []byte) []byte {
			for _, r := range answered {
				b = append(append(b, strings.Join(cells(r), ", ")...), '\n')
			}
			return b
		},
		Fields: func(b []byte) []byte {
			for _, r := range answered {
				b = appendFields(b, r, p.Hex)
			}
			return b
		},
		Boxes: func() ([]string, [][]string) {
			var all [][]string
			for _, r := range answered {
				all = append(all, cells(r))
			}
			return columns, all
		},
		Table: func() output.Table { return statusTable(rows) },
	}); err != nil {
		return err
	}
	if o.standing(ctx, states) {
		return cli.Failf(cli.Integrity, "members differ though they have applied the same: this is damage")
	}
	if len(failed) > 0 && o.env.DropIn() {
		return &cli.ExitError{Code: 1} // each has been told
	}
	return o.outcome(len(states), failed)
}

var columns = []string{
	"endpoint", "ID", "version", "storage version", "db size", "in use", "percentage not in use", "quota", "is leader", "is learner", "raft term",
	"raft index", "raft applied index", "errors", "downgrade target version", "downgrade enabled",
}

// cells are etcdctl's sixteen.
func cells(r statusJSON) []string {
	s := (*pb.StatusResponse)(r.Status)
	unused := int64(0)
	if s.GetDbSize() > 0 {
		unused = 100 - s.GetDbSizeInUse()*100/s.GetDbSize()
	}
	return []string{
		r.Endpoint, fmt.Sprintf("%x", s.GetHeader().GetMemberId()), s.GetVersion(), s.GetStorageVersion(),
		size(s.GetDbSize()), size(s.GetDbSizeInUse()), fmt.Sprintf("%d%%", unused), size(s.GetDbSizeQuota()),
		fmt.Sprint(s.GetLeader() == s.GetHeader().GetMemberId()), fmt.Sprint(s.GetIsLearner()), fmt.Sprint(s.GetRaftTerm()),
		fmt.Sprint(s.GetRaftIndex()), fmt.Sprint(s.GetRaftAppliedIndex()), strings.Join(s.GetErrors(), ", "),
		s.GetDowngradeInfo().GetTargetVersion(), fmt.Sprint(s.GetDowngradeInfo().GetEnabled()),
	}
}

func size(n int64) string { return humanize.Bytes(uint64(max(n, 0))) }

func appendFields(b []byte, r statusJSON, hexed bool) []byte {
	s := (*pb.StatusResponse)(r.Status)
	b = reply.AppendHeader(b, s.GetHeader(), hexed)
	return fmt.Appendf(b, `"Version" : %q
"StorageVersion" : %q
"DBSize" : %d
"DBSizeInUse" : %d
"DBSizeQuota" : %d
"Leader" : %d
"IsLearner" : %t
"RaftIndex" : %d
"RaftAppliedIndex" : %d
"Errors" : %v
"Endpoint" : %q
"DowngradeTargetVersion" : %q
"DowngradeEnabled" : %t

`, s.GetVersion(), s.GetStorageVersion(), s.GetDbSize(), s.GetDbSizeInUse(), s.GetDbSizeQuota(), s.GetLeader(), s.GetIsLearner(), s.GetRaftIndex(),
		s.GetRaftAppliedIndex(), s.GetErrors(), r.Endpoint, s.GetDowngradeInfo().GetTargetVersion(), s.GetDowngradeInfo().GetEnabled())
}

// statusTable is what people see under our own name: what matters first.
func statusTable(rows []statusJSON) output.Table {
	t := output.Table{Columns: []output.Column{
		{Name: "ENDPOINT", Keep: true}, {Name: "ID", Keep: true}, {Name: "ROLE", Keep: true}, {Name: "VERSION"}, {Name: "DB SIZE", Right: true, Bytes: true}, {Name: "IN USE", Right: true, Bytes: true},
		{Name: "QUOTA", Right: true, Bytes: true, Drop: true}, {Name: "REVISION", Right: true}, {Name: "TERM", Right: true, Drop: true}, {Name: "APPLIED", Right: true, Drop: true}, {Name: "ERRORS", Wrap: true},
	}}
	for _, r := range rows {
		if r.Status == nil {
			t.Rows = append(t.Rows, []string{r.Endpoint, "", "down", "", "", "", "", "", "", "", r.Error})
			continue
		}
		s := (*pb.StatusResponse)(r.Status)
		role := "follower"
		switch {
		case s.GetIsLearner():
			role = "learner"
		case s.GetLeader() == s.GetHeader().GetMemberId():
			role = "leader"
		case s.GetLeader() == 0:
			role = "no leader"
		}
		quota := ""
		if s.GetDbSizeQuota() > 0 {
			quota = fmt.Sprint(s.GetDbSizeQuota())
		}
		t.Rows = append(t.Rows, []string{r.Endpoint, fmt.Sprintf("%x", s.GetHeader().GetMemberId()), role, s.GetVersion(), fmt.Sprint(s.GetDbSize()), fmt.Sprint(s.GetDbSizeInUse()), quota,
			fmt.Sprint(s.GetHeader().GetRevision()), fmt.Sprint(s.GetRaftTerm()), fmt.Sprint(s.GetRaftAppliedIndex()), strings.Join(s.GetErrors(), ", ")})
	}
	return t
}
