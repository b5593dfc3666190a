package context

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/config"
	"github.com/etcdctl-plus/etcdctl-plus/commands/config/detect"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type detectOptions struct {
	env   *cli.Env
	root  string
	kind  string
	save  string
	force bool
	use   bool
}

func newDetectCmd(env *cli.Env) *cobra.Command {
	o := detectOptions{env: env}
	c := &cobra.Command{
		Use:   "detect",
		Short: "Find the etcd of this machine: kubeadm, K3s, RKE2, or a systemd service",
		Long: `Find the etcd of this machine from its files alone, and how to reach it: endpoint,
certificates, data folder, and the API server's EncryptionConfiguration. Run it on the
host, as root: etcd's images have no shell. Nothing is connected to.

  kubeadm  static pods of etcd and kube-apiserver, also with an external etcd
  k3s      the server's folder, config.yaml and its drop-ins, the service's arguments;
  rke2     embedded etcd, an external one, or Kine on SQL, which is no etcd
  systemd  etcd.service and what it reads; etcd.conf, etcd.conf.yml, /etc/default/etcd

Every value is shown with where it comes from, and everything that would keep it from
working: certificates that are expired, not readable, not of their key, not for
clients, not of the CA.

--save NAME writes it as a context (endpoints, cacert, cert, key, encryption-config). One
that says so already is left alone; another one of that name is not replaced without
--force.
--root looks below another folder, such as a mounted disk.

Exit codes: 4 nothing found (what was looked at is told), or no etcd; 77 something is
not readable; 78 something else would keep it from working.`,
		Example: `  etcdctl-plus context detect
  etcdctl-plus context detect --save here && etcdctl-plus --context here registry ls
  etcdctl-plus get / --prefix --keys-only --db "$(etcdctl-plus context detect -w 'jsonpath={.found[0].settings[?(@.name=="data-dir")].value}')" --db-copy`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("save") && strings.TrimSpace(o.save) == "" {
				return cli.Usagef("--save is empty")
			}
			if c.Flags().Changed("root") && o.root == "" {
				return cli.WithHint(cli.Usagef("--root is empty"), "is a variable in your script unset?")
			}
			if o.kind != "" && !slices.Contains(detect.Kinds, o.kind) {
				return cli.Usagef("--kind %q is not one of %s", o.kind, strings.Join(detect.Kinds, ", "))
			}
			if o.save == "" && (o.force || o.use) {
				return cli.Usagef("--force and --use go with --save")
			}
			return o.run()
		},
	}
	f := c.Flags()
	f.StringVar(&o.root, "root", "/", "look below this folder")
	f.StringVar(&o.kind, "kind", "", "only this kind: "+strings.Join(detect.Kinds, ", "))
	f.StringVar(&o.save, "save", "", "write what was found as a context of this name")
	f.BoolVar(&o.force, "force", false, "with --save: replace a context of that name, and save in spite of problems")
	f.BoolVar(&o.use, "use", false, "with --save: make it the current context")
	_ = c.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(detect.Kinds, cobra.ShellCompDirectiveNoFileComp)) // fails only for an unknown flag
	return c
}

func (o *detectOptions) run() error {
	if err := o.env.OutputOnly(); err != nil {
		return err
	}
	p, err := o.env.Printer(output.Views()...)
	if err != nil {
		return err
	}
	root, err := filepath.Abs(o.root)
	if err != nil {
		return err
	}
	r := detect.Run(detect.Options{Root: root, Now: o.env.Now()})
	v := detectView{Found: []*detect.Host{}, Looked: r.Looked}
	for _, h := range r.Found {
		if o.kind == "" || o.kind == h.Kind {
			v.Found = append(v.Found, h)
		}
	}
	if err := p.Print(v); err != nil {
		return err
	}
	if len(v.Found) == 0 {
		return &cli.Error{Code: cli.Negative, Err: fmt.Errorf("no etcd of kubeadm, K3s, RKE2 or systemd found; looked at\n  %s", strings.Join(r.Looked, "\n  ")),
			Hint: "run it on a control-plane host; --root looks at a mounted disk; `context set` takes endpoints by hand"}
	}
	if o.save != "" {
		return o.store(v.Found)
	}
	return verdict(v.Found)
}

// verdict is the exit code of a search that found something.
func verdict(found []*detect.Host) error {
	etcd := false
	for _, h := range found {
		etcd = etcd || h.Store == detect.Etcd
		if err := failure(h.Kind, h.Problems); err != nil {
			return err
		}
	}
	if !etcd {
		return &cli.Error{Code: cli.Negative, Err: fmt.Errorf("no etcd here: %s keeps its data in an SQL database, by Kine", found[0].Kind),
			Hint: "--save NAME makes a context of its socket, where the server runs"}
	}
	return nil
}

