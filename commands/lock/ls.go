package lock

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/output"
	"github.com/etcdctl-plus/etcdctl-plus/supervise"
)

// list shows who has a lock or leadership, and who waits. It is no command of its own in
// cobra's sense, which takes every beginning of a name for it: `lock l` is a lock called l.
func list(c *cobra.Command, env *cli.Env, args []string) error {
	foreign := len(args) != 1
	c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) { foreign = foreign || f.Changed })
	if foreign {
		return cli.WithHint(cli.Usagef("lock ls takes the name of one lock, and no flags of lock"), "a lock that is called ls: `lock -- ls`")
	}
	p, err := env.Printer(output.Views()...)
	if err != nil {
		return err
	}
	client, err := env.Client(c.Context())
	if err != nil {
		return err
	}
	ctx, cancel, err := env.CommandContext(c.Context())
	if err != nil {
		return err
	}
	defer cancel()
	places, err := supervise.Queue(ctx, client, args[0])
	if err != nil {
		return err
	}
	v := queueView{Name: args[0], Queue: []placeView{}}
	for i, place := range places {
		w := newPlaceView(place, env.Now())
		if i == 0 {
			v.Holder = &w
		} else {
			v.Queue = append(v.Queue, w)
		}
	}
	return p.Print(v)
}

// queueView is a lock. Nobody has it: no holder.
type queueView struct {
	Name   string      `json:"name"`
	Holder *placeView  `json:"holder"`
	Queue  []placeView `json:"queue"` // in the order in which they will get it
}

// placeView is one key of a lock. What only our own lock writes (host, process, since) lacks
// for keys of others; Value is theirs, or an election's proposal.
type placeView struct {
	Key               string     `json:"key"`
	CreateRev         int64      `json:"createRevision"`
	Lease             string     `json:"lease,omitempty"` // hex
	TTLSeconds        int64      `json:"ttlSeconds"`      // left; -1: it has just ended
	GrantedTTLSeconds int64      `json:"grantedTTLSeconds"`
	Host              string     `json:"host,omitempty"`
	PID               int        `json:"pid,omitempty"`
	Since             *time.Time `json:"since,omitempty"` // in the queue, by that host's clock
	AgeSeconds        *int64     `json:"ageSeconds,omitempty"`
	Value             string     `json:"value,omitempty"`
	ValueBase64       []byte     `json:"valueBase64,omitempty"`
}

func newPlaceView(p supervise.Place, now time.Time) placeView {
	v := placeView{Key: p.Key, CreateRev: p.CreateRev, Lease: cli.LeaseID(int64(p.Lease)), TTLSeconds: p.TTL, GrantedTTLSeconds: p.Granted}
	m, ok := readMark(p.Value)
	if !ok {
		v.Value, v.ValueBase64 = textOrBytes(p.Value)
		return v
	}
	age := max(0, int64(now.Sub(m.Since).Seconds()))
	v.Host, v.PID, v.Since, v.AgeSeconds = m.Host, m.PID, &m.Since, &age
	return v
}

func (v queueView) Table() output.Table {
	t := output.Table{Columns: []output.Column{
		{Name: "PLACE", Keep: true}, {Name: "HOST", Keep: true}, {Name: "PID", Right: true, Keep: true}, {Name: "AGE", Right: true, Keep: true},
		{Name: "TTL", Right: true, Keep: true}, {Name: "LEASE", Keep: true}, {Name: "FENCE", Right: true, Keep: true, Wide: true}, {Name: "VALUE"},
	}}
	row := func(place string, p placeView) {
		r := []string{place, p.Host, "", "", fmt.Sprintf("%ds of %ds", p.TTLSeconds, p.GrantedTTLSeconds), p.Lease, fmt.Sprint(p.CreateRev), p.Value + string(p.ValueBase64)}
		if p.AgeSeconds != nil {
			r[2], r[3] = fmt.Sprint(p.PID), (time.Duration(*p.AgeSeconds) * time.Second).String()
		}
		if p.Lease == "" {
			r[4] = "never ends"
		}
		t.Rows = append(t.Rows, r)
	}
	if v.Holder != nil {
		row("holder", *v.Holder)
	}
	for i, p := range v.Queue {
		row(fmt.Sprint(i+1), p)
	}
	return t
}
