package member

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli/reply"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/cluster"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type addOptions struct {
	env     *cli.Env
	name    string
	peers   string
	urls    []string
	learner bool
	promote bool
	wait    time.Duration
	guard   cli.Guard
}

func newAddCmd(env *cli.Env) *cobra.Command {
	o := addOptions{env: env}
	c := &cobra.Command{
		Use:   "add <memberName> [options]",
		Short: "Adds a member into the cluster",
		Long: `Adds a member, and prints the settings it is to be started with.

Server cost: next to nothing until it starts; then the leader sends it the database.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.complete(args); err != nil {
				return err
			}
			return o.run(c.Context())
		},
	}
	f := c.Flags()
	f.StringVar(&o.peers, "peer-urls", "", "comma separated peer URLs for the new member")
	f.BoolVar(&o.learner, "learner", false, "indicates if the new member is raft learner")
	if !env.DropIn() {
		c.Long = `Adds a member, and prints the settings it is to be started with.

A voting member counts for the quorum from that moment on, although it has not started
and has no data; so it asks, or wants --yes. --learner adds one that does not count;
with --promote the command then waits until it has started and caught up, and makes it a
voting member.

Server cost: next to nothing until it starts; then the leader sends it the database.`
		c.Example = "  etcdctl-plus member add m4 --peer-urls http://10.0.0.4:2380 --learner --promote --wait 10m"
		o.guard.Define(f)
		f.BoolVar(&o.promote, "promote", false, "with --learner: wait until it has caught up, and promote it")
		f.DurationVar(&o.wait, "wait", 10*time.Minute, "with --promote: how long to wait for the learner; 0: without end")
	}
	return c
}

func (o *addOptions) complete(args []string) error {
	switch {
	case len(args) == 0:
		return cli.Usagef("member name not provided")
	case len(args) > 1:
		for _, a := range args {
			if strings.HasPrefix(strings.ToLower(a), "http") {
				return cli.Usagef("too many arguments, did you mean --peer-urls=%s", a)
			}
		}
		return cli.Usagef("too many arguments")
	case o.peers == "":
		return cli.Usagef("member peer urls not provided")
	case o.promote && !o.learner:
		return cli.Usagef("--promote goes with --learner")
	}
	o.name = args[0]
	var err error
	o.urls, err = peerURLs(o.env, o.peers)
	return err
}

// checkURLs is what etcd's servers ask of peer addresses.
func checkURLs(urls []string) error {
	_, err := types.NewURLs(urls)
	return err
}

func (o *addOptions) run(ctx context.Context) error {
	p, err := reply.New(o.env, reply.Protobuf)
	if err != nil {
		return err
	}
	if !o.env.DropIn() {
		if done, err := o.ask(ctx, p); err != nil || done {
			return err
		}
	}
	resp, err := request(ctx, o.env, func(ctx context.Context, c *clientv3.Client) (*clientv3.MemberAddResponse, error) {
		if o.learner {
			return c.MemberAddAsLearner(ctx, o.urls)
		}
		return c.MemberAdd(ctx, o.urls)
	})
	if err != nil {
		d := *cli.Describe(failed("add", 0, err))
		d.Err = fmt.Errorf("add member %s: %w", o.name, err)
		return &d
	}
	r := (*pb.MemberAddResponse)(resp)
	if err := p.Print(o.answer(r)); err != nil || !o.promote {
		return err
	}
	if err := o.env.Flush(); err != nil { // the settings, before the wait for who needs them
		return err
	}
	return o.await(ctx, p, r.GetMember().GetID())
}

// ask says what a new voting member does to the quorum, and asks. done: it was a dry run.
func (o *addOptions) ask(ctx context.Context, p *reply.Printer) (done bool, err error) {
	if o.learner && !o.guard.DryRun {
		return false, nil
	}
	c, err := o.env.Cluster(ctx)
	if err != nil {
		return false, fmt.Errorf("add member %s: %w", o.name, err)
	}
	what := o.addition(c)
	if o.guard.DryRun {
		return true, p.Would(what)
	}
	return false, cli.Instead(o.guard.Ask(o.env, what), "--learner --promote adds it without a vote, and gives it one when it has caught up; --yes adds it as it is")
}

func (o *addOptions) addition(c *cluster.Cluster) string {
	if o.learner {
		return fmt.Sprintf("add %s (%s) as a learner to %s", o.name, o.peers, c)
	}
	q := c.Standing()
	need := (q.Voters+1)/2 + 1
	risk := fmt.Sprintf("until it has started and caught up %d of the %d others may fail", max(q.Alive-need, 0), q.Voters)
	if q.Alive < need {
		risk = fmt.Sprintf("only %d answer, so nothing works until it has started and caught up", q.Alive)
	}
	return fmt.Sprintf("add %s (%s) as a voting member to %s, which then has %d, of which %d are needed: %s", o.name, o.peers, c, q.Voters+1, need, risk)
}

func (o *addOptions) answer(r *pb.MemberAddResponse) reply.Answer {
	learner := " "
	if r.GetMember().GetIsLearner() {
		learner = " as learner "
	}
	var peers []string
	for _, m := range r.GetMembers() {
		name := m.GetName()
		if m.GetID() == r.GetMember().GetID() {
			name = o.name
		}
		for _, u := range m.GetPeerURLs() {
			peers = append(peers, name+"="+u)
		}
	}
	settings := fmt.Sprintf("ETCD_NAME=%q\nETCD_INITIAL_CLUSTER=%q\nETCD_INITIAL_ADVERTISE_PEER_URLS=%q\nETCD_INITIAL_CLUSTER_STATE=\"existing\"\n", o.name, strings.Join(peers, ","), o.peers)
	a := answer(r.GetHeader(), r.GetMembers(), r, fmt.Sprintf("Member %16x added%sto cluster %16x\n\n%s", r.GetMember().GetID(), learner, r.GetHeader().GetClusterId(), settings))
	if !o.env.DropIn() { // who reads another format starts a member all the same
		a.JSON = addedView{r.GetHeader(), r.GetMember(), r.GetMembers(), newSettings(o.name, strings.Join(peers, ","), o.peers)}
	}
	return a
}

// addedView is etcd's answer with the settings that the simple format has.
type addedView struct {
	Header   *pb.ResponseHeader `json:"header"`
	Member   *pb.Member         `json:"member"`
	Members  []*pb.Member       `json:"members"`
	Settings map[string]string  `json:"settings"`
}

func newSettings(name, peers, own string) map[string]string {
	return map[string]string{"ETCD_NAME": name, "ETCD_INITIAL_CLUSTER": peers, "ETCD_INITIAL_ADVERTISE_PEER_URLS": own, "ETCD_INITIAL_CLUSTER_STATE": "existing"}
}

// await waits for the learner, and promotes it.
func (o *addOptions) await(ctx context.Context, p *reply.Printer, id uint64) error {
	s, err := o.env.Settings()
	if err != nil {
		return err
	}
	endpoints, err := o.env.Endpoints(ctx, false)
	if err != nil {
		return err
	}
	wctx, cancel := ctx, context.CancelFunc(func() {})
	if o.wait > 0 {
		wctx, cancel = context.WithTimeout(ctx, o.wait)
	}
	defer cancel()
	fmt.Fprintf(o.env.Stderr, "waiting for %s to start and to catch up; start it with these settings\n", output.CleanLine(o.name))
	progress := o.env.Progress("entries of the log applied")
	defer progress.Done()
	told := false
	err = cluster.WaitLearner(wctx, o.env.ClientOf, endpoints, id, s.CommandTimeout, func(w cluster.Waiting) {
		progress.Set(int64(w.Applied), int64(w.Leader))
		if w.Started && !told {
			told = true
			fmt.Fprintf(o.env.Stderr, "%s has started\n", output.CleanLine(o.name))
		}
	})
	var resp *clientv3.MemberPromoteResponse
	if err == nil {
		var client *clientv3.Client
		if client, err = o.env.Client(ctx); err != nil {
			return err
		}
		resp, err = cluster.Promote(wctx, client, id, s.CommandTimeout)
	}
	if err != nil {
		return o.unpromoted(ctx, id, err)
	}
	text := promoted(id, (*pb.MemberPromoteResponse)(resp))
	if p.Format == output.Simple {
		_, err = p.Out.Write([]byte(text))
		return err
	}
	_, err = o.env.Stderr.Write([]byte(text)) // the answer was one document already
	return err
}

// unpromoted says what a wait in vain leaves behind.
func (o *addOptions) unpromoted(ctx context.Context, id uint64, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	d := *cli.Describe(fmt.Errorf("promote %s (%x): %w", o.name, id, err))
	d.Retryable = false
	if errors.Is(err, cluster.ErrGone) {
		d.Code = cli.Negative
		return &d
	}
	d.Hint = fmt.Sprintf("it was added and stays a learner: `member promote %x` when it has caught up, or `member remove %x`", id, id)
	return &d
}