// failure is the error for problems; nil when there is none, or warnings alone.
func failure(what string, all []detect.Problem) error {
	var lines []string
	code, hint := cli.Config, ""
	for _, p := range all {
		if p.Warning {
			continue
		}
		line := p.Message
		if p.File != "" && !strings.Contains(line, p.File) {
			line = p.File + ": " + line
		}
		lines = append(lines, line)
		if p.Unreadable && code != cli.Permission {
			code, hint = cli.Permission, p.Hint
		}
		if hint == "" {
			hint = p.Hint
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return &cli.Error{Code: code, Err: errors.New(what + ": " + strings.Join(lines, "\n  ")), Hint: hint}
}

// saved are the settings of a context; folders of data are for --db.
var saved = []string{"endpoints", "cacert", "cert", "key", "encryption-config"}

// store writes the one host that was found as a context.
func (o *detectOptions) store(found []*detect.Host) error {
	if len(found) > 1 {
		var kinds []string
		for _, h := range found {
			kinds = append(kinds, h.Kind)
		}
		return cli.WithHint(cli.Usagef("--save: several were found (%s); nothing was saved", strings.Join(kinds, ", ")), "choose one with --kind")
	}
	h := found[0]
	if h.Get("endpoints") == "" {
		if err := verdict(found); err != nil {
			return err
		}
		return cli.Failf(cli.Negative, "%s: no endpoint was found; nothing was saved", h.Kind)
	}
	problem := failure(h.Kind, h.Problems)
	if problem != nil && !o.force {
		e := cli.Describe(problem)
		return &cli.Error{Code: e.Code, Err: fmt.Errorf("%w\nnothing was saved (--force saves all the same)", problem), Hint: e.Hint}
	}
	settings := map[string]any{}
	for _, name := range saved {
		// What is not there anew must not stay from an older context.
		settings[name] = h.Get(name)
	}
	comment := fmt.Sprintf("%s, found by context detect", h.Kind)
	if h.Store != detect.Etcd {
		comment += "; " + h.Notes[0]
	}
	path := ""
	f, err := o.env.Flags.Edit(func(f *config.File) error {
		path = f.Path
		was := f.Find(o.save)
		switch {
		case was != nil && says(was, settings):
			if !o.use || strings.EqualFold(f.Current, was.Name) {
				return errSaved
			}
			return f.Use(o.save)
		case was != nil && !o.force:
			return &cli.Error{Code: cli.CantCreate, Err: fmt.Errorf("there is another context %q in %s already; nothing was saved", o.save, f.Path), Hint: "--force replaces what it says of the connection"}
		}
		if err := f.Set(o.save, settings, comment); err != nil {
			return err
		}
		if o.use {
			return f.Use(o.save)
		}
		return nil
	})
	switch {
	case errors.Is(err, errSaved):
		o.env.Say("context %s in %s says so already; nothing was changed", o.save, path)
	case err != nil:
		return err
	default:
		o.env.Say("saved as context %s in %s", o.save, f.Path)
	}
	if h.Store != detect.Etcd {
		o.env.Warn("%s", h.Notes[0])
	}
	return nil
}

// errSaved ends an edit that would change nothing.
var errSaved = errors.New("saved already")

// says tells whether a context has these settings; what it has besides is the operator's.
func says(x *config.Context, settings map[string]any) bool {
	for name, v := range settings {
		if config.Text(x.Settings[name]) != config.Text(v) {
			return false
		}
	}
	return true
}

type detectView struct {
	Found  []*detect.Host `json:"found"`
	Looked []string       `json:"looked"`
}

func (v detectView) Table() output.Table {
	t := output.Table{Columns: []output.Column{{Name: "HOST", Keep: true}, {Name: "WHAT", Keep: true}, {Name: "VALUE"}, {Name: "FROM", Wrap: true}}}
	for _, h := range v.Found {
		row := func(what, value, from string) { t.Rows = append(t.Rows, []string{h.Kind, what, value, from}) }
		row("store", h.Store, "")
		for _, s := range h.Settings {
			row(s.Name, s.Value, s.From)
		}
		for _, c := range h.Certificates {
			row("certificate", c.File, fmt.Sprintf("%s of %s, valid until %s", c.Role, c.Subject, c.NotAfter.Format("2006-01-02")))
		}
		for _, p := range h.Problems {
			text := p.Message
			if p.Hint != "" {
				text += " (" + p.Hint + ")"
			}
			row(p.Kind(), p.File, text)
		}
		for _, n := range h.Notes {
			row("note", "", n)
		}
	}
	return t
}
