package context

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/config"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

func newListCmd(env *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "All contexts, what they reach, and which one counts",
		Long: `All contexts in the order of the file, with their endpoints. The one that counts
is marked, and what chose it is told: current-context in the file, a variable, or
--context.`,
		Example: `  etcdctl-plus context list
  etcdctl-plus context list -w jsonpath={.current}`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return runList(env) },
	}
}

func runList(env *cli.Env) error {
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
	v := listView{File: f.Path, Contexts: []listed{}}
	v.Current, v.CurrentFrom = env.Flags.InForce(f)
	if v.Current != "" && f.Find(v.Current) == nil {
		env.Warn("%s names context %q, which is not in %s", sourceName(v.CurrentFrom), v.Current, f.Path)
	}
	for i := range f.Contexts {
		x := &f.Contexts[i]
		l := listed{Name: x.Name, Current: strings.EqualFold(x.Name, v.Current), Endpoints: endpoints(x), ReadOnly: config.Text(x.Settings["read-only"]) == "true"}
		if err := f.Check(x); err != nil {
			l.Problem = err.Error()
			env.Warn("context %s: %v", x.Name, err)
		}
		v.Contexts = append(v.Contexts, l)
	}
	return p.Print(v)
}

type listView struct {
	File        string   `json:"file"`
	Current     string   `json:"current,omitempty"`
	CurrentFrom string   `json:"currentFrom,omitempty"`
	Contexts    []listed `json:"contexts"`
}

type listed struct {
	Name      string   `json:"name"`
	Current   bool     `json:"current"`
	Endpoints []string `json:"endpoints"`
	ReadOnly  bool     `json:"readOnly"`
	Problem   string   `json:"problem,omitempty"`
}

func (v listView) Table() output.Table {
	t := output.Table{
		Columns: []output.Column{{Name: "CURRENT", Keep: true}, {Name: "NAME", Keep: true}, {Name: "ENDPOINTS"}, {Name: "MODE"}, {Name: "FROM"}},
		Empty:   "no context in " + v.File,
	}
	for _, l := range v.Contexts {
		mark, mode, from := "", "read-write", v.File
		if l.Current {
			mark, from = "*", from+", chosen by "+sourceName(v.CurrentFrom)
		}
		if l.ReadOnly {
			mode = "read-only"
		}
		t.Rows = append(t.Rows, []string{mark, l.Name, strings.Join(l.Endpoints, ","), mode, from})
	}
	return t
}
