package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

type statusOptions struct {
	env  *cli.Env
	file fileFlags
	cmd  *cobra.Command
	path string
}

func newStatusCmd(env *cli.Env) *cobra.Command {
	o := statusOptions{env: env}
	c := &cobra.Command{
		Use:   "status FILE",
		Short: "What is in a snapshot: revision, keys, size, version",
		Long: `What is in a snapshot: revision, keys, size, the etcd that wrote it, its members.

The checksum is compared: a snapshot that was changed after it was saved is said to
be, and the exit code is 10. "snapshot verify" looks at every record too. A member's
own file has no checksum, and the newest writes may be only in its log.

The hash is etcdutl's: of all buckets, members and all, so that two files seldom have
the same. To compare contents take "snapshot hashkv".`,
		Example: `  etcdctl-plus snapshot status snapshot.db
  etcdctl-plus snapshot status snapshot.db.gz -w json`,
		RunE: func(c *cobra.Command, args []string) (err error) {
			o.cmd = c
			if o.path, err = oneFile(c, args); err != nil {
				return err
			}
			return o.run(c.Context())
		},
	}
	o.file.define(env, c.Flags())
	return c
}

func (o *statusOptions) run(ctx context.Context) error {
	formats := output.Views()
	if o.env.DropIn() {
		formats = []output.Format{output.Simple, output.Fields, output.JSON, output.Tables}
	}
	p, err := o.env.Printer(formats...)
	if err != nil {
		return err
	}
	file, err := o.file.options(o.env)
	if err != nil {
		return err
	}
	file.IgnoreChecksum = true // it is compared here, and does not stop the answer
	src, err := openFile(ctx, o.env, o.cmd, o.path, file)
	if err != nil {
		return err
	}
	o.env.OnClose(src.Close)
	v, wrong, err := statusOf(ctx, src)
	if err != nil {
		return err
	}
	if wrong != nil {
		o.env.Warn("checksum wrong: the file changed after it was saved")
	}
	if o.env.DropIn() {
		return v.etcdutl().print(o.env)
	}
	if src.Lacks() {
		o.env.Warn("%s: %s", o.path, src.Note())
	}
	if err := p.Print(v); err != nil || wrong == nil {
		return err
	}
	return &cli.Error{Code: cli.Integrity, Err: wrong, Hint: "use another copy of the snapshot"}
}

// statusView has etcdutl's names for what etcdutl has.
type statusView struct {
	Hash             uint32       `json:"hash"`
	Revision         int64        `json:"revision"`
	TotalKey         int64        `json:"totalKey"` // live ones
	TotalSize        int64        `json:"totalSize"`
	Version          string       `json:"version"` // as the file has it: since etcd 3.6
	WrittenBy        string       `json:"writtenBy,omitempty"`
	Kind             string       `json:"kind"`
	Checksum         string       `json:"checksum"` // ok, wrong, none
	CompactRevision  int64        `json:"compactRevision"`
	CompactScheduled int64        `json:"compactScheduled,omitempty"` // begun and not finished
	Records          int64        `json:"records"`
	Tombstones       int64        `json:"tombstones"`
	Leases           int          `json:"leases"`
	InUseBytes       int64        `json:"inUseBytes"`
	Members          []memberView `json:"members"`
	AuthEnabled      bool         `json:"authEnabled"`
	Alarms           int          `json:"alarms"`
	RaftIndex        uint64       `json:"raftIndex,omitempty"`
	RaftTerm         uint64       `json:"raftTerm,omitempty"`
	Note             string       `json:"note,omitempty"`

	lastRev  int64 // of the last record, which etcdutl calls the revision
	keysLike int64 // as etcdutl counts them
}

type memberView struct {
	ID       string   `json:"id"`
	Name     string   `json:"name"`
	PeerURLs []string `json:"peerUrls"`
	Learner  bool     `json:"learner,omitempty"`
}

// statusOf reads everything; the checksum is computed meanwhile. wrong is that it does
// not fit.
func statusOf(ctx context.Context, src *dbfile.Source) (v *statusView, wrong, err error) {
	v = &statusView{Checksum: "none"}
	var sum sync.WaitGroup
	var sumErr error
	if src.HasTrailer() {
		v.Checksum = "ok"
		sum.Go(func() { _, sumErr = src.Sum(ctx) })
	}
	err = v.read(ctx, src)
	sum.Wait()
	var checksum *dbfile.ChecksumError
	if errors.As(sumErr, &checksum) {
		v.Checksum = "wrong"
		return v, sumErr, err
	}
	return v, nil, cmp.Or(err, sumErr)
}

