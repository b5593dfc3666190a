package context

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/config"
	"github.com/etcdctl-plus/etcdctl-plus/commands/config/detect"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type setOptions struct {
	env        *cli.Env
	name       string
	settings   map[string]any
	encryption string
	secrets    bool
	use        bool
	unset      []string
}

// notSet are flags that count for `context set` itself.
var notSet = []string{"context", "config", "write-out", "debug", "help"}

func newSetCmd(env *cli.Env) *cobra.Command {
	o := setOptions{env: env}
	c := &cobra.Command{
		Use:   "set NAME [--endpoints …] [--cacert …] [any other connection flag]",
		Short: "Make a context, or change settings of one",
		Long: `Make a context, or change settings of one: the flags for connection and output that
are given are what is stored. Settings that are not given stay; --unset takes some out,
as does an empty value (--cacert ''). What comes out is checked before it is written.

Paths of certificates are stored absolute; what is wrong with them is told. -w, --debug and --config count for this
command itself. Variables are not stored.

Passwords and tokens are not stored: without one, commands ask on a terminal or take
ETCDCTL_PASSWORD. --store-secrets writes them to the file in clear.`,
		Example: `  etcdctl-plus context set prod --endpoints https://10.0.0.1:2379 --cacert ca.crt --cert client.crt --key client.key
  etcdctl-plus context set prod-look --endpoints https://10.0.0.1:2379 --user reader --read-only
  etcdctl-plus context set prod --unset dial-timeout,key-prefix`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: names(env),
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.complete(c.Flags(), args[0]); err != nil {
				return err
			}
			return o.run()
		},
	}
	c.Flags().StringVar(&o.encryption, "encryption-config", "", "the API server's EncryptionConfiguration file, to open sealed values")
	c.Flags().BoolVar(&o.secrets, "store-secrets", false, "store passwords and tokens too, in clear")
	c.Flags().StringSliceVar(&o.unset, "unset", nil, "settings to take out")
	_ = c.RegisterFlagCompletionFunc("unset", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return config.Settable(), cobra.ShellCompDirectiveNoFileComp
	}) // fails only for an unknown flag
	c.Flags().BoolVar(&o.use, "use", false, "make it the current context")
	return c
}

// complete takes the settings off the flags that were given.
func (o *setOptions) complete(flags *pflag.FlagSet, name string) error {
	if err := o.env.OutputOnly(); err != nil {
		return err
	}
	o.name, o.settings = name, map[string]any{}
	all := config.Settable()
	var bad error
	flags.Visit(func(fl *pflag.Flag) {
		if bad != nil || slices.Contains(notSet, fl.Name) || !slices.Contains(all, fl.Name) {
			return
		}
		v, err := stored(fl)
		if err != nil {
			bad = err
			return
		}
		if config.Secret(fl.Name, v) && !o.secrets {
			bad = &cli.Error{Code: cli.Refused, Err: fmt.Errorf("--%s holds a secret, which would stand in the file in clear; nothing was changed", fl.Name),
				Hint: "leave it out: commands ask for it or take ETCDCTL_PASSWORD; --store-secrets stores it all the same"}
			return
		}
		o.settings[fl.Name] = v
	})
	if bad != nil {
		return bad
	}
	for _, name := range o.unset {
		if !slices.Contains(all, name) {
			return cli.WithHint(cli.Usagef("--unset %q is not a setting of contexts", name), "settings are "+strings.Join(all, ", "))
		}
		if _, ok := o.settings[name]; ok {
			return cli.Usagef("--%s and --unset %s contradict each other", name, name)
		}
		o.settings[name] = ""
	}
	if len(o.settings) == 0 {
		return cli.WithHint(cli.Usagef("no setting is given"), "`"+o.env.Name+" options` lists the flags")
	}
	return nil
}

// stored is what the file says for a flag: files by their full names, since a context
// is used from any folder.
func stored(fl *pflag.Flag) (any, error) {
	s := fl.Value.String()
	switch fl.Name {
	case "cacert", "cert", "key", "encryption-config":
		if s == "" {
			return s, nil
		}
		return filepath.Abs(s)
	}
	if l, ok := fl.Value.(pflag.SliceValue); ok {
		return strings.Join(l.GetSlice(), ","), nil
	}
	if fl.Value.Type() == "bool" {
		return s == "true", nil
	}
	return s, nil
}

func (o *setOptions) run() error {
	p, err := o.env.Printer(output.Views()...)
	if err != nil {
		return err
	}
	f, err := o.env.Flags.Edit(func(f *config.File) error {
		if err := f.Set(o.name, o.settings, ""); err != nil {
			return err
		}
		if o.use {
			return f.Use(o.name)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, k := range slices.Sorted(maps.Keys(o.settings)) {
		if config.Secret(k, o.settings[k]) {
			o.env.Warn("%s stands in %s in clear; the file has mode 0600", k, f.Path)
		}
	}
	x := f.Find(o.name)
	_, problems := detect.Certificates(config.Text(x.Settings["cacert"]), config.Text(x.Settings["cert"]), config.Text(x.Settings["key"]), o.env.Now())
	for _, q := range problems {
		o.env.Warn("%s", q)
	}
	current, _ := o.env.Flags.InForce(f)
	return p.Print(newShowView(f, x, strings.EqualFold(o.name, current)))
}
