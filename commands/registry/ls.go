package registry

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type lsOptions struct {
	reader
	all    bool
	sortBy string
}

func newLsCmd(env *cli.Env) *cobra.Command {
	o := lsOptions{reader: reader{env: env}}
	c := &cobra.Command{
		Use:   "ls",
		Short: "How many objects of each resource there are, and how large",
		Long: `How many objects of each resource there are and how many bytes their values have;
-A counts per namespace. Keys under the registry prefix that belong to no known
resource are listed too, by their path.

Server cost (live): every value under the registry prefix is read and sent once.`,
		Example: `  etcdctl-plus registry ls --db snapshot.db
  etcdctl-plus registry ls -A -w json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	o.defineKeys(c.Flags())
	c.Flags().StringVar(&o.sortBy, "sort-by", "name", "name, bytes, or objects")
	_ = c.RegisterFlagCompletionFunc("sort-by", cobra.FixedCompletions([]string{"name", "bytes", "objects"}, cobra.ShellCompDirectiveNoFileComp)) // fails only for an unknown flag
	c.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "a line per namespace")
	return c
}

func (o *lsOptions) run(ctx context.Context) error {
	p, err := o.out.printer(output.Views()...)
	if err != nil {
		return err
	}
	by := map[string]func(a, b inspect.ResourceCount) int{
		"name":    func(_, _ inspect.ResourceCount) int { return 0 },
		"bytes":   func(a, b inspect.ResourceCount) int { return cmp.Compare(b.Bytes, a.Bytes) },
		"objects": func(a, b inspect.ResourceCount) int { return cmp.Compare(b.Objects, a.Objects) },
	}[o.sortBy]
	if by == nil {
		return cli.Usagef("--sort-by %q is not one of name, bytes, objects", o.sortBy)
	}
	if err := o.open(ctx); err != nil {
		return err
	}
	counts, err := inspect.CountResources(ctx, o.src, o.rev, o.dec.Mapper, o.all)
	if err != nil {
		return err
	}
	slices.SortStableFunc(counts, by)
	return p.Print(lsView{Revision: o.rev, Prefix: o.dec.Mapper.Prefix(), Resources: counts, byNamespace: o.all})
}

type lsView struct {
	Revision    int64                   `json:"revision"`
	Prefix      string                  `json:"prefix"`
	Resources   []inspect.ResourceCount `json:"resources"`
	byNamespace bool
}

func (v lsView) Table() output.Table {
	t := output.Table{
		Columns: []output.Column{{Name: "RESOURCE"}, {Name: "GROUP"}, {Name: "OBJECTS", Right: true, Keep: true}, {Name: "BYTES", Right: true, Keep: true, Bytes: true},
			{Name: "LARGEST", Right: true, Keep: true, Wide: true, Bytes: true}, {Name: "PATH", Wide: true}},
		Empty: "no Kubernetes object under " + v.Prefix,
	}
	if v.byNamespace {
		t.Columns = append([]output.Column{{Name: "NAMESPACE"}}, t.Columns...)
	}
	for _, r := range v.Resources {
		row := []string{r.Resource, r.Group, fmt.Sprint(r.Objects), fmt.Sprint(r.Bytes), fmt.Sprint(r.LargestBytes), r.Path}
		if v.byNamespace {
			row = append([]string{r.Namespace}, row...)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
