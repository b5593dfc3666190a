package auth

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli/reply"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

func newRoleCmd(env *cli.Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "role <subcommand>",
		Short: "Role related commands",
		Long:  "A role is a list of key ranges that its users may read or write. Server cost: next to nothing.",
	}
	c.AddCommand(newRoleAddCmd(env), newRoleDeleteCmd(env), newRoleGetCmd(env), newRoleListCmd(env), newGrantPermissionCmd(env), newRevokePermissionCmd(env))
	return c
}

// named is a command with one argument.
func named(use, short, complaint string, run func(ctx context.Context, name string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Usagef("%s", complaint)
			}
			return run(c.Context(), args[0])
		},
	}
}

func newRoleAddCmd(env *cli.Env) *cobra.Command {
	return named("add <role name>", "Adds a new role", "role add command requires role name as its argument", func(ctx context.Context, name string) error {
		return call(ctx, env, reply.Fields, fmt.Sprintf("add role %q", name), func(ctx context.Context, c *clientv3.Client) (*pb.AuthRoleAddResponse, error) {
			r, err := c.RoleAdd(ctx, name)
			return (*pb.AuthRoleAddResponse)(r), err
		}, said[*pb.AuthRoleAddResponse]("Role %s created", name))
	})
}

func newRoleDeleteCmd(env *cli.Env) *cobra.Command {
	var guard cli.Guard
	c := named("delete <role name>", "Deletes a role", "role delete command requires role name as its argument", func(ctx context.Context, name string) error {
		if err := askFor(ctx, env, guard, fmt.Sprintf("delete role %q, which its users lose", name)); err != nil {
			return err
		}
		return call(ctx, env, reply.Fields, fmt.Sprintf("delete role %q", name), func(ctx context.Context, c *clientv3.Client) (*pb.AuthRoleDeleteResponse, error) {
			r, err := c.RoleDelete(ctx, name)
			return (*pb.AuthRoleDeleteResponse)(r), err
		}, said[*pb.AuthRoleDeleteResponse]("Role %s deleted", name))
	})
	if !env.DropIn() {
		c.Flags().BoolVar(&guard.Yes, "yes", false, "do not ask")
	}
	return c
}

// askFor asks before something of a cluster is gone.
func askFor(ctx context.Context, env *cli.Env, guard cli.Guard, question string) error {
	if env.DropIn() || guard.Yes {
		return nil
	}
	client, err := env.Client(ctx)
	if err != nil {
		return err
	}
	return guard.Ask(env, question+", at "+endpointsOf(client))
}

func newRoleListCmd(env *cli.Env) *cobra.Command {
	return bare("list", "Lists all roles", "role list command requires no arguments", func(ctx context.Context) error {
		return call(ctx, env, reply.Fields, "list roles", func(ctx context.Context, c *clientv3.Client) (*pb.AuthRoleListResponse, error) {
			r, err := c.RoleList(ctx)
			return (*pb.AuthRoleListResponse)(r), err
		}, func(_ *reply.Printer, r *pb.AuthRoleListResponse) reply.Answer {
			a := listed("ROLE", r.GetRoles())
			a.Fields = func(b []byte) []byte {
				b = append(b, `"Roles" :`...)
				for _, name := range r.GetRoles() {
					b = fmt.Appendf(b, " %q", name)
				}
				return append(b, '\n')
			}
			return a
		})
	})
}

// listed is an answer of names, one a line.
func listed(title string, names []string) reply.Answer {
	return reply.Answer{
		Simple: func(b []byte) []byte {
			for _, n := range names {
				b = append(append(b, n...), '\n')
			}
			return b
		},
		Table: func() output.Table {
			t := output.Table{Columns: []output.Column{{Name: title}}, Empty: "none"}
			for _, n := range names {
				t.Rows = append(t.Rows, []string{n})
			}
			return t
		},
	}
}

