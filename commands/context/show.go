package context

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/config"
	"github.com/etcdctl-plus/etcdctl-plus/commands/config/detect"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

func newShowCmd(env *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "show [NAME]",
		Short: "The settings of a context, and what is wrong with its certificates",
		Long: `The settings of a context; without NAME of the one that counts. A password or a
token is only said to be set. The certificates it names are read: when they expire,
whether the key belongs to them, whether this user may read them. Something that is
not readable ends with 77, anything else that would not work with 78.`,
		Example: `  etcdctl-plus context show
  etcdctl-plus context show prod -w yaml`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: names(env),
		RunE: func(_ *cobra.Command, args []string) error {
			return runShow(env, strings.Join(args, ""))
		},
	}
}

func runShow(env *cli.Env, name string) error {
	if err := env.OutputOnly(); err != nil {
		return err
	}
	p, err := env.Printer(output.Views()...)
	if err != nil {
		return err
	}
	f, err := env.Flags.File()
	if err != nil {
		return err
	}
	current, from := env.Flags.InForce(f)
	if name == "" {
		if current == "" {
			return cli.WithHint(cli.Failf(cli.Negative, "no context is in force (%s)", f.Path), "`context list` shows what there is; `context use NAME` chooses one")
		}
		name = current
	} else {
		from = ""
	}
	x := f.Find(name)
	if x == nil {
		return cli.WithHint(f.Missing(name, from), "`context list` shows the contexts")
	}
	v := newShowView(f, x, strings.EqualFold(name, current))
	if err := f.Check(x); err != nil {
		v.Problems = append(v.Problems, detect.Problem{File: f.Path, Message: err.Error()})
	}
	certs, problems := detect.Certificates(config.Text(x.Settings["cacert"]), config.Text(x.Settings["cert"]), config.Text(x.Settings["key"]), env.Now())
	v.Certificates, v.Problems = certs, append(v.Problems, problems...)
	if err := p.Print(v); err != nil {
		return err
	}
	return failure(fmt.Sprintf("context %s", x.Name), v.Problems)
}

func newShowView(f *config.File, x *config.Context, current bool) showView {
	v := showView{Name: x.Name, File: f.Path, Current: current, Settings: map[string]string{}, Problems: []detect.Problem{}}
	for k, val := range x.Settings {
		v.Settings[k] = config.Shown(k, val)
	}
	return v
}

type showView struct {
	Name         string               `json:"name"`
	File         string               `json:"file"`
	Current      bool                 `json:"current"`
	Settings     map[string]string    `json:"settings"`
	Certificates []detect.Certificate `json:"certificates"`
	Problems     []detect.Problem     `json:"problems"`
}

func (v showView) Table() output.Table {
	t := output.Table{Columns: []output.Column{{Name: "SETTING", Keep: true}, {Name: "VALUE", Wrap: true}}}
	name := v.Name
	if v.Current {
		name += " (current)"
	}
	t.Rows = append(t.Rows, []string{"context", name}, []string{"file", v.File})
	for _, k := range slices.Sorted(maps.Keys(v.Settings)) {
		t.Rows = append(t.Rows, []string{k, v.Settings[k]})
	}
	for _, c := range v.Certificates {
		t.Rows = append(t.Rows, []string{"certificate", c.String()})
	}
	for _, p := range v.Problems {
		t.Rows = append(t.Rows, []string{p.Kind(), p.String()})
	}
	return t
}
