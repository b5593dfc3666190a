package cli

import (
	"context"
	"fmt"
	"math"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/live"
)

// SourceFlags chooses the keyspace a reading command works on.
type SourceFlags struct {
	DB string // file or data folder; "": the live cluster
	FileFlags
	// MaxRate bounds what is read from a cluster, in bytes a second; 0: no bound.
	MaxRate Bytes
	// Consistency is l, or s for what one member has, which needs no quorum.
	Consistency string

	flags *pflag.FlagSet
}

// Define adds the flags.
func (s *SourceFlags) Define(f *pflag.FlagSet) {
	s.flags = f
	f.StringVar(&s.DB, "db", "", "read this file instead of a cluster: a snapshot, a member's database, or a data folder")
	s.FileFlags.Define(f, "with --db: ")
	s.DefineSkipHash(f, "with --db: ")
	f.Var(&s.MaxRate, "max-rate", "live: read at most so many bytes a second from the cluster, such as 10M (0: no bound)")
	if f.Lookup("consistency") == nil { // get has it from etcdctl
		f.StringVar(&s.Consistency, "consistency", "l", "live: Linearizable(l), or Serializable(s): what one member has, which may be behind and needs no quorum")
	}
}

// Check finds flags that contradict each other. Open calls it; a command that may
// go on without Open calls it first.
func (s *SourceFlags) Check() error {
	switch {
	case s.DB != "" && s.MaxRate > 0:
		return Usagef("--max-rate is for reading from a cluster, not a file")
	case s.Consistency != "" && s.Consistency != "l" && s.Consistency != "s":
		return Usagef("unknown consistency flag %q: it is l or s", s.Consistency)
	case s.DB != "" && s.Consistency != "" && s.flags.Changed("consistency"):
		return Usagef("--consistency is for reading from a cluster, not a file")
	case s.flags == nil || s.DB != "":
		return nil
	case s.flags.Changed("db"):
		return WithHint(Usagef("--db is empty"), "is a variable in your script unset? For the live cluster leave --db away")
	case s.Copy:
		return Usagef("--db-copy goes with --db")
	case s.SkipHash:
		return Usagef("--db-skip-hash-check goes with --db")
	case s.UnpackLimit > 0:
		return Usagef("--db-unpack-limit goes with --db")
	case s.WALDir != "":
		return Usagef("--wal-dir goes with --db")
	case len(s.Identity) > 0:
		return Usagef("--identity goes with --db")
	}
	return nil
}

// Open opens the chosen source. It is closed with env.
func (s *SourceFlags) Open(ctx context.Context, env *Env) (keyspace.Source, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	if s.DB == "" {
		return s.Live(ctx, env, s.Serializable())
	}
	if env.Flags.Given("endpoints") {
		return nil, Usagef("--db and --endpoints exclude each other: is it the file or the cluster you want?")
	}
	return s.File(ctx, env, s.DB)
}

// Serializable tells whether one member's own word is enough.
func (s *SourceFlags) Serializable() bool { return s.Consistency == "s" }

// File opens a file or data folder as a source, by the flags that say how.
func (s *SourceFlags) File(ctx context.Context, env *Env, path string) (keyspace.Source, error) {
	o, err := s.FileFlags.Options(env)
	if err != nil {
		return nil, err
	}
	src, err := dbfile.Open(ctx, path, o)
	if err != nil {
		return nil, err
	}
	env.OnClose(src.Close)
	// Info would wait for the checksum, which is computed while the file is searched.
	if note := src.Note(); note != "" {
		env.Warn("%s: %s", path, note)
	}
	if src.Lacks() {
		env.incomplete = Failf(Partial, "%s may lack writes that were acknowledged; the warning says why", path)
	}
	return env.under(src)
}

// History opens the chosen source and wants its events.
func (s *SourceFlags) History(ctx context.Context, env *Env) (keyspace.HistorySource, error) {
	src, err := s.Open(ctx, env)
	if err != nil {
		return nil, err
	}
	if env.Getenv("GOMEMLIMIT") == "" {
		// To follow keys through a history takes memory that lives.
		debug.SetMemoryLimit(math.MaxInt64)
	}
	h, ok := src.(keyspace.HistorySource)
	if !ok {
		return nil, Failf(Failure, "this source has no history")
	}
	return h, nil
}

// Whole returns all of src, whatever --key-prefix says: a file's size and a lease are
// not of one prefix.
func Whole(src keyspace.HistorySource) (keyspace.HistorySource, error) {
	h, ok := keyspace.Base(src).(keyspace.HistorySource)
	if !ok {
		return nil, Failf(Failure, "this source has no history")
	}
	return h, nil
}

// Live opens the live cluster as a source. Serializable reads are answered by
// any member from what it has.
func (s *SourceFlags) Live(ctx context.Context, env *Env, serializable bool) (keyspace.Source, error) {
	client, err := env.Client(ctx)
	if err != nil {
		return nil, err
	}
	return s.live(env, client, serializable)
}

// streamMemory is what the garbage collector aims to stay below while a cluster is
// read. Each chunk of a stream is garbage soon after; left to itself the collector
// lets several pile up. It costs no time: what lives is far smaller.
const streamMemory = 80 << 20

// live makes a source of a client, with a progress line while a snapshot of the
// cluster is on its way.
func (s *SourceFlags) live(env *Env, client *clientv3.Client, serializable bool) (keyspace.Source, error) {
	if env.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(streamMemory)
	}
	set, err := env.Settings()
	if err != nil {
		return nil, err
	}
	progress := env.Progress("snapshot from the cluster, bytes")
	src := live.New(client, live.Options{Serializable: serializable, MaxRate: int64(s.MaxRate), RequestTimeout: set.CommandTimeout, Progress: func(p live.Progress) {
		if !p.Snapshot || p.Bytes >= p.Total && p.Total > 0 {
			progress.Done()
			return
		}
		progress.Set(p.Bytes, p.Total)
	}})
	env.OnClose(src.Close)
	return env.under(src)
}

// under is the part of src that --key-prefix leaves.
func (e *Env) under(src keyspace.Source) (keyspace.Source, error) {
	set, err := e.Settings()
	if err != nil {
		return nil, err
	}
	return keyspace.Under([]byte(set.KeyPrefix), src), nil
}

// Member opens one member as a source: what it says is its own word, not the
// cluster's.
func (s *SourceFlags) Member(ctx context.Context, env *Env, endpoint string) (keyspace.Source, error) {
	client, err := env.ClientOf(ctx, endpoint)
	if err != nil {
		return nil, err
	}
	env.OnClose(client.Close)
	return s.live(env, client, true)
}

// LeaseID writes a lease as etcdctl does: hex, 16 digits; "" for none.
func LeaseID(id int64) string {
	if id == 0 {
		return ""
	}
	return fmt.Sprintf("%016x", uint64(id))
}

// ParseRev reads a revision a user gave.
func ParseRev(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return 0, Usagef("%q is not a revision", s)
	}
	return n, nil
}

// CompactRevision asks the server how far its history is compacted. etcd says
// so only to a watcher that starts too early; the watch is ended at once.
func CompactRevision(ctx context.Context, client *clientv3.Client, key []byte) (int64, bool) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for r := range client.Watch(ctx, string(key), clientv3.WithRev(1)) {
		return r.CompactRevision, r.CompactRevision > 0
	}
	return 0, false
}
