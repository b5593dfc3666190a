package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/backup"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type verifyOptions struct {
	env     *cli.Env
	store   storeFlags
	file    cli.FileFlags
	decoder cli.DecodeFlags
	level   int
}

func newVerifyCmd(env *cli.Env) *cobra.Command {
	o := verifyOptions{env: env, store: storeFlags{env: env}}
	c := &cobra.Command{
		Use:   "verify [BACKUP...]",
		Short: "Read the backups of a repository, and find out whether they are sound",
		Long: `Read the backups of a repository, all or those named, and compare every byte with the
manifests. With --level 2 and up each is also fetched and looked at as
` + "`snapshot verify`" + ` does; encrypted ones need --identity for that.

Exit code 10 when anything is wrong, 3 when an encrypted one was not opened or one has no
manifest.`,
		Example: `  etcdctl-plus backup verify --store /var/backups/etcd
  etcdctl-plus backup verify latest --level 6 --store s3://backups/etcd --identity key.txt`,
		RunE: func(c *cobra.Command, args []string) error { return o.run(c.Context(), args) },
	}
	f := c.Flags()
	o.store.Define(f)
	f.IntVar(&o.level, "level", int(backup.LevelSeal), "how deep to look, 1 to 6")
	o.file.DefinePacked(f, "")
	o.decoder.DefineKeys(env, f)
	return c
}

type verifyView struct {
	ID       string           `json:"id"`
	Good     bool             `json:"good"`
	Level    int              `json:"level"`
	Bytes    int64            `json:"bytes"`
	Problem  string           `json:"problem,omitempty"`
	Sealed   bool             `json:"sealed,omitempty"` // encrypted: the level was not reached
	Findings []backup.Finding `json:"findings,omitempty"`
}

func (v verifyView) Table() output.Table {
	t := output.Table{Columns: []output.Column{{Name: "BACKUP", Keep: true}, {Name: "RESULT", Keep: true}, {Name: "LEVEL"}, {Name: "SIZE", Right: true, Bytes: true}, {Name: "DETAIL", Keep: true}}}
	result := "sound"
	switch {
	case !v.Good:
		result = "damaged"
	case v.Sealed:
		result = "not opened"
	}
	t.Rows = [][]string{{v.ID, result, fmt.Sprintf("%d %s", v.Level, backup.Level(v.Level)), fmt.Sprint(v.Bytes), v.Problem}}
	for _, f := range v.Findings {
		t.Rows = append(t.Rows, []string{"", "", "", "", f.String()})
	}
	return t
}

func (o *verifyOptions) run(ctx context.Context, refs []string) error {
	if o.level < int(backup.LevelSeal) || o.level > int(backup.LevelDrill) {
		return cli.Usagef("--level %d: it is 1 to 6", o.level)
	}
	p, err := o.env.Printer(output.Views()...)
	if err != nil {
		return err
	}
	file, err := o.file.Options(o.env)
	if err != nil {
		return err
	}
	l, err := o.store.list(ctx)
	if err != nil {
		return err
	}
	var entries []*backup.Entry
	for i := range l.Entries {
		entries = append(entries, &l.Entries[i])
	}
	if len(refs) > 0 {
		entries = nil
		for _, ref := range refs {
			e, err := l.Find(ref)
			if err != nil {
				return notFound(err)
			}
			entries = append(entries, e)
		}
	}
	s := p.Stream(output.Envelope{})
	bad, sealed := 0, 0
	for _, e := range entries {
		v, err := o.one(ctx, e, file)
		if err != nil {
			return err
		}
		switch {
		case !v.Good:
			bad++
		case v.Sealed:
			sealed++
		}
		if err := s.Write(v); err != nil {
			return err
		}
	}
	if err := s.Close(""); err != nil {
		return err
	}
	for _, name := range l.Unfinished {
		o.env.Warn("%s is not finished: a run is at work, or was killed", name)
	}
	switch {
	case len(entries) == 0:
		return cli.Failf(cli.Negative, "there is no backup in %s", o.store.repo.Store)
	case bad > 0:
		return cli.WithHint(cli.Failf(cli.Integrity, "%d of %d backups are damaged", bad, len(entries)), "take a new one with `backup run`; of a damaged one `backup fetch --damaged` and `snapshot verify --salvage` save what is sound")
	case sealed > 0:
		return cli.WithHint(cli.Failf(cli.Partial, "%d of %d backups are encrypted, and were compared as they are stored alone", sealed, len(entries)), "--identity FILE opens them")
	case len(l.Unfinished) > 0 && len(refs) == 0:
		return cli.WithHint(cli.Failf(cli.Partial, "%d backups have no manifest", len(l.Unfinished)), "a run is at work or was killed, and the next one removes them; if somebody removed a manifest, `backup fetch` no longer finds it: copy the file before that")
	}
	return nil
}

func (o *verifyOptions) one(ctx context.Context, e *backup.Entry, file dbfile.Options) (*verifyView, error) {
	v := &verifyView{ID: e.ID(), Level: o.level, Bytes: e.Bytes, Problem: e.Problem}
	if e.Problem != "" {
		return v, nil
	}
	if o.level == int(backup.LevelSeal) {
		return v, v.outcome(o.store.repo.Fetch(ctx, e, io.Discard))
	}
	path, err := o.store.repo.FetchFile(ctx, e, o.store.dir)
	if err != nil {
		return v, v.outcome(err)
	}
	defer os.Remove(path)
	r, err := backup.Verify(ctx, path, backup.VerifyOptions{
		Level: backup.Level(o.level), File: file, Manifest: e.Manifest, Objects: o.decoder.Objects(), Now: o.env.Now(), Dir: o.store.dir,
		Report: func(f backup.Finding) { v.Findings = append(v.Findings, f) },
	})
	if err != nil {
		return v, err
	}
	switch v.Good = r.Damage == 0; {
	case r.Verdict == backup.Unsealed && len(r.Packing) > 0 && r.Revision == 0:
		v.Level, v.Sealed = int(backup.LevelSeal), true
		v.Problem = "encrypted: only the stored bytes were compared; --identity opens it"
	case !v.Good:
		v.Problem = fmt.Sprintf("%d findings", r.Damage)
	}
	return v, nil
}

// outcome takes damage for an answer, and returns every other error.
func (v *verifyView) outcome(err error) error {
	switch {
	case err == nil:
		v.Good = true
	case errors.Is(err, keyspace.ErrCorrupt):
		v.Problem = err.Error()
	default:
		return err
	}
	return nil
}