func newRoleGetCmd(env *cli.Env) *cobra.Command {
	return named("get <role name>", "Gets detailed information of a role", "role get command requires role name as its argument", func(ctx context.Context, name string) error {
		return call(ctx, env, reply.Fields, fmt.Sprintf("get role %q", name), func(ctx context.Context, c *clientv3.Client) (*pb.AuthRoleGetResponse, error) {
			r, err := c.RoleGet(ctx, name)
			return (*pb.AuthRoleGetResponse)(r), err
		}, func(_ *reply.Printer, r *pb.AuthRoleGetResponse) reply.Answer { return roleAnswer(name, r) })
	})
}

func roleAnswer(name string, r *pb.AuthRoleGetResponse) reply.Answer {
	return reply.Answer{
		View:   newRoleView(name, r.GetPerm()),
		Simple: func(b []byte) []byte { return appendRole(b, name, r.GetPerm()) },
		Fields: func(b []byte) []byte {
			for _, p := range r.GetPerm() {
				// etcdctl has two spaces there.
				b = fmt.Appendf(b, "\"PermType\" :  %s\n\"Key\" : %q\n\"RangeEnd\" : %q\n", p.GetPermType(), string(p.GetKey()), string(p.GetRangeEnd()))
			}
			return b
		},
	}
}

// appendRole appends etcdctl's text.
func appendRole(b []byte, name string, perms []*authpb.Permission) []byte {
	b = fmt.Appendf(b, "Role %s\n", name)
	if name == rootName && perms == nil {
		return append(b, "KV Read:\n\t[, <open ended>\nKV Write:\n\t[, <open ended>\n"...)
	}
	for _, half := range []struct {
		title string
		of    authpb.Permission_Type
	}{{"KV Read:\n", authpb.READ}, {"KV Write:\n", authpb.WRITE}} {
		b = append(b, half.title...)
		for _, p := range perms {
			if t := p.GetPermType(); t == half.of || t == authpb.READWRITE {
				b = append(append(append(b, '\t'), rangeText(p)...), '\n')
			}
		}
	}
	return b
}

// rangeText is a range as etcdctl writes it.
func rangeText(p *authpb.Permission) string {
	key, end := string(p.GetKey()), string(p.GetRangeEnd())
	if end == "" {
		return key
	}
	text := fmt.Sprintf("[%s, %s)", key, end)
	if end == "\x00" {
		text = fmt.Sprintf("[%s, <open ended>", key)
	}
	if key != "" && clientv3.GetPrefixRangeEnd(key) == end {
		text += fmt.Sprintf(" (prefix %s)", key)
	}
	return text
}

// roleView is a role in our own formats.
type roleView struct {
	Role        string     `json:"role"`
	Permissions []permView `json:"permissions"`
}

type permView struct {
	Permission string `json:"permission"` // READ, WRITE, READWRITE
	Key        string `json:"key"`
	RangeEnd   string `json:"rangeEnd,omitempty"`
	Prefix     bool   `json:"prefix,omitempty"`
	FromKey    bool   `json:"fromKey,omitempty"` // to the end of the keyspace
}

func newRoleView(name string, perms []*authpb.Permission) roleView {
	v := roleView{Role: name, Permissions: []permView{}}
	if name == rootName && perms == nil {
		v.Permissions = append(v.Permissions, permView{Permission: "READWRITE", FromKey: true})
	}
	for _, p := range perms {
		one := permView{Permission: p.GetPermType().String(), Key: string(p.GetKey()), RangeEnd: string(p.GetRangeEnd())}
		switch {
		case one.RangeEnd == "\x00":
			one.FromKey, one.RangeEnd = true, ""
		case one.RangeEnd != "" && clientv3.GetPrefixRangeEnd(one.Key) == one.RangeEnd:
			one.Prefix = true
		}
		v.Permissions = append(v.Permissions, one)
	}
	return v
}

func (v roleView) Table() output.Table {
	t := output.Table{Columns: []output.Column{{Name: "ROLE", Keep: true}, {Name: "PERMISSION", Keep: true}, {Name: "KEYS"}}}
	v.rows(&t)
	return t
}

func (v roleView) rows(t *output.Table) {
	for _, p := range v.Permissions {
		keys := p.Key
		switch {
		case p.FromKey:
			keys = fmt.Sprintf("from %q on", p.Key)
		case p.Prefix:
			keys += "…"
		case p.RangeEnd != "":
			keys = fmt.Sprintf("[%s, %s)", p.Key, p.RangeEnd)
		}
		t.Rows = append(t.Rows, []string{v.Role, p.Permission, keys})
	}
}

