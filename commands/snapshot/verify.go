package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/backup"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type verifyOptions struct {
	env      *cli.Env
	file     cli.FileFlags
	decoder  cli.DecodeFlags
	level    int
	against  string
	strict   bool
	skipHash bool
	salvage  string
	maxAge   time.Duration
	maxLag   int64
	dir      string
	paths    []string
}

func newVerifyCmd(env *cli.Env) *cobra.Command {
	o := verifyOptions{env: env}
	c := &cobra.Command{
		Use:   "verify FILE...",
		Short: "Find out whether a backup can be trusted",
		Long: `Find out whether a backup can be trusted: a snapshot, also packed or encrypted, a
member's database file, or a data folder. Everything that is wrong is listed, with
its place, and not only the first of it. The file is only read.

Each level includes those before it:

  0 file      a regular file of a size that a database has, readable by its owner alone
  1 checksum  the SHA-256 behind the pages; the manifest, where one lies beside
  2 pages     every page in use
  3 records   every record, the versions of each key, leases, users, compaction marks
  4 hash      etcd's own hash of the keyspace
  5 objects   Kubernetes' objects decode, and are what their keys say
  6 drill     a private etcd boots from a copy, and has the same
  7 policy    not older (--max-age), not further behind (--max-lag) than allowed

A bit that flipped in a value is found by the checksum alone. So a file without one, as
a member's own is, or with --skip-hash-check, is never called healthy but unsealed.

--against MANIFEST compares with what was known when the backup was taken (without it
FILE` + backup.ManifestSuffix + ` counts, if there is one); --against live compares every record
with the cluster as it was at the file's revision, while that has not been compacted.

Exit codes: 0 healthy, 3 unsealed, 10 damaged; with --strict, warnings and unsealed are
10 as well.

Server cost (--against live): every key is read once, from a follower where there is one.`,
		Example: `  etcdctl-plus snapshot verify snapshot.db
  etcdctl-plus snapshot verify --level 6 --encryption-config enc.yaml snapshot.db
  etcdctl-plus snapshot verify --salvage saved.db damaged.db`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			o.paths = args
			if err := o.complete(); err != nil {
				return err
			}
			if o.salvage != "" {
				return o.runSalvage(c.Context())
			}
			return o.run(c.Context())
		},
	}
	f := c.Flags()
	f.IntVar(&o.level, "level", int(backup.LevelObjects), "how deep to look, 0 to 7")
	f.StringVar(&o.against, "against", "", "compare with this manifest, or with the cluster: live")
	f.BoolVar(&o.strict, "strict", false, "warnings and a missing checksum count as damage")
	f.BoolVar(&o.skipHash, "skip-hash-check", false, "leave the checksum behind the pages alone")
	f.StringVar(&o.salvage, "salvage", "", "copy what is sound of a damaged file into this new one, and list what was lost")
	f.DurationVar(&o.maxAge, "max-age", 0, "oldest age that is allowed, such as 26h (0: any)")
	f.Int64Var(&o.maxLag, "max-lag", -1, "with --against live: how many revisions it may be behind (-1: any)")
	f.StringVar(&o.dir, "dir", "", "folder for the temporary files of a drill (default: the system's)")
	o.file.Define(f, "")
	o.decoder.DefineKeys(env, f)
	return c
}

func (o *verifyOptions) complete() error {
	switch {
	case o.level < 0 || o.level > int(backup.LevelPolicy):
		return cli.Usagef("--level %d: it is 0 to %d", o.level, backup.LevelPolicy)
	case o.maxAge < 0:
		return cli.Usagef("--max-age cannot be negative")
	case o.maxLag >= 0 && o.against != "live":
		return cli.Usagef("--max-lag goes with --against live")
	case o.against != "" && o.against != "live" && len(o.paths) > 1:
		return cli.Usagef("--against MANIFEST goes with one file, and %d are given", len(o.paths))
	case o.salvage != "" && len(o.paths) > 1:
		return cli.Usagef("--salvage goes with one file, and %d are given", len(o.paths))
	}
	for _, p := range o.paths {
		if p == "" {
			return cli.WithHint(cli.Usagef("an argument is empty"), "is a variable in your script unset?")
		}
	}
	return nil
}

