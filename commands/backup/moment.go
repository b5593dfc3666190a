package backup

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/etcdctl-plus/etcdctl-plus/backup"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
)

// momentFlags find a backup, or make one of a backup and the segments behind it.
type momentFlags struct {
	storeFlags
	rev  int64
	when string
}

// Define adds the flags.
func (m *momentFlags) Define(f *pflag.FlagSet) {
	m.storeFlags.Define(f)
	f.Int64Var(&m.rev, "to-revision", 0, "the state at this revision of BACKUP's cluster, from a backup and the segments behind it (see `backup follow`)")
	f.StringVar(&m.when, "to-time", "", "the state at this time, as far as it had come to `backup follow`: RFC 3339, or how long ago, such as 2h")
}

// moment reads the flags.
func (m *momentFlags) moment() (backup.Moment, bool, error) {
	revised, timed := m.flags.Changed("to-revision"), m.flags.Changed("to-time")
	switch {
	case revised && timed:
		return backup.Moment{}, false, cli.Usagef("--to-revision and --to-time exclude each other")
	case revised && m.rev < 1:
		return backup.Moment{}, false, cli.Usagef("--to-revision %d: revisions begin with 1", m.rev)
	case revised:
		return backup.Moment{Rev: m.rev}, true, nil
	case !timed:
		return backup.Moment{}, false, nil
	}
	if ago, err := time.ParseDuration(m.when); err == nil && ago >= 0 {
		return backup.Moment{Time: m.env.Now().Add(-ago)}, true, nil
	}
	t, err := time.Parse(time.RFC3339Nano, m.when)
	if err != nil {
		return backup.Moment{}, false, cli.Usagef("--to-time %q is neither a time such as 2026-12-01T03:00:00Z nor how long ago, such as 2h", m.when)
	}
	return backup.Moment{Time: t}, true, nil
}

// Locate fetches a backup, or makes the snapshot of a moment.
func (m *momentFlags) Locate(ctx context.Context, ref string) (path, name string, err error) {
	at, asked, err := m.moment()
	if err != nil {
		return "", "", err
	}
	if !asked {
		return m.storeFlags.Locate(ctx, ref)
	}
	l, err := m.list(ctx)
	if err != nil {
		return "", "", err
	}
	e, err := l.Find(ref)
	if err != nil {
		return "", "", notFound(err)
	}
	c, err := l.At(e.Cluster, at)
	var gap *backup.GapError
	if errors.As(err, &gap) {
		return "", "", cli.WithHint(cli.Failf(cli.Negative, "%w", err), "`backup list --segments` shows what is there")
	}
	if err != nil {
		return "", "", err
	}
	var file cli.FileFlags
	if ids, gerr := m.flags.GetStringArray("identity"); gerr == nil { // the command's own flag
		file.Identity = ids
	}
	o, err := file.Options(m.env)
	if err != nil {
		return "", "", err
	}
	b, err := m.repo.Build(ctx, c, at, m.dir, o)
	if err != nil {
		return "", "", err
	}
	m.env.OnClose(func() error { return os.Remove(b.Path) })
	when := ""
	if !b.Time.IsZero() {
		when = ", which came at " + b.Time.UTC().Format(time.RFC3339)
	}
	m.env.Say("backup %s, taken forward by %s to revision %d%s; users, members and alarms are the backup's", b.Base, cli.Count(int(b.Revisions), "revision", "revisions"), b.Revision, when)
	return b.Path, "backup " + b.Base + " at " + at.String(), nil
}
