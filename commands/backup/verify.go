package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/backup"
	"github.com/etcdctl-plus/etcdctl-plus/backup/segment"
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
	rebuild bool
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
manifest. What no run of this program wrote is told on standard error, and is not opened.

--rebuild-manifests makes a new manifest for each backup whose own is lost or damaged, of
what its file says: after every record was verified, and only if the file has a checksum of
its own that fits and there is no finding. A copy of the repository is the better source:
` + "`backup copy`" + ` brings the manifests that are not there.`,
		Example: `  etcdctl-plus backup verify --store /var/backups/etcd
  etcdctl-plus backup verify latest --level 6 --store s3://backups/etcd --identity key.txt`,
		RunE: func(c *cobra.Command, args []string) error { return o.run(c.Context(), args) },
	}
	f := c.Flags()
	o.store.Define(f)
	f.IntVar(&o.level, "level", int(backup.LevelSeal), "how deep to look, 1 to 6")
	f.BoolVar(&o.rebuild, "rebuild-manifests", false, "make manifests that are lost or damaged anew, of backups that are sound")
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
	t.Rows = [][]string{{v.ID, result, fmt.Sprintf("%d %s", v.Level, backup.Level(v.Level)), size(v.Bytes), v.Problem}}
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
	if o.rebuild {
		if err := o.rebuildAll(ctx, file, refs); err != nil {
			return err
		}
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
	n, many := len(entries), "backups are"
	if len(l.Segments) > 0 && len(refs) == 0 {
		many = "backups and segments are"
	}
	if len(refs) == 0 {
		b, c, err := o.segments(ctx, l, file, s)
		if err != nil {
			return err
		}
		bad, sealed, n = bad+b, sealed+c, n+len(l.Segments)
	}
	if err := s.Close(""); err != nil {
		return err
	}
	if len(refs) == 0 {
		o.store.tellOdd(l, "")
	}
	switch none := len(l.Unfinished) + len(l.Orphans); {
	case bad > 0:
		return cli.WithHint(cli.Failf(cli.Integrity, "%d of %s damaged", bad, cli.Count(n, "backup is", many)), "take a new one with `backup run`; of a damaged one `backup fetch --damaged` and `snapshot verify --salvage` save what is sound")
	case sealed > 0:
		return cli.WithHint(cli.Failf(cli.Partial, "%d of %s encrypted, and not opened", sealed, cli.Count(n, "backup is", many)), "--identity FILE opens them")
	case none > 0 && len(refs) == 0:
		hint := "a run is at work or was killed, and the next one removes what it left"
		if len(l.Orphans) > 0 {
			hint = "--rebuild-manifests makes new ones for what is sound; `backup prune --orphans` removes what has none"
		}
		return cli.WithHint(cli.Failf(cli.Partial, "%s no manifest", cli.Count(none, "backup has", "backups have")), hint)
	case len(entries) == 0:
		return o.store.none(l, "")
	}
	return nil
}

// segments reads all segments, each in full.
func (o *verifyOptions) segments(ctx context.Context, l *backup.Listing, file dbfile.Options, s *output.Stream) (bad, sealed int, err error) {
	for i := range l.Segments {
		seg := &l.Segments[i]
		v := verifyView{ID: seg.ID(), Good: true, Level: int(backup.LevelSeal), Bytes: seg.Bytes}
		_, err := o.store.repo.CheckSegment(ctx, seg, file.Identities...)
		var stored *backup.StoredError
		switch {
		case errors.As(err, &stored):
			v.Good, v.Problem = false, stored.Reason
			bad++
		case errors.Is(err, segment.ErrEncrypted):
			v.Sealed, v.Problem = true, "it is encrypted"
			sealed++
		case err != nil:
			return bad, sealed, err
		}
		if err := s.Write(v); err != nil {
			return bad, sealed, err
		}
	}
	return bad, sealed, nil
}

// rebuildAll makes the manifests that are missing, of all backups or of those named. What
// cannot have one is told, and stays as it is.
func (o *verifyOptions) rebuildAll(ctx context.Context, file dbfile.Options, refs []string) (err error) {
	r, err := o.store.open(false)
	if err != nil {
		return err
	}
	lock, err := r.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	ctx = lock.Context()
	l, err := r.List(ctx)
	if err != nil {
		return err
	}
	var lost []*backup.Entry
	for i := range l.Orphans {
		lost = append(lost, &l.Orphans[i])
	}
	for i := range l.Entries {
		if e := &l.Entries[i]; e.Manifest == nil && e.Bytes >= 0 {
			lost = append(lost, e)
		}
	}
	for _, e := range lost {
		if len(refs) > 0 && !slices.ContainsFunc(refs, e.Is) {
			continue
		}
		_, err := r.Rebuild(ctx, e, o.store.dir, backup.VerifyOptions{File: file, Now: o.env.Now(), Dir: o.store.dir})
		switch {
		case err == nil:
			o.env.Say("made a new manifest for %s", e.ID())
		case errors.Is(err, keyspace.ErrCorrupt), errors.Is(err, backup.ErrNotOpened):
			o.env.Warn("%v", err)
		default:
			return err
		}
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
		v.Problem = cli.Count(r.Damage, "finding", "findings")
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