// span is `KEY [END]` with --prefix and --from-key, as permissions take it.
type span struct {
	prefix, fromKey bool
	key, end        string
}

func (s *span) define(f *pflag.FlagSet, verb string) {
	f.BoolVar(&s.prefix, "prefix", false, verb+" a prefix permission")
	f.BoolVar(&s.fromKey, "from-key", false, verb+" a permission of keys that are greater than or equal to the given key using byte compare")
}

func (s *span) complete(args []string) error {
	s.key = args[0]
	switch {
	case s.prefix && s.fromKey:
		return cli.Usagef("--from-key and --prefix flags are mutually exclusive")
	case s.key == "": // all keys, or the first one
		if s.key = "\x00"; s.prefix || s.fromKey {
			s.end = "\x00"
		}
	case len(args) > 1 && s.prefix:
		return cli.Usagef("unexpected endkey argument with --prefix flag")
	case len(args) > 1 && s.fromKey:
		return cli.Usagef("unexpected endkey argument with --from-key flag")
	case len(args) > 1:
		s.end = args[1]
	case s.prefix:
		s.end = clientv3.GetPrefixRangeEnd(s.key)
	case s.fromKey:
		s.end = "\x00"
	}
	return nil
}

func newGrantPermissionCmd(env *cli.Env) *cobra.Command {
	var s span
	c := &cobra.Command{
		Use:   "grant-permission [options] <role name> <permission type> <key> [endkey]",
		Short: "Grants a key to a role",
		Long:  "Lets a role read, write or readwrite a key, a range [key, endkey), a prefix, or all keys from one on.",
		Args:  cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) < 3 {
				return cli.Usagef("role grant command requires role name, permission type, and key [endkey] as its argument")
			}
			perm, err := clientv3.StrToPermissionType(args[1])
			if err != nil {
				return cli.WithHint(cli.Usagef("%v", err), "permissions are read, write and readwrite")
			}
			if err := s.complete(args[2:]); err != nil {
				return err
			}
			return call(c.Context(), env, reply.Fields, fmt.Sprintf("grant role %q a permission", args[0]), func(ctx context.Context, c *clientv3.Client) (*pb.AuthRoleGrantPermissionResponse, error) {
				r, err := c.RoleGrantPermission(ctx, args[0], s.key, s.end, perm)
				return (*pb.AuthRoleGrantPermissionResponse)(r), err
			}, said[*pb.AuthRoleGrantPermissionResponse]("Role %s updated", args[0]))
		},
	}
	s.define(c.Flags(), "grant")
	return c
}

func newRevokePermissionCmd(env *cli.Env) *cobra.Command {
	var s span
	c := &cobra.Command{
		Use:   "revoke-permission <role name> <key> [endkey]",
		Short: "Revokes a key from a role",
		Args:  cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) < 2 {
				return cli.Usagef("role revoke-permission command requires role name and key [endkey] as its argument")
			}
			if err := s.complete(args[1:]); err != nil {
				return err
			}
			text := fmt.Sprintf("Permission of key %s is revoked from role %s", args[1], args[0])
			switch {
			case s.end == "\x00":
				text = fmt.Sprintf("Permission of range [%s, <open ended> is revoked from role %s", args[1], args[0])
			case s.end != "":
				text = fmt.Sprintf("Permission of range [%s, %s) is revoked from role %s", args[1], s.end, args[0])
			}
			return call(c.Context(), env, reply.Fields, fmt.Sprintf("revoke a permission of role %q", args[0]), func(ctx context.Context, c *clientv3.Client) (*pb.AuthRoleRevokePermissionResponse, error) {
				r, err := c.RoleRevokePermission(ctx, args[0], s.key, s.end)
				return (*pb.AuthRoleRevokePermissionResponse)(r), err
			}, said[*pb.AuthRoleRevokePermissionResponse]("%s", text))
		},
	}
	s.define(c.Flags(), "revoke")
	return c
}

var errNoRole = errors.New("no role of the user allows it")
