package auth

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli/reply"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

func newUserCmd(env *cli.Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "user <subcommand>",
		Short: "User related commands",
		Long:  "Server cost: next to nothing.",
	}
	c.AddCommand(newUserAddCmd(env), newUserDeleteCmd(env), newUserGetCmd(env), newUserListCmd(env), newPasswdCmd(env), newGrantRoleCmd(env), newRevokeRoleCmd(env))
	if !env.DropIn() {
		c.AddCommand(newCanICmd(env))
	}
	return c
}

// endpointsOf names a cluster in a question.
func endpointsOf(c *clientv3.Client) string { return strings.Join(c.Endpoints(), ",") }

type userAddOptions struct {
	env        *cli.Env
	password   passwordFlags
	fromFlag   string
	noPassword bool
}

func newUserAddCmd(env *cli.Env) *cobra.Command {
	o := userAddOptions{env: env}
	c := named("add <user name or user:password> [options]", "Adds a new user", "user add command requires user name as its argument", o.run)
	f := c.Flags()
	o.password.define(env, f)
	f.StringVar(&o.fromFlag, "new-user-password", "", "Supply password from the command line flag")
	f.BoolVar(&o.noPassword, "no-password", false, "Create a user without password (CN based auth only)")
	return c
}

func (o *userAddOptions) run(ctx context.Context, arg string) error {
	name, password := arg, ""
	switch inName, isIn := splitUser(arg); {
	case o.noPassword:
		if o.password.given() || o.fromFlag != "" && !o.env.DropIn() {
			return cli.Usagef("--no-password and a password exclude each other")
		}
	case o.fromFlag != "":
		o.seen()
		password = o.fromFlag
	case isIn:
		if inName == "" {
			return cli.Usagef("empty user name is not allowed")
		}
		o.seen()
		name, password = inName, arg[len(inName)+1:]
	default:
		var err error
		if password, err = o.password.read(o.env, arg); err != nil {
			return err
		}
	}
	return call(ctx, o.env, reply.Fields, fmt.Sprintf("add user %q", name), func(ctx context.Context, c *clientv3.Client) (*pb.AuthUserAddResponse, error) {
		r, err := c.UserAddWithOptions(ctx, name, password, &clientv3.UserAddOptions{NoPassword: o.noPassword})
		return (*pb.AuthUserAddResponse)(r), err
	}, said[*pb.AuthUserAddResponse]("User %s created", name))
}

// seen warns about a password that every process of the machine can read.
func (o *userAddOptions) seen() {
	if !o.env.DropIn() {
		o.env.Warn("a password on the command line is seen by every process and kept by the shell's history; --password-file and --password-stdin are not")
	}
}

func splitUser(arg string) (name string, has bool) {
	name, _, has = strings.Cut(arg, ":")
	return name, has
}

func newUserDeleteCmd(env *cli.Env) *cobra.Command {
	var guard cli.Guard
	c := named("delete <user name>", "Deletes a user", "user delete command requires user name as its argument", func(ctx context.Context, name string) error {
		if err := askFor(ctx, env, guard, fmt.Sprintf("delete user %q", name)); err != nil {
			return err
		}
		return call(ctx, env, reply.Fields, fmt.Sprintf("delete user %q", name), func(ctx context.Context, c *clientv3.Client) (*pb.AuthUserDeleteResponse, error) {
			r, err := c.UserDelete(ctx, name)
			return (*pb.AuthUserDeleteResponse)(r), err
		}, said[*pb.AuthUserDeleteResponse]("User %s deleted", name))
	})
	if !env.DropIn() {
		c.Flags().BoolVar(&guard.Yes, "yes", false, "do not ask")
	}
	return c
}

func newUserListCmd(env *cli.Env) *cobra.Command {
	return bare("list", "Lists all users", "user list command requires no arguments", func(ctx context.Context) error {
		return call(ctx, env, 0, "list users", func(ctx context.Context, c *clientv3.Client) (*pb.AuthUserListResponse, error) {
			r, err := c.UserList(ctx)
			return (*pb.AuthUserListResponse)(r), err
		}, func(_ *reply.Printer, r *pb.AuthUserListResponse) reply.Answer { return listed("USER", r.GetUsers()) })
	})
}

func newUserGetCmd(env *cli.Env) *cobra.Command {
	var detail bool
	c := named("get <user name> [options]", "Gets detailed information of a user", "user get command requires user name as its argument", func(ctx context.Context, name string) error {
		if detail {
			return userDetail(ctx, env, name)
		}
		return call(ctx, env, 0, fmt.Sprintf("get user %q", name), func(ctx context.Context, c *clientv3.Client) (*pb.AuthUserGetResponse, error) {
			r, err := c.UserGet(ctx, name)
			return (*pb.AuthUserGetResponse)(r), err
		}, func(_ *reply.Printer, r *pb.AuthUserGetResponse) reply.Answer {
			a := listed("ROLE", r.GetRoles())
			a.Simple = func(b []byte) []byte {
				b = fmt.Appendf(b, "User: %s\nRoles:", name)
				for _, role := range r.GetRoles() {
					b = append(append(b, ' '), role...)
				}
				return append(b, '\n')
			}
			return a
		})
	})
	c.Flags().BoolVar(&detail, "detail", false, "Show permissions of roles granted to the user")
	return c
}

