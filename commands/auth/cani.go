package auth

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type canIOptions struct {
	env  *cli.Env
	span span
}

func newCanICmd(env *cli.Env) *cobra.Command {
	o := canIOptions{env: env}
	c := &cobra.Command{
		Use:   "can-i USER get|put|del KEY [END]",
		Short: "Tell whether a user may read or write keys",
		Long: `Tells whether a user's roles allow a request, and which of them; no ends with exit code
4. Whoever asks has to be allowed to look at the user: root, or the user itself.`,
		Example: `  etcdctl-plus user can-i app get /config/ --prefix
  etcdctl-plus user can-i app put /config/a && echo yes`,
		Args: cobra.RangeArgs(3, 4),
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.span.complete(args[2:]); err != nil {
				return err
			}
			return o.run(c.Context(), args[0], args[1])
		},
	}
	f := c.Flags()
	f.BoolVar(&o.span.prefix, "prefix", false, "all keys that begin with KEY")
	f.BoolVar(&o.span.fromKey, "from-key", false, "all keys from KEY on")
	return c
}

type canIView struct {
	User    string   `json:"user"`
	Request string   `json:"request"`
	Allowed bool     `json:"allowed"`
	By      []string `json:"by,omitempty"` // roles that allow it together
}

func (v canIView) Text() string {
	if v.Allowed {
		return "yes\n"
	}
	return "no\n"
}

func (v canIView) Table() output.Table {
	t := output.Table{Columns: []output.Column{{Name: "ALLOWED"}, {Name: "BY"}}}
	answer := "no"
	if v.Allowed {
		answer = "yes"
	}
	for _, r := range v.By {
		t.Rows = append(t.Rows, []string{answer, r})
	}
	if len(t.Rows) == 0 {
		t.Rows = [][]string{{answer, ""}}
	}
	return t
}

func (o *canIOptions) run(ctx context.Context, user, verb string) error {
	need, ok := map[string]inspect.Access{"get": inspect.Read, "put": inspect.Write, "del": inspect.Write}[verb]
	if !ok {
		return cli.Usagef("%q is none of get, put and del", verb)
	}
	if verb == "put" && o.span.end != "" {
		return cli.Usagef("put is of one key")
	}
	p, err := o.env.Printer(append([]output.Format{output.Simple}, output.Views()...)...)
	if err != nil {
		return err
	}
	client, err := o.env.Client(ctx)
	if err != nil {
		return err
	}
	cctx, cancel, err := o.env.CommandContext(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	grants, err := grantsOf(cctx, client, user)
	if err != nil {
		return err
	}
	by, allowed := inspect.Allowed(grants, need, []byte(o.span.key), []byte(o.span.end))
	v := canIView{User: user, Request: verb, Allowed: allowed, By: by}
	if err := p.Print(v); err != nil || allowed {
		return err
	}
	return &cli.Error{Code: cli.Negative, Err: fmt.Errorf("user %q may not %s that: %w", user, verb, errNoRole), Hint: fmt.Sprintf("`user get %s --detail` shows what it may", user)}
}

// grantsOf are the permissions of all roles of a user.
func grantsOf(ctx context.Context, client *clientv3.Client, user string) ([]inspect.Grant, error) {
	r, err := client.UserGet(ctx, user)
	if err != nil {
		return nil, described(fmt.Errorf("get user %q: %w", user, err))
	}
	var all []inspect.Grant
	for _, role := range r.Roles {
		if role == rootName {
			all = append(all, inspect.Grant{Role: role, Access: inspect.Read | inspect.Write, Key: []byte{0}, End: []byte{0}})
			continue
		}
		got, err := client.RoleGet(ctx, role)
		if err != nil {
			return nil, described(fmt.Errorf("get role %q: %w", role, err))
		}
		for _, p := range (*pb.AuthRoleGetResponse)(got).GetPerm() {
			// READ 0, WRITE 1, READWRITE 2
			access := []inspect.Access{inspect.Read, inspect.Write, inspect.Read | inspect.Write}[p.GetPermType()]
			all = append(all, inspect.Grant{Role: role, Access: access, Key: p.GetKey(), End: p.GetRangeEnd()})
		}
	}
	return all, nil
}
