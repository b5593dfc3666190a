// Package mirror holds the command make-mirror.
package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/config"
	"github.com/etcdctl-plus/etcdctl-plus/watchtail/mirror"
)

type options struct {
	env                *cli.Env
	mirror             mirror.Options
	maxTxnOps          uint
	noDestPrefix       bool
	dropLeases         bool
	cert, key, caCert  string
	insecure           bool
	user, passwordText string
}

// New returns the command.
func New(env *cli.Env) *cobra.Command {
	o := options{env: env}
	c := &cobra.Command{
		Use:   "make-mirror [options] <destination>",
		Short: "Makes a mirror at the destination etcd cluster",
		Long: `Copies all keys, or those of a prefix, into another cluster, and then every change as
long as it runs, a revision in one transaction. Every 30 seconds it prints how many keys
and changes it has written. Keys that only the destination has stay there.

With --rev it begins with the changes of that revision, without a copy.

Server cost: the keys are read once, pinned to one revision, from a follower where there
is one; then it is one watch. With --rev far in the past the source reads its whole backlog
again while its writes wait.`,
		Example: "  etcdctl-plus make-mirror --prefix /app/ --dest-prefix /copy/ 10.0.0.9:2379",
		Args:    cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.complete(args); err != nil {
				return err
			}
			return o.run(c.Context(), args[0])
		},
	}
	f := c.Flags()
	f.StringVar(&o.mirror.Prefix, "prefix", "", "Key-value prefix to mirror")
	f.Int64Var(&o.mirror.Rev, "rev", 0, "Specify the kv revision to start to mirror")
	f.UintVar(&o.maxTxnOps, "max-txn-ops", 128, "Maximum number of operations permitted in a transaction during syncing updates.")
	f.StringVar(&o.mirror.DestPrefix, "dest-prefix", "", "destination prefix to mirror a prefix to a different prefix in the destination cluster")
	f.BoolVar(&o.noDestPrefix, "no-dest-prefix", false, "mirror key-values to the root of the destination cluster")
	f.StringVar(&o.cert, "dest-cert", "", "Identify secure client using this TLS certificate file for the destination cluster")
	f.StringVar(&o.key, "dest-key", "", "Identify secure client using this TLS key file")
	f.StringVar(&o.caCert, "dest-cacert", "", "Verify certificates of TLS enabled secure servers using this CA bundle")
	f.BoolVar(&o.insecure, "dest-insecure-transport", true, "Disable transport security for client connections")
	f.StringVar(&o.user, "dest-user", "", "Destination username[:password] for authentication (prompt if password is not supplied)")
	f.StringVar(&o.passwordText, "dest-password", "", "Destination password for authentication (if this option is used, --user option shouldn't include password)")
	if !env.DropIn() {
		c.Long += `

A key with a lease gets one of the same time to live at the destination, which is kept
alive while the source has the key and we run: when the mirror ends, such keys expire
there. With --drop-leases they have none, and stay.`
		f.BoolVar(&o.dropLeases, "drop-leases", false, "keys have no lease at the destination")
	}
	return c
}

func (o *options) complete(args []string) error {
	switch {
	case len(args) != 1:
		return cli.Usagef("make-mirror takes one destination argument")
	case o.noDestPrefix && o.mirror.DestPrefix != "":
		return cli.Usagef("`--dest-prefix` and `--no-dest-prefix` cannot be set at the same time, choose one")
	case o.maxTxnOps == 0:
		return cli.Usagef("--max-txn-ops is at least 1")
	case o.mirror.Rev < 0 && !o.env.DropIn():
		return cli.Usagef("--rev cannot be negative")
	}
	if o.mirror.DestPrefix == "" && !o.noDestPrefix {
		o.mirror.DestPrefix = o.mirror.Prefix // also with --rev, where etcdctl forgets it
	}
	o.mirror.MaxTxnOps = int(min(o.maxTxnOps, 1<<20))
	o.mirror.Leases = !o.dropLeases && !o.env.DropIn()
	return nil
}

// toldEvery is how often etcdctl prints its count.
const toldEvery = 30 * time.Second

func (o *options) run(ctx context.Context, destination string) error {
	s, err := o.env.Settings()
	if err != nil {
		return err
	}
	to, err := cli.Dial(ctx, o.destination(s, destination), o.env.AskPassword)
	if err != nil {
		return fmt.Errorf("destination: %w", err)
	}
	defer to.Close()
	from, err := o.env.Client(ctx)
	if err != nil {
		return err
	}
	if err := o.notItself(ctx, from, to); err != nil {
		return err
	}
	var flags cli.SourceFlags
	src, err := flags.Live(ctx, o.env, false)
	if err != nil {
		return err
	}
	o.mirror.KeyPrefix, o.mirror.Timeout = []byte(s.KeyPrefix), s.CommandTimeout
	m := mirror.New(from, to, src, o.mirror)
	defer m.Close()
	stop := o.tell(m)
	err = m.Run(ctx)
	stop()
	if n := m.Leased(); n > 0 && !o.mirror.Leases {
		o.env.Warn("%d of what was mirrored had a lease; at the destination it has none, and stays until it is deleted", n)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("mirror: %w; %d keys and changes are written", err, m.Total())
}

// tell prints the count now and then. What it returns ends that.
func (o *options) tell(m *mirror.Mirror) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for t := time.NewTicker(toldEvery); ; {
			select {
			case <-done:
				t.Stop()
				return
			case <-t.C:
				_, err := fmt.Fprintln(o.env.Stdout, m.Total())
				if errors.Join(err, o.env.Flush()) != nil {
					return // nobody listens; the mirror goes on
				}
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// destination are the settings of the other cluster: its own address, certificates and
// user, and our times and sizes.
func (o *options) destination(s *config.Settings, endpoint string) *config.Settings {
	d := *s
	d.Endpoints, d.EndpointsFrom = []string{endpoint}, "argument"
	d.DiscoverySRV, d.DiscoverySRVName = "", ""
	d.Cert, d.Key, d.CACert = o.cert, o.key, o.caCert
	d.InsecureTransport, d.InsecureSkipTLSVerify = o.insecure, false
	d.User, d.Password, d.AuthToken = o.user, o.passwordText, ""
	d.KeyPrefix = ""
	return &d
}

// notItself refuses a mirror that would feed itself. That a cluster is the same is told by
// its members' addresses too: one that was restored can have the other's id.
func (o *options) notItself(ctx context.Context, from, to *clientv3.Client) error {
	if o.env.DropIn() || !strings.HasPrefix(o.mirror.DestPrefix, o.mirror.Prefix) {
		return nil
	}
	var names [2]string
	for i, c := range []*clientv3.Client{from, to} {
		cctx, cancel, err := o.env.CommandContext(ctx)
		if err != nil {
			return err
		}
		r, err := c.MemberList(cctx)
		cancel()
		if err != nil {
			return fmt.Errorf("members of %s: %w", strings.Join(c.Endpoints(), ","), err)
		}
		var urls []string
		for _, m := range r.Members {
			urls = append(urls, m.GetClientURLs()...)
		}
		slices.Sort(urls)
		names[i] = fmt.Sprintf("%x at %s", r.Header.GetClusterId(), strings.Join(urls, ","))
	}
	if names[0] == names[1] {
		return &cli.Error{Code: cli.Refused, Err: fmt.Errorf("source and destination are one cluster, %s, and what is mirrored would be mirrored again; nothing was changed", names[0]),
			Hint: "to copy a prefix within a cluster give it a --dest-prefix that does not begin with it"}
	}
	return nil
}