// userView is a user with what its roles allow.
type userView struct {
	User  string     `json:"user"`
	Roles []roleView `json:"roles"`
}

func (v userView) Table() output.Table {
	t := output.Table{Columns: []output.Column{{Name: "ROLE", Keep: true}, {Name: "PERMISSION", Keep: true}, {Name: "KEYS"}}, Empty: "the user has no role"}
	for _, r := range v.Roles {
		r.rows(&t)
	}
	return t
}

// userDetail prints the roles of a user. etcdctl prints a line and then one answer after
// another, in every format; under our own name all but the text is one document.
func userDetail(ctx context.Context, env *cli.Env, name string) error {
	p, client, cctx, cancel, err := reply.Begin(ctx, env, reply.Fields|reply.Protobuf)
	if err != nil {
		return err
	}
	defer cancel()
	r, err := client.UserGet(cctx, name)
	if err != nil {
		return described(fmt.Errorf("get user %q: %w", name, err))
	}
	inTurn := env.DropIn() || p.Format == output.Simple || p.Format == output.Fields || p.Format == output.Protobuf
	if inTurn {
		if _, err := fmt.Fprintf(p.Out, "User: %s\n", name); err != nil {
			return err
		}
	}
	v := userView{User: name, Roles: []roleView{}}
	for _, role := range r.Roles {
		got, err := client.RoleGet(cctx, role)
		if err != nil {
			return described(fmt.Errorf("get role %q: %w", role, err))
		}
		answer := (*pb.AuthRoleGetResponse)(got)
		v.Roles = append(v.Roles, newRoleView(role, answer.GetPerm()))
		if !inTurn {
			continue
		}
		if _, err := fmt.Fprintln(p.Out); err != nil {
			return err
		}
		a := roleAnswer(role, answer)
		a.Header, a.Message = answer.GetHeader(), answer
		if err := p.Print(a); err != nil {
			return err
		}
	}
	if inTurn {
		return nil
	}
	return p.Printer.Print(v)
}

func newPasswdCmd(env *cli.Env) *cobra.Command {
	var flags passwordFlags
	c := named("passwd <user name> [options]", "Changes password of user", "user passwd command requires user name as its argument", func(ctx context.Context, name string) error {
		password, err := flags.read(env, name)
		if err != nil {
			return err
		}
		return call(ctx, env, reply.Fields, fmt.Sprintf("change the password of user %q", name), func(ctx context.Context, c *clientv3.Client) (*pb.AuthUserChangePasswordResponse, error) {
			r, err := c.UserChangePassword(ctx, name, password)
			return (*pb.AuthUserChangePasswordResponse)(r), err
		}, said[*pb.AuthUserChangePasswordResponse]("Password updated"))
	})
	flags.define(env, c.Flags())
	return c
}

// both is a command on a user and a role.
func both(use, short, complaint string, run func(ctx context.Context, user, role string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 2 {
				return cli.Usagef("%s", complaint)
			}
			return run(c.Context(), args[0], args[1])
		},
	}
}

func newGrantRoleCmd(env *cli.Env) *cobra.Command {
	return both("grant-role <user name> <role name>", "Grants a role to a user", "user grant command requires user name and role name as its argument", func(ctx context.Context, user, role string) error {
		return call(ctx, env, reply.Fields, fmt.Sprintf("grant role %q to user %q", role, user), func(ctx context.Context, c *clientv3.Client) (*pb.AuthUserGrantRoleResponse, error) {
			r, err := c.UserGrantRole(ctx, user, role)
			return (*pb.AuthUserGrantRoleResponse)(r), err
		}, said[*pb.AuthUserGrantRoleResponse]("Role %s is granted to user %s", role, user))
	})
}

func newRevokeRoleCmd(env *cli.Env) *cobra.Command {
	return both("revoke-role <user name> <role name>", "Revokes a role from a user", "user revoke-role requires user name and role name as its argument", func(ctx context.Context, user, role string) error {
		return call(ctx, env, reply.Fields, fmt.Sprintf("revoke role %q from user %q", role, user), func(ctx context.Context, c *clientv3.Client) (*pb.AuthUserRevokeRoleResponse, error) {
			r, err := c.UserRevokeRole(ctx, user, role)
			return (*pb.AuthUserRevokeRoleResponse)(r), err
		}, said[*pb.AuthUserRevokeRoleResponse]("Role %s is revoked from user %s", role, user))
	})
}
