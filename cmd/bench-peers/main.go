//go:build linux

// Command bench-peers measures etcdctl-plus beside the programs it competes with,
// on the same data in the same run: wall time, peak and anonymous memory, and how
// long another client's puts take meanwhile. It prints the table that
// docs/performance.md holds.
//
//	go run ./cmd/bench-peers            # makes the data on first use, about two minutes
//	go run ./cmd/bench-peers --small    # small data, for a smoke test
//	go run ./cmd/bench-peers --only keys,dump --runs 5
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "peer" {
		if err := peer(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := bench(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-peers:", err)
		os.Exit(1)
	}
}

type options struct {
	dir   string
	small bool
	runs  int
	only  string
}

func bench(ctx context.Context) error {
	var o options
	flag.StringVar(&o.dir, "dir", filepath.Join(os.TempDir(), "etcdctl-plus-bench"), "folder for data and programs, kept between runs")
	flag.BoolVar(&o.small, "small", false, "small data, for a smoke test")
	flag.IntVar(&o.runs, "runs", 5, "runs of each command; the median counts")
	flag.StringVar(&o.only, "only", "", "only these groups, comma-separated")
	flag.Parse()
	if o.small {
		o.dir += "-small"
	}
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return err
	}
	b := &bencher{options: o}
	if err := b.programs(ctx); err != nil {
		return err
	}
	if err := b.databases(ctx); err != nil {
		return err
	}
	fmt.Println(header)
	for _, g := range groups {
		if o.only != "" && !slices.Contains(strings.Split(o.only, ","), g.name) {
			continue
		}
		if err := g.run(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
	}
	return nil
}

type bencher struct {
	options
	ours, etcdctl, etcdutl, etcd, self string
	large, revisions                   string // databases
}

const header = "| what | ours | peer | ratio | ours: peak / anonymous | peer: peak / anonymous | put p99 idle / ours / peer |\n|---|---|---|---|---|---|---|"
