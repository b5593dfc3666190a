package maintain

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/perf"
)

type perfOptions struct {
	checkOptions
	duration time.Duration
}

// perfLoads are etcdctl's: writes a second, and connections.
var perfLoads = map[string]struct{ rate, clients int }{"s": {150, 50}, "m": {1000, 200}, "l": {8000, 500}, "xl": {15000, 1000}}

func newPerfCmd(env *cli.Env) *cobra.Command {
	o := perfOptions{checkOptions: checkOptions{env: env}, duration: time.Minute}
	c := &cobra.Command{
		Use:   "perf [options]",
		Short: "Check the performance of the etcd cluster",
		Long: `Writes keys of 256 bytes with values of 1 KB at a steady rate for a minute: 150 a second
for s, 1000 for m, 8000 for l, 15000 for xl. It passes when 90 % of that is reached, no
write takes longer than 0.5 s, and the standard deviation is at most 0.1 s.

Server cost: all these writes, from 50 (s) to 1000 (xl) connections; everybody else's
writes wait among them.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			size, err := o.size(args)
			if err != nil {
				return err
			}
			if o.duration < time.Second {
				return cli.Usagef("--duration is at least 1s")
			}
			return o.run(c.Context(), size)
		},
	}
	o.define(c.Flags(), "performance", "/etcdctl-check-perf/", "The performance check's workload model. Accepted workloads: s(small), m(medium), l(large), xl(xLarge). Different workload models use different configurations in terms of number of clients and expected throughput.")
	_ = c.RegisterFlagCompletionFunc("load", cobra.FixedCompletions([]string{"small", "medium", "large", "xLarge"}, cobra.ShellCompDirectiveDefault)) // only fails for a flag that is not there
	if !env.DropIn() {
		c.Flags().DurationVar(&o.duration, "duration", time.Minute, "how long to write")
	}
	return c
}

func (o *perfOptions) run(ctx context.Context, size string) error {
	p, err := o.form()
	if err != nil {
		return err
	}
	s, err := o.env.Settings()
	if err != nil {
		return err
	}
	load := perfLoads[size]
	clients, err := o.connect(ctx, load.clients)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("write %d keys of 1.3 KB, %d a second", int(float64(load.rate)*o.duration.Seconds()), load.rate)
	if done, err := o.ask(ctx, p, clients[0], what); err != nil || done {
		return err
	}
	stop := o.progress()
	stats := perf.Run(ctx, clients, o.prefix, perf.Load{Rate: load.rate, Duration: o.duration, KeyBytes: 256, ValBytes: 1024, Timeout: s.CommandTimeout})
	stop()
	err = o.cleanup(ctx, clients[0])
	if ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	if err != nil {
		return err
	}
	return perfView(stats, load.rate).end(p)
}

// progress draws the seconds on a terminal until stop is called.
func (o *perfOptions) progress() (stop func()) {
	line := o.env.Progress("seconds")
	ticker, done, ended := time.NewTicker(time.Second), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for n := int64(1); ; n++ {
			select {
			case <-ticker.C:
				line.Set(n, int64(o.duration.Seconds()))
			case <-done:
				return
			}
		}
	}()
	return func() {
		ticker.Stop()
		close(done)
		<-ended
		line.Done()
	}
}

// perfView judges as etcdctl does.
func perfView(s perf.Stats, rate int) checkView {
	v := newCheckView(s)
	v.failures()
	judge := func(ok bool, pass, fail string) {
		if ok {
			v.say("PASS: %s", pass)
			return
		}
		v.Pass = false
		v.say("%s", fail)
	}
	rps := int(s.Rate()) + 1
	judge(s.Rate()/float64(rate) > 0.9, fmt.Sprintf("Throughput is %d writes/s", rps), fmt.Sprintf("FAIL: Throughput too low: %d writes/s", rps))
	slowest, stddev := s.Slowest.Seconds(), s.Stddev.Seconds()
	judge(slowest <= 0.5, fmt.Sprintf("Slowest request took %fs", slowest), fmt.Sprintf("Slowest request took too long: %fs", slowest))
	judge(stddev <= 0.1, fmt.Sprintf("Stddev is %fs", stddev), fmt.Sprintf("Stddev too high: %fs", stddev))
	if v.Pass {
		v.say("PASS")
	} else {
		v.say("FAIL")
	}
	return v
}
