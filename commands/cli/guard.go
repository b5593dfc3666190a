package cli

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Guard stands in front of what changes or removes something.
type Guard struct {
	Yes    bool
	DryRun bool
}

// Define adds the flags. As etcdctl a command has none of them, and nothing asks.
func (g *Guard) Define(f *pflag.FlagSet) {
	f.BoolVar(&g.Yes, "yes", false, "do not ask")
	f.BoolVar(&g.DryRun, "dry-run", false, "say what would be done, and do nothing")
}

// Ask asks on a terminal whether to go on. Without a terminal and without --yes it is
// refused. The question ends without a question mark.
func (g *Guard) Ask(env *Env, question string) error {
	if g.Yes || env.DropIn() {
		return nil
	}
	if !env.StdinTTY || !env.StderrTTY {
		return &Error{Code: Refused, Err: fmt.Errorf("%s: not without --yes, where nobody can be asked; nothing was changed", question), Hint: "--dry-run shows what would be done"}
	}
	fmt.Fprintf(env.Stderr, "%s? Type yes to go on: ", question)
	line, err := bufio.NewReader(env.Stdin).ReadString('\n')
	if strings.TrimSpace(line) != "yes" || err != nil {
		return &Error{Code: Refused, Err: fmt.Errorf("%s: the answer was not yes; nothing was changed", question)}
	}
	return nil
}

// ClusterName names the cluster that a client talks to, for questions: its id, and the
// endpoints.
func ClusterName(ctx context.Context, env *Env, client *clientv3.Client) (string, error) {
	ctx, cancel, err := env.CommandContext(ctx)
	if err != nil {
		return "", err
	}
	defer cancel()
	r, err := client.Get(ctx, "\x00", clientv3.WithCountOnly(), clientv3.WithSerializable())
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("cluster %x at %s", r.Header.ClusterId, strings.Join(client.Endpoints(), ",")), nil
}