func (v *statusView) read(ctx context.Context, src *dbfile.Source) error {
	info, err := src.Info(ctx)
	if err != nil {
		return err
	}
	v.Revision, v.CompactRevision, v.CompactScheduled = info.Revision, info.CompactRev, info.CompactScheduled
	v.TotalSize, v.Kind, v.WrittenBy, v.Note = src.SizeInPages(), string(info.Kind), info.Version, info.Note
	c, err := src.Contents(ctx)
	if err != nil {
		return err
	}
	v.Hash, v.Records, v.Tombstones, v.lastRev = c.Hash, c.Records, c.Tombstones, c.LastRev
	if v.TotalKey, err = src.Keys(ctx); err != nil {
		return err
	}
	v.keysLike = v.TotalKey + min(c.Bumps, 1)
	if v.InUseBytes, err = src.BytesInUse(ctx); err != nil {
		return err
	}
	err = src.Each(ctx, "meta", func(key, value []byte) error {
		if string(key) == "storageVersion" {
			v.Version = semantic(string(value))
		}
		return nil
	})
	if err != nil {
		return err
	}
	leases, err := src.Leases(ctx)
	if err != nil {
		return err
	}
	v.Leases = len(leases)
	members, err := src.Members(ctx)
	if err != nil {
		return err
	}
	v.Members = []memberView{}
	for _, m := range members {
		v.Members = append(v.Members, memberView{ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs, Learner: m.IsLearner})
	}
	if v.AuthEnabled, err = src.AuthEnabled(ctx); err != nil {
		return err
	}
	if v.Alarms, err = src.Alarms(ctx); err != nil {
		return err
	}
	v.RaftIndex, v.RaftTerm = src.RaftIndex()
	return nil
}

// semantic returns a version of three numbers as it is, and "" for anything else.
func semantic(s string) string {
	parts := strings.Split(s, ".")
	if len(parts) != 3 {
		return ""
	}
	for _, p := range parts {
		if _, err := strconv.ParseUint(p, 10, 32); err != nil {
			return ""
		}
	}
	return s
}

func (v *statusView) Table() output.Table {
	t := output.Table{Columns: []output.Column{{Name: "WHAT", Keep: true}, {Name: "VALUE", Wrap: true}}}
	add := func(what, format string, a ...any) {
		t.Rows = append(t.Rows, []string{what, fmt.Sprintf(format, a...)})
	}
	compacted := "never compacted"
	switch {
	case v.CompactScheduled > 0:
		compacted = fmt.Sprintf("a compaction at %d was begun", v.CompactScheduled)
	case v.CompactRevision > 0:
		compacted = fmt.Sprintf("compacted at %d", v.CompactRevision)
	}
	add("kind", "%s, checksum %s", v.Kind, v.Checksum)
	add("revision", "%d, %s", v.Revision, compacted)
	add("keys", "%d live, in %d records of which %d are deletions", v.TotalKey, v.Records, v.Tombstones)
	add("leases", "%d", v.Leases)
	add("size", "%s, %s in use", output.Bytes(v.TotalSize), output.Bytes(v.InUseBytes))
	add("version", "%s", cmp.Or(v.Version, v.WrittenBy, "not noted: etcd 3.5 or older"))
	add("hash", "%x", v.Hash)
	for _, m := range v.Members {
		learner := ""
		if m.Learner {
			learner = ", learner"
		}
		add("member", "%s %s %s%s", m.ID, m.Name, strings.Join(m.PeerURLs, ","), learner)
	}
	if v.RaftIndex > 0 {
		add("raft", "index %d, term %d", v.RaftIndex, v.RaftTerm)
	}
	if v.AuthEnabled {
		add("authentication", "enabled")
	}
	if v.Alarms > 0 {
		add("alarms", "%d raised", v.Alarms)
	}
	if v.Note != "" {
		add("note", "%s", v.Note)
	}
	return t
}

func (v *statusView) etcdutl() etcdutlView {
	size := humanize.Bytes(uint64(max(v.TotalSize, 0)))
	return etcdutlView{
		header: []string{"hash", "revision", "total keys", "total size", "version"},
		row:    []string{fmt.Sprintf("%x", v.Hash), fmt.Sprint(v.lastRev), fmt.Sprint(v.keysLike), size, v.Version},
		fields: [][2]string{
			{"Hash", fmt.Sprint(v.Hash)}, {"Revision", fmt.Sprint(v.lastRev)}, {"Keys", fmt.Sprint(v.keysLike)},
			{"Size", fmt.Sprint(v.TotalSize)}, {"Version", v.Version},
		},
		json: struct {
			Hash      uint32 `json:"hash"`
			Revision  int64  `json:"revision"`
			TotalKey  int64  `json:"totalKey"`
			TotalSize int64  `json:"totalSize"`
			Version   string `json:"version"`
		}{v.Hash, v.lastRev, v.keysLike, v.TotalSize, v.Version},
	}
}
