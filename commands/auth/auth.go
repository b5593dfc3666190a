// Package auth holds the commands on authentication: auth, user and role.
package auth

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli/reply"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

// rootName is the user, and the role, that may do everything.
const rootName = "root"

// Commands returns the commands of this package.
func Commands(env *cli.Env) []*cobra.Command {
	return []*cobra.Command{newAuthCmd(env), newUserCmd(env), newRoleCmd(env)}
}

func newAuthCmd(env *cli.Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "auth <enable or disable>",
		Short: "Enable or disable authentication",
		Long: `With authentication enabled every request needs a user who may do it; root may do
everything. Server cost: next to nothing, but a login costs the server some
milliseconds of its time each.`,
	}
	c.AddCommand(newEnableCmd(env), newDisableCmd(env), newStatusCmd(env))
	return c
}

// bare is a command without arguments.
func bare(use, short, complaint string, run func(ctx context.Context) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 0 {
				return cli.Usagef("%s", complaint)
			}
			return run(c.Context())
		},
	}
}

// answer is what every message of the server's answers has.
type answer interface {
	proto.Message
	GetHeader() *pb.ResponseHeader
}

// call makes one request and prints what simple says of it.
func call[T answer](ctx context.Context, env *cli.Env, forms reply.Form, doing string, request func(context.Context, *clientv3.Client) (T, error), print func(*reply.Printer, T) reply.Answer) error {
	p, client, ctx, cancel, err := reply.Begin(ctx, env, forms|reply.Protobuf)
	if err != nil {
		return err
	}
	defer cancel()
	r, err := request(ctx, client)
	if err != nil {
		return described(fmt.Errorf("%s: %w", doing, err))
	}
	a := print(p, r)
	a.Header, a.Message = r.GetHeader(), r
	return p.Print(a)
}

// said is an answer that is one line of text.
func said[T answer](format string, args ...any) func(*reply.Printer, T) reply.Answer {
	return func(*reply.Printer, T) reply.Answer {
		line := fmt.Sprintf(format, args...)
		return reply.Answer{
			Simple: func(b []byte) []byte { return append(append(b, line...), '\n') },
			Table: func() output.Table {
				return output.Table{Columns: []output.Column{{Name: "RESULT"}}, Rows: [][]string{{line}}}
			},
		}
	}
}

// described gives errors about users and roles their codes and hints.
func described(err error) error {
	d := *cli.Describe(err)
	switch {
	case errors.Is(err, rpctypes.ErrUserNotFound):
		d.Code, d.Hint = cli.Negative, "`user list` shows those that are there"
	case errors.Is(err, rpctypes.ErrRoleNotFound):
		d.Code, d.Hint = cli.Negative, "`role list` shows those that are there"
	case errors.Is(err, rpctypes.ErrPermissionNotGranted), errors.Is(err, rpctypes.ErrRoleNotGranted):
		d.Code = cli.Negative
	case errors.Is(err, rpctypes.ErrUserAlreadyExist), errors.Is(err, rpctypes.ErrRoleAlreadyExist):
		d.Code = cli.CantCreate
	}
	return cli.UnknownOutcome(&d, "`user list` and `role list` tell")
}

type enableOptions struct {
	env   *cli.Env
	guard cli.Guard
}

func newEnableCmd(env *cli.Env) *cobra.Command {
	o := enableOptions{env: env}
	c := bare("enable", "Enables authentication", "auth enable command does not accept any arguments", o.run)
	if !env.DropIn() {
		c.Long = `Enables authentication. From then on every client needs a user: there has to be a user
root with a password that you know, since only root can disable it again. The role
root is made and granted to it where it is missing.`
		o.guard.Define(c.Flags())
	}
	return c
}

