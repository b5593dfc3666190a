package registry

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/output"
	k8s "github.com/etcdctl-plus/etcdctl-plus/registry"
)

type resourcesOptions struct {
	reader
	builtin bool
}

func newResourcesCmd(env *cli.Env) *cobra.Command {
	o := resourcesOptions{reader: reader{env: env}}
	c := &cobra.Command{
		Use:   "resources",
		Short: "Every kind that can be read, with the path of its keys",
		Long: `Every kind that can be read, with its names and the path of its keys below the
registry prefix: those of Kubernetes, also removed ones, and the custom resources
defined in the keyspace. --builtin needs no cluster and no file.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	o.defineKeys(c.Flags())
	c.Flags().BoolVar(&o.builtin, "builtin", false, "only Kubernetes' own resources")
	return c
}

func (o *resourcesOptions) run(ctx context.Context) error {
	p, err := o.out.printer(output.Views()...)
	if err != nil {
		return err
	}
	if o.builtin {
		if o.source.DB != "" || o.rev != 0 || o.decoder.EncryptionConfig != "" {
			return cli.Usagef("--builtin reads nothing: --db, --rev and --encryption-config do not go with it")
		}
		o.dec, err = o.decoder.Plain()
	} else {
		err = o.open(ctx)
	}
	if err != nil {
		return err
	}
	s := p.Stream(output.Envelope{})
	for _, r := range o.dec.Mapper.Resources() {
		if err := s.Write(newResourceView(r)); err != nil {
			return err
		}
	}
	return s.Close("")
}

type resourceView struct {
	Name       string   `json:"name"`
	Singular   string   `json:"singular"`
	ShortNames []string `json:"shortNames,omitempty"`
	Group      string   `json:"group"`
	Kind       string   `json:"kind"`
	Namespaced bool     `json:"namespaced"`
	Versions   []string `json:"versions,omitempty"`
	Custom     bool     `json:"custom"`
	Path       string   `json:"path"`
}

func newResourceView(r k8s.Resource) resourceView {
	return resourceView{r.Plural, r.Singular, r.ShortNames, r.Group, r.Kind, r.Namespaced, r.Versions, r.Custom, r.Prefix}
}

func (v resourceView) Table() output.Table {
	yes := map[bool]string{true: "true", false: "false"}
	return output.Table{
		Columns: []output.Column{{Name: "NAME"}, {Name: "SHORT NAMES"}, {Name: "GROUP"}, {Name: "KIND"}, {Name: "NAMESPACED"}, {Name: "PATH"},
			{Name: "VERSIONS", Wide: true}, {Name: "CUSTOM", Wide: true}},
		Rows: [][]string{{v.Name, strings.Join(v.ShortNames, ","), v.Group, v.Kind, yes[v.Namespaced], v.Path, strings.Join(v.Versions, ","), yes[v.Custom]}},
	}
}
