package backup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/etcdctl-plus/etcdctl-plus/backup"
	"github.com/etcdctl-plus/etcdctl-plus/backup/store"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
)

// storeFlags choose the repository.
type storeFlags struct {
	env   *cli.Env
	where string
	o     store.Options
	dir   string
	flags *pflag.FlagSet

	repo    *backup.Repository
	listing *backup.Listing
}

// Define adds the flags.
func (s *storeFlags) Define(f *pflag.FlagSet) {
	s.flags = f
	f.StringVar(&s.where, "store", "", "the repository: a folder, s3://BUCKET/PREFIX or rclone:REMOTE:PATH (also ETCDCTL_PLUS_STORE)")
	s.defineS3(f, "")
	if f.Lookup("dir") == nil {
		f.StringVar(&s.dir, "dir", "", "folder for temporary files (default: the system's)")
	}
}

func (s *storeFlags) defineS3(f *pflag.FlagSet, prefix string) {
	f.StringVar(&s.o.Endpoint, prefix+"s3-endpoint", "", "URL of an S3-compatible server (also AWS_ENDPOINT_URL_S3; default: Amazon's)")
	f.StringVar(&s.o.Region, prefix+"s3-region", "", "region (also AWS_REGION)")
	f.StringVar(&s.o.Profile, prefix+"s3-profile", "", "profile of the shared credentials files (also AWS_PROFILE)")
	f.StringVar(&s.o.Addressing, prefix+"s3-addressing", "", "how the bucket is named: path or virtual (default: path where an endpoint is given)")
	f.StringVar(&s.o.CAFile, prefix+"s3-cacert", "", "file with the certificate authorities of the server (also AWS_CA_BUNDLE)")
}

// open opens the repository, once. create makes a folder that is not there.
func (s *storeFlags) open(create bool) (*backup.Repository, error) {
	if s.repo != nil {
		return s.repo, nil
	}
	if s.flags != nil && s.flags.Changed("store") && s.where == "" {
		return nil, cli.WithHint(cli.Usagef("--store is empty"), "is a variable in your script unset?")
	}
	if s.where == "" {
		s.where = s.env.Getenv("ETCDCTL_PLUS_STORE")
	}
	if s.where == "" {
		return nil, cli.WithHint(cli.Usagef("no repository is named"), "--store URL, or ETCDCTL_PLUS_STORE: a folder, s3://BUCKET/PREFIX or rclone:REMOTE:PATH")
	}
	s.o.Create, s.o.Getenv = create, s.env.Getenv
	st, err := store.Open(s.where, s.o)
	if err != nil {
		return nil, err
	}
	s.env.OnClose(st.Close)
	s.repo = &backup.Repository{Store: st}
	return s.repo, nil
}

// list reads what is in the repository, once.
func (s *storeFlags) list(ctx context.Context) (*backup.Listing, error) {
	if s.listing != nil {
		return s.listing, nil
	}
	r, err := s.open(false)
	if err != nil {
		return nil, err
	}
	s.listing, err = r.List(ctx)
	return s.listing, err
}

// Locate fetches a backup into a private file, which goes with env.
func (s *storeFlags) Locate(ctx context.Context, ref string) (path, name string, err error) {
	l, err := s.list(ctx)
	if err != nil {
		return "", "", err
	}
	e, err := l.Find(ref)
	if err != nil {
		return "", "", notFound(err)
	}
	path, err = s.repo.FetchFile(ctx, e, s.dir)
	if err != nil {
		return "", "", withOlder(err, l, e)
	}
	s.env.OnClose(func() error { return os.Remove(path) })
	return path, "backup " + e.ID(), nil
}

// tellOdd warns of what lies in the repository and is no whole backup. cluster is the only
// one of interest; "": all.
func (s *storeFlags) tellOdd(l *backup.Listing, cluster string) {
	for _, name := range l.Unfinished {
		if cluster == "" || strings.Contains(name, "/"+cluster+"/") {
			s.env.Warn("%s is not finished: a run is at work, or was killed; the next one removes it", name)
		}
	}
	for i := range l.Orphans {
		if e := &l.Orphans[i]; cluster == "" || e.Cluster == cluster {
			s.env.Warn("%s has no manifest, and no run left it so: it does not count and stays; `backup verify --rebuild-manifests` makes a new one if it is sound, `backup prune --orphans` removes it", e.ID())
		}
	}
	for i, name := range l.Foreign {
		if i == foreignShown {
			s.env.Warn("%s more there not written by this program", cli.Count(len(l.Foreign)-i, "thing was", "things were"))
			break
		}
		s.env.Warn("%s was not written by this program, and is left alone", name)
	}
}

// foreignShown is how many of what others wrote are named.
const foreignShown = 10

// none is the answer for a repository without a backup, or without one of a cluster.
func (s *storeFlags) none(l *backup.Listing, cluster string) error {
	if cluster == "" {
		return cli.Failf(cli.Negative, "there is no backup in %s", s.repo.Store)
	}
	hint := "there is no backup of any other cluster either"
	if all := l.Clusters(); len(all) > 0 {
		hint = "there are backups of " + strings.Join(all, ", ")
	}
	return cli.WithHint(cli.Failf(cli.Negative, "there is no backup of cluster %s in %s", cluster, s.repo.Store), hint)
}

// size shows how large what is stored is; nothing for what is not there.
func size(bytes int64) string {
	if bytes < 0 {
		return ""
	}
	return fmt.Sprint(bytes)
}

// withOlder says which older backup there is instead of a damaged one, and how to get at
// what is left of that.
func withOlder(err error, l *backup.Listing, e *backup.Entry) error {
	var stored *backup.StoredError
	if !errors.As(err, &stored) {
		return err
	}
	hint := "`backup fetch --damaged` takes it as it is, for `snapshot verify --salvage` or `snapshot restore --accept-findings`"
	for i := len(l.Entries) - 1; i >= 0; i-- {
		if o := &l.Entries[i]; o.Cluster == e.Cluster && o.Problem == "" && o.ID() != e.ID() {
			hint = "an older one is " + o.ID() + "; " + hint
			break
		}
	}
	return cli.WithHint(&cli.Error{Code: cli.Integrity, Err: err}, hint)
}

func notFound(err error) error {
	var several *backup.AmbiguousError
	switch {
	case errors.As(err, &several):
		cluster, _, _ := strings.Cut(several.IDs[0], "/")
		return cli.WithHint(cli.Usagef("%v", err), "the repository holds several clusters: name it as CLUSTER/NAME, such as "+cluster+"/latest")
	case errors.Is(err, store.ErrNotExist):
		return cli.WithHint(&cli.Error{Code: cli.Negative, Err: err}, "`backup list` shows what there is")
	}
	return err
}
