package maintain

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli/reply"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/cluster"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

func newAlarmCmd(env *cli.Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "alarm <subcommand>",
		Short: "Alarm related commands",
		Long: `A member whose database is as large as its quota raises NOSPACE, and one whose data
differ from the others' CORRUPT. The cluster then takes no writes, or serves nothing at
all, until the alarm is disarmed.

Server cost: next to nothing.`,
	}
	c.AddCommand(newAlarmDisarmCmd(env), newAlarmListCmd(env))
	return c
}

func newAlarmListCmd(env *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "Lists all alarms",
		Long: `Lists all alarms, and the members that raised them.

Server cost: next to nothing.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 0 {
				return cli.Usagef("alarm list command accepts no arguments")
			}
			p, err := reply.New(env, reply.Fields|reply.Protobuf)
			if err != nil {
				return err
			}
			resp, err := alarms(c.Context(), env)
			if err != nil {
				return err
			}
			return printAlarms(p, (*pb.AlarmResponse)(resp))
		},
	}
}

func alarms(ctx context.Context, env *cli.Env) (*clientv3.AlarmResponse, error) {
	r, err := request(ctx, env, func(ctx context.Context, c *clientv3.Client) (*clientv3.AlarmResponse, error) {
		return c.AlarmList(ctx)
	})
	if err != nil {
		return nil, fmt.Errorf("list alarms: %w", err)
	}
	return r, nil
}

func printAlarms(p *reply.Printer, r *pb.AlarmResponse) error {
	return p.Print(reply.Answer{
		Header: r.GetHeader(), Message: r,
		Simple: func(b []byte) []byte {
			for _, a := range r.GetAlarms() {
				b = append(appendAlarm(b, a), '\n')
			}
			return b
		},
		Fields: func(b []byte) []byte {
			for _, a := range r.GetAlarms() {
				b = fmt.Appendf(reply.AppendID(b, "MemberID", a.GetMemberID(), p.Hex), "\"AlarmType\" : %s\n\n", a.GetAlarm())
			}
			return b
		},
		Table: func() output.Table {
			t := output.Table{Columns: []output.Column{{Name: "MEMBER", Keep: true}, {Name: "ALARM", Keep: true}}, Empty: "no alarm is raised"}
			for _, a := range r.GetAlarms() {
				t.Rows = append(t.Rows, []string{fmt.Sprintf("%x", a.GetMemberID()), a.GetAlarm().String()})
			}
			return t
		},
	})
}

// appendAlarm writes an alarm as protobuf's text format has it; what is zero is left out.
func appendAlarm(b []byte, a *pb.AlarmMember) []byte {
	var parts []string
	if a.GetMemberID() != 0 {
		parts = append(parts, fmt.Sprintf("memberID:%d", a.GetMemberID()))
	}
	if a.GetAlarm() != pb.AlarmType_NONE {
		parts = append(parts, "alarm:"+a.GetAlarm().String())
	}
	return append(b, strings.Join(parts, " ")...)
}

type disarmOptions struct {
	env   *cli.Env
	guard cli.Guard
}

func newAlarmDisarmCmd(env *cli.Env) *cobra.Command {
	o := disarmOptions{env: env}
	c := &cobra.Command{
		Use:   "disarm",
		Short: "Disarms all alarms",
		Long: `Disarms all alarms, and prints them.

Server cost: next to nothing.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 0 {
				return cli.Usagef("alarm disarm command accepts no arguments")
			}
			return o.run(c.Context())
		},
	}
	if !env.DropIn() {
		c.Long = `Disarms all alarms, and prints them. While a member has no space NOSPACE would be raised
again at the next write, and CORRUPT stands for damage that is still there: both ask, or
want --yes. Where there is space again nothing is asked.

Server cost: next to nothing; every member is asked for its status.`
		o.guard.Define(c.Flags())
	}
	return c
}

func (o *disarmOptions) run(ctx context.Context) error {
	p, err := reply.New(o.env, reply.Fields|reply.Protobuf)
	if err != nil {
		return err
	}
	if !o.env.DropIn() {
		if done, err := o.ask(ctx, p); err != nil || done {
			return err
		}
	}
	resp, err := request(ctx, o.env, func(ctx context.Context, c *clientv3.Client) (*clientv3.AlarmResponse, error) {
		return c.AlarmDisarm(ctx, &clientv3.AlarmMember{})
	})
	if err != nil {
		return cli.UnknownOutcome(fmt.Errorf("disarm alarms: %w", err), "`alarm list` shows those that are left")
	}
	return printAlarms(p, (*pb.AlarmResponse)(resp))
}

// ask looks whether what the alarms stand for is over, and asks where it is not. done: it
// was a dry run.
func (o *disarmOptions) ask(ctx context.Context, p *reply.Printer) (done bool, err error) {
	raised, err := alarms(ctx, o.env)
	if err != nil {
		return false, err
	}
	if len(raised.Alarms) == 0 {
		if o.guard.DryRun {
			return true, p.Would("do nothing: no alarm is raised")
		}
		return false, nil
	}
	c, err := o.env.Cluster(ctx)
	if err != nil {
		return false, fmt.Errorf("disarm alarms: %w", err)
	}
	var names, reasons []string
	for _, a := range raised.Alarms {
		name, reason := standing(c, a)
		names = append(names, name)
		if reason != "" {
			reasons = append(reasons, reason)
		}
	}
	what := fmt.Sprintf("disarm %s of %s", strings.Join(names, ", "), c)
	if len(reasons) > 0 {
		what += ", although " + strings.Join(reasons, "; ")
	}
	if o.guard.DryRun {
		return true, p.Would(what)
	}
	if len(reasons) == 0 {
		return false, nil
	}
	return false, cli.Instead(o.guard.Ask(o.env, what), "make space with `compaction` and `defrag`, or raise the members' --quota-backend-bytes; a CORRUPT member is removed and added anew, empty")
}

// largestRequest is what servers take in one request by default, in bytes. The alarm is raised
// by a request that would not fit any more.
const largestRequest = 3 << 19

// standing says why an alarm is still right; "": what it stands for is over.
func standing(c *cluster.Cluster, a *pb.AlarmMember) (name, reason string) {
	m := c.Member(a.GetMemberID())
	label := fmt.Sprintf("%x", a.GetMemberID())
	if m != nil {
		label = m.Label()
	}
	name = fmt.Sprintf("%s of %s", a.GetAlarm(), label)
	switch {
	case a.GetAlarm() == pb.AlarmType_CORRUPT:
		return name, label + " has found that its data differ from the others'"
	case a.GetAlarm() != pb.AlarmType_NOSPACE || m == nil: // a member that was removed needs no space
		return name, ""
	case !m.Alive():
		return name, label + " does not answer, so that its space is not known"
	}
	st := m.State.Status
	switch {
	case st.DbSizeQuota <= 0:
		return name, fmt.Sprintf("the database of %s has %s, of which %s are in use, and its server does not tell the quota", label, output.Bytes(st.DbSize), output.Bytes(st.DbSizeInUse))
	case st.DbSize+largestRequest >= st.DbSizeQuota:
		return name, fmt.Sprintf("the database of %s has %s, of which %s are in use, with a quota of %s", label, output.Bytes(st.DbSize), output.Bytes(st.DbSizeInUse), output.Bytes(st.DbSizeQuota))
	}
	return name, ""
}