func (o *verifyOptions) run(ctx context.Context) error {
	p, err := o.env.Printer(output.Views()...)
	if err != nil {
		return err
	}
	if _, err := o.decoder.Options(); err != nil {
		return err
	}
	s := p.Stream(output.Envelope{})
	var verdicts []error
	for _, path := range o.paths {
		r, err := o.one(ctx, path)
		if err != nil {
			if len(o.paths) == 1 || ctx.Err() != nil {
				return err
			}
			o.env.Warn("%v", err)
			verdicts = append(verdicts, err)
			continue
		}
		if err := s.Write(r); err != nil {
			return err
		}
		verdicts = append(verdicts, o.verdict(r))
	}
	if err := s.Close(""); err != nil {
		return err
	}
	return worst(verdicts)
}

// worst returns the error that the exit code is to tell: damage before everything else.
func worst(errs []error) error {
	var found error
	for _, err := range errs {
		if err == nil {
			continue
		}
		if cli.Describe(err).Code == cli.Integrity {
			return err
		}
		if found == nil {
			found = err
		}
	}
	return found
}

func (o *verifyOptions) one(ctx context.Context, path string) (*verifyView, error) {
	file, err := o.file.Options(o.env)
	if err != nil {
		return nil, err
	}
	v := &verifyView{Findings: []backup.Finding{}}
	vo := backup.VerifyOptions{
		Level: backup.Level(o.level), File: file, SkipChecksum: o.skipHash, MaxAge: o.maxAge, Now: o.env.Now(), Dir: o.dir,
		Objects: o.decoder.Objects(),
		Report:  func(f backup.Finding) { v.Findings = append(v.Findings, f) },
	}
	if vo.Manifest, err = o.manifest(path); err != nil {
		return nil, err
	}
	if o.against == "live" {
		if err := o.live(ctx, &vo); err != nil {
			return nil, err
		}
	}
	v.Report, err = backup.Verify(ctx, path, vo)
	if err != nil {
		return nil, err
	}
	return v, nil
}

// manifest reads the manifest to compare with, nil when there is none.
func (o *verifyOptions) manifest(path string) (*backup.Manifest, error) {
	name := o.against
	if name == "" || name == "live" {
		name = path + backup.ManifestSuffix
	}
	m, err := backup.ReadManifest(name)
	switch {
	case err == nil:
		return m, nil
	case errors.Is(err, backup.ErrManifest):
		return nil, &cli.Error{Code: cli.Data, Err: err}
	case name != o.against && (errors.Is(err, fs.ErrNotExist) || isNotDir(err)):
		return nil, nil
	}
	return nil, err
}

// live opens the cluster to compare with.
func (o *verifyOptions) live(ctx context.Context, vo *backup.VerifyOptions) error {
	var flags cli.SourceFlags
	src, err := flags.Live(ctx, o.env, false)
	if err != nil {
		return err
	}
	vo.Live = keyspace.Base(src)
	if o.maxLag < 0 {
		return nil
	}
	info, err := vo.Live.Info(ctx)
	if err != nil {
		return err
	}
	vo.MinRevision = max(1, info.Revision-o.maxLag)
	return nil
}

