package context

import (
	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/config"
)

type useOptions struct {
	env  *cli.Env
	name string
	none bool
}

func newUseCmd(env *cli.Env) *cobra.Command {
	o := useOptions{env: env}
	c := &cobra.Command{
		Use:   "use NAME",
		Short: "Make a context the current one",
		Long: `Make a context the current one: it counts for every command that is given no other.
--none goes back to none. A variable ETCDCTL_PLUS_CONTEXT still wins, which is told.`,
		Example: `  etcdctl-plus context use prod
  etcdctl-plus context use --none`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: names(env),
		RunE: func(_ *cobra.Command, args []string) error {
			if (len(args) == 1) == o.none || len(args) == 1 && args[0] == "" {
				return cli.Usagef("give the name of a context, or --none")
			}
			if len(args) == 1 {
				o.name = args[0]
			}
			return o.run()
		},
	}
	c.Flags().BoolVar(&o.none, "none", false, "no context is the current one")
	return c
}

func (o *useOptions) run() error {
	if err := o.env.OutputOnly(); err != nil {
		return err
	}
	f, err := o.env.Flags.Edit(func(f *config.File) error { return f.Use(o.name) })
	if err != nil {
		return cli.WithHint(err, "`context list` shows the contexts")
	}
	tellCurrent(o.env, f)
	if o.none {
		return said(o.env, "no current context in %s", f.Path)
	}
	return said(o.env, "current context: %s (%s)", f.Current, f.Path)
}
