// Package registry holds the commands that read what Kubernetes stored.
package registry

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/output"
	k8s "github.com/etcdctl-plus/etcdctl-plus/registry"
)

// New makes `registry`.
func New(env *cli.Env) *cobra.Command {
	c := &cobra.Command{
		Use:     "registry",
		Aliases: []string{"k8s"},
		Short:   "Kubernetes objects, live or in a file",
		Long: `Kubernetes objects as the API server stored them, from a live etcd or with --db
from a snapshot or a member's file: protobuf, JSON, CBOR and YAML, sealed or not,
every kind of Kubernetes, custom resources by the definitions found beside them.
What a KMS plugin sealed opens where its socket is: on a control-plane host.

Values of Secrets are shown as length and fingerprint unless --show-secrets.`,
	}
	c.AddCommand(newGetCmd(env), newLsCmd(env), newDumpCmd(env), newDecodeCmd(env), newResourcesCmd(env))
	return c
}

// outputFlag is -o, kubectl's name for -w.
type outputFlag struct {
	env  *cli.Env
	name string
}

func (o *outputFlag) define(env *cli.Env, f *pflag.FlagSet) {
	o.env = env
	f.StringVarP(&o.name, "output", "o", "", "the same as -w, as kubectl has it")
}

// printer prefers -o over -w.
func (o *outputFlag) printer(formats ...output.Format) (*output.Printer, error) {
	return o.env.PrinterNamed(o.name, formats...)
}

// reader is what get, ls and dump share: a source, a decoding, a revision.
type reader struct {
	env     *cli.Env
	source  cli.SourceFlags
	decoder cli.DecodeFlags
	out     outputFlag
	rev     int64

	src keyspace.Source
	dec *cli.Decoding
}

func (r *reader) define(f *pflag.FlagSet) {
	r.decoder.Define(r.env, f)
	r.defineKeys(f)
}

// defineKeys leaves the flags for showing values out.
func (r *reader) defineKeys(f *pflag.FlagSet) {
	if f.Lookup("encryption-config") == nil {
		r.decoder.DefineKeys(r.env, f)
	}
	r.source.Define(f)
	r.out.define(r.env, f)
	f.Int64Var(&r.rev, "rev", 0, "look at this revision (0: the newest)")
}

// open opens the source and pins the revision, so that everything a command
// reads is of one moment.
func (r *reader) open(ctx context.Context) error {
	if r.rev < 0 {
		return cli.Usagef("--rev cannot be negative")
	}
	if _, err := r.decoder.Options(); err != nil {
		return err
	}
	src, err := r.source.Open(ctx, r.env)
	if err != nil {
		return err
	}
	r.src = src
	// A file stays at its revision by itself, and asking for it first would wait for
	// the checksum before anything is looked for.
	if r.source.DB == "" {
		err = r.pin(ctx)
	}
	if err == nil {
		r.dec, err = r.decoder.Open(ctx, src, r.rev)
	}
	if err != nil {
		return err
	}
	if r.dec.Note != "" {
		r.env.Warn("%s", r.dec.Note)
	}
	return r.pin(ctx)
}

// pin notes the newest revision, unless one was asked for.
func (r *reader) pin(ctx context.Context) error {
	if r.rev != 0 {
		return nil
	}
	info, err := r.src.Info(ctx)
	r.rev = info.Revision
	return err
}

func (r *reader) keys(prefix []byte) keyspace.Range {
	k := keyspace.Prefix(prefix)
	k.Rev = r.rev
	return k
}

// find resolves a kind, plural, short name or KIND.GROUP to one resource.
func (r *reader) find(name string) (k8s.Resource, error) { return find(r.dec.Mapper, name) }

func find(m *k8s.Mapper, name string) (k8s.Resource, error) {
	found, err := m.Find(name)
	if err != nil {
		return k8s.Resource{}, cli.WithHint(&cli.Error{Code: cli.Usage, Err: err}, "`registry resources` lists every kind")
	}
	var names []string
	for _, f := range found[1:] {
		if f.Prefix != found[0].Prefix {
			names = append(names, f.Plural+"."+f.Group)
		}
	}
	if len(names) > 0 {
		return k8s.Resource{}, cli.WithHint(cli.Usagef("%q is the name of several resources", name),
			"say which: "+strings.Join(append([]string{found[0].Plural + "." + found[0].Group}, names...), " or "))
	}
	return found[0], nil
}