// verdict is the error that a report ends with; nil for a good one.
func (o *verifyOptions) verdict(v *verifyView) error {
	switch {
	case v.Verdict == backup.Damaged:
		hint := "take another backup; if this is the only one, `snapshot verify --salvage OUT` copies what is sound of it"
		if v.Kind == "" { // it could not be opened as a database
			hint = "take another backup: of this file nothing can be saved"
		}
		return cli.WithHint(cli.Failf(cli.Integrity, "%s is damaged: %s", v.File, plural(v.Damage, "finding")), hint)
	case o.strict && v.Warnings > 0:
		return cli.Failf(cli.Integrity, "%s: %s, and --strict", v.File, plural(v.Warnings, "warning"))
	case v.Verdict == backup.Unsealed && o.strict:
		return cli.Failf(cli.Integrity, "%s is unsealed, and --strict: no checksum vouches for its values", v.File)
	case v.Verdict == backup.Unsealed && v.Revision == 0 && slices.Contains(v.Packing, "age"):
		return cli.WithHint(cli.Failf(cli.Partial, "%s is encrypted, and was compared as it is alone", v.File), "--identity FILE opens it")
	case v.Verdict == backup.Unsealed:
		return cli.WithHint(cli.Failf(cli.Partial, "%s is unsealed: nothing was found, and no checksum vouches for its values", v.File),
			"a member's own file is so; `snapshot save` takes a sealed one from a running member")
	}
	return nil
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

type verifyView struct {
	*backup.Report
	Findings []backup.Finding `json:"findings"`
}

// Table shows a line for each level and each finding, and the verdict last.
func (v *verifyView) Table() output.Table {
	t := output.Table{Columns: []output.Column{{Name: "FILE", Keep: true}, {Name: "LEVEL", Keep: true}, {Name: "RESULT", Keep: true}, {Name: "DETAIL", Keep: true}}}
	for _, l := range v.Levels {
		result, detail := "ok", l.Note
		switch {
		case l.Findings > 0:
			result = plural(l.Findings, "finding")
		case l.Partly:
			result = "in part"
		case l.Skipped != "":
			result = "not done"
		}
		if l.Skipped != "" {
			detail = l.Skipped
		}
		t.Rows = append(t.Rows, []string{v.File, fmt.Sprintf("%d %s", l.Level, l.Name), result, detail})
	}
	for _, f := range v.Findings {
		kind := "damage"
		if f.Warning {
			kind = "warning"
		}
		t.Rows = append(t.Rows, []string{v.File, fmt.Sprintf("%d %s", f.Level, f.Level), kind, f.String()})
	}
	t.Rows = append(t.Rows, []string{v.File, "", string(v.Verdict), v.summary()})
	return t
}

func (v *verifyView) summary() string {
	if v.Revision == 0 {
		return ""
	}
	parts := []string{fmt.Sprintf("revision %d", v.Revision)}
	if v.CompactRev > 0 {
		parts = append(parts, fmt.Sprintf("compacted at %d", v.CompactRev))
	}
	if v.Records > 0 {
		parts = append(parts, fmt.Sprintf("%d keys, %d records, %d leases", v.Keys, v.Records, v.Leases))
	}
	if v.Objects > 0 {
		parts = append(parts, plural(int(v.Objects), "object"))
	}
	if len(v.Encryption) > 0 {
		parts = append(parts, "sealed with "+strings.Join(v.Encryption, ", "))
	}
	if v.Note != "" {
		parts = append(parts, v.Note)
	}
	return strings.Join(parts, "; ")
}

func (o *verifyOptions) runSalvage(ctx context.Context) error {
	p, err := o.env.Printer(output.Views()...)
	if err != nil {
		return err
	}
	file, err := o.file.Options(o.env)
	if err != nil {
		return err
	}
	s, err := backup.Salvage(ctx, o.paths[0], o.salvage, file)
	if err != nil {
		return err
	}
	if err := p.Print(salvageView{s}); err != nil {
		return err
	}
	if s.OnlyChecksum {
		return cli.WithHint(cli.Failf(cli.Integrity, "%s has a wrong checksum, and nothing else was found: all of its %d entries are in %s", o.paths[0], s.Entries, o.salvage),
			"a value may have changed, and nothing tells which: compare it with an older backup, `inspect diff OLD "+o.salvage+"`")
	}
	if s.Lost > 0 {
		return cli.WithHint(cli.Failf(cli.Integrity, "%s is damaged; what was sound of it is in %s", o.paths[0], o.salvage),
			"compare it with an older backup: `inspect diff OLD "+o.salvage+"`")
	}
	return nil
}

type salvageView struct{ *backup.Salvaged }

func (v salvageView) Table() output.Table {
	t := output.Table{Columns: []output.Column{{Name: "RESULT", Keep: true}, {Name: "DETAIL", Keep: true}}}
	for _, f := range v.Findings {
		kind := "damage"
		if f.Warning {
			kind = "warning"
		}
		t.Rows = append(t.Rows, []string{kind, f.String()})
	}
	t.Rows = append(t.Rows, []string{"saved", fmt.Sprintf("%s: %d keys, %d records (%d found outside of the tree), %d entries in all", v.File, v.Keys, v.Records, v.Carved, v.Entries)})
	return t
}
