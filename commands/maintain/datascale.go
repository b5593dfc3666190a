package maintain

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/perf"
)

// datascaleLoads are etcdctl's: keys, and connections. A key and its value have 512 bytes each.
var datascaleLoads = map[string]struct{ keys, clients int }{"s": {10_000, 50}, "m": {100_000, 200}, "l": {1_000_000, 500}, "xl": {3_000_000, 1000}}

func newDatascaleCmd(env *cli.Env) *cobra.Command {
	o := checkOptions{env: env}
	c := &cobra.Command{
		Use:   "datascale [options]",
		Short: "Check the memory usage of holding data for different workloads on a given server endpoint",
		Long: `Writes keys of 1 KB as fast as they are taken, 10,000 for s, 100,000 for m, 1,000,000 for l
and 3,000,000 for xl, and tells how much the memory of the first endpoint's server has
grown, which it reads from the server's metrics.

Server cost: all these writes, and as much space in the database: m needs 0.2 GB of its
quota, l 2 GB, xl 6 GB. The keys are deleted in one transaction under the name etcdctl,
which stops other writes meanwhile, and a thousand at a time under our own.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			size, err := o.size(args)
			if err != nil {
				return err
			}
			return o.datascale(c.Context(), size)
		},
	}
	o.define(c.Flags(), "datascale", "/etcdctl-check-datascale/", "The datascale check's workload model. Accepted workloads: s(small), m(medium), l(large), xl(xLarge)")
	return c
}

func (o *checkOptions) datascale(ctx context.Context, size string) error {
	p, err := o.form()
	if err != nil {
		return err
	}
	s, err := o.env.Settings()
	if err != nil {
		return err
	}
	load := datascaleLoads[size]
	clients, err := o.connect(ctx, load.clients)
	if err != nil {
		return err
	}
	if done, err := o.ask(ctx, p, clients[0], fmt.Sprintf("write %d keys of 1 KB", load.keys)); err != nil || done {
		return err
	}
	before, err := o.resident(ctx, "before")
	if err != nil {
		return err
	}
	o.say("Start data scale check for work load [%d key-value pairs, 1024 bytes per key-value, %d concurrent clients].\n", load.keys, load.clients)
	line := o.env.Progress("keys written")
	var written atomic.Int64
	stats := perf.Run(ctx, clients, o.prefix, perf.Load{
		Keys: load.keys, KeyBytes: 512, ValBytes: 512, Timeout: s.CommandTimeout,
		WriteDone: func() { line.Set(written.Add(1), int64(load.keys)) },
	})
	line.Done()
	var after int64
	if ctx.Err() == nil {
		after, err = o.resident(ctx, "after")
	}
	err = errors.Join(err, o.cleanup(ctx, clients[0]))
	if ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	if err != nil {
		return err
	}
	v := newCheckView(stats)
	v.failures()
	if grown := after - before; v.Pass {
		v.MemoryBytes = &grown
		v.say("PASS: Approximate system memory used : %.2f MB.", float64(grown)/(1024*1024))
	}
	return v.end(p)
}

// resident asks the first endpoint for its server's memory.
func (o *checkOptions) resident(ctx context.Context, when string) (int64, error) {
	s, err := o.env.Settings()
	if err != nil {
		return 0, err
	}
	cfg, err := cli.ClientConfig(ctx, s, o.env.AskPassword)
	if err != nil {
		return 0, err
	}
	url := cfg.Endpoints[0]
	if !strings.Contains(url, "://") {
		scheme := "http://"
		if cfg.TLS != nil {
			scheme = "https://"
		}
		url = scheme + url
	}
	transport := &http.Transport{TLSClientConfig: cfg.TLS, DisableKeepAlives: true}
	n, err := perf.Resident(ctx, &http.Client{Transport: transport, Timeout: max(s.CommandTimeout, time.Second)}, strings.TrimSuffix(url, "/")+"/metrics")
	if err != nil {
		if o.env.DropIn() {
			o.say("FAIL: Could not read process_resident_memory_bytes %s the put operations.\n", when)
		}
		return 0, cli.WithHint(fmt.Errorf("the memory of the server %s the load: %w", when, err), "the first endpoint must serve /metrics, as etcd does on its client port unless --listen-metrics-urls moves it")
	}
	return n, nil
}