func (o *enableOptions) run(ctx context.Context) error {
	client, err := o.env.Client(ctx)
	if err != nil {
		return err
	}
	cctx, cancel, err := o.env.CommandContext(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	if !o.env.DropIn() {
		if err := o.check(cctx, client); err != nil || o.guard.DryRun {
			return err
		}
		if err := o.guard.Ask(o.env, "enable authentication, after which every client needs a user and only root can disable it, at "+endpointsOf(client)); err != nil {
			return err
		}
	}
	if err := enable(cctx, client); err != nil {
		return described(fmt.Errorf("enable authentication: %w", err))
	}
	_, err = fmt.Fprintln(o.env.Stdout, "Authentication Enabled")
	return err
}

// check refuses what would lock everybody out.
func (o *enableOptions) check(ctx context.Context, client *clientv3.Client) error {
	r, err := client.UserGet(ctx, rootName)
	if errors.Is(err, rpctypes.ErrUserNotFound) {
		return &cli.Error{Code: cli.Refused, Err: errors.New("there is no user root: nobody could disable authentication again; nothing was changed"), Hint: "`user add root` asks for its password"}
	}
	if err != nil {
		return described(fmt.Errorf("look at user root: %w", err))
	}
	if o.guard.DryRun {
		_, err := fmt.Fprintf(o.env.Stdout, "would enable authentication; user root has the roles %q\n", r.Roles)
		return err
	}
	return nil
}

// enable makes the role root and grants it when the server misses it.
func enable(ctx context.Context, client *clientv3.Client) error {
	for {
		_, err := client.AuthEnable(ctx)
		if !errors.Is(err, rpctypes.ErrRootRoleNotExist) {
			return err
		}
		if _, err := client.RoleAdd(ctx, rootName); err != nil && !errors.Is(err, rpctypes.ErrRoleAlreadyExist) {
			return err
		}
		if _, err := client.UserGrantRole(ctx, rootName, rootName); err != nil {
			return err
		}
	}
}

func newDisableCmd(env *cli.Env) *cobra.Command {
	var guard cli.Guard
	c := bare("disable", "Disables authentication", "auth disable command does not accept any arguments", func(ctx context.Context) error {
		client, err := env.Client(ctx)
		if err != nil {
			return err
		}
		if guard.DryRun {
			_, err := fmt.Fprintln(env.Stdout, "would disable authentication")
			return err
		}
		if err := guard.Ask(env, "disable authentication, after which anybody who reaches it can read and write everything, at "+endpointsOf(client)); err != nil {
			return err
		}
		cctx, cancel, err := env.CommandContext(ctx)
		if err != nil {
			return err
		}
		defer cancel()
		if _, err := client.AuthDisable(cctx); err != nil {
			return described(fmt.Errorf("disable authentication: %w", err))
		}
		_, err = fmt.Fprintln(env.Stdout, "Authentication Disabled")
		return err
	})
	if !env.DropIn() {
		guard.Define(c.Flags())
	}
	return c
}

func newStatusCmd(env *cli.Env) *cobra.Command {
	return bare("status", "Returns authentication status", "auth status command does not accept any arguments", func(ctx context.Context) error {
		return call(ctx, env, 0, "authentication status", func(ctx context.Context, c *clientv3.Client) (*pb.AuthStatusResponse, error) {
			r, err := c.AuthStatus(ctx)
			return (*pb.AuthStatusResponse)(r), err
		}, func(_ *reply.Printer, r *pb.AuthStatusResponse) reply.Answer {
			return reply.Answer{
				Simple: func(b []byte) []byte {
					return fmt.Appendf(b, "Authentication Status: %t\nAuthRevision: %d\n", r.GetEnabled(), r.GetAuthRevision())
				},
				Table: func() output.Table {
					return output.Table{Columns: []output.Column{{Name: "ENABLED"}, {Name: "AUTH REVISION", Right: true}}, Rows: [][]string{{fmt.Sprint(r.GetEnabled()), fmt.Sprint(r.GetAuthRevision())}}}
				},
			}
		})
	})
}
