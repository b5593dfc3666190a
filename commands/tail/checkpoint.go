package tail

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/output"
	"github.com/etcdctl-plus/etcdctl-plus/watchtail"
)

func newCheckpointCmd(env *cli.Env) *cobra.Command {
	c := &cobra.Command{Use: "checkpoint", Short: "Look at a checkpoint, or set it"}
	c.AddCommand(newShowCmd(env), newVerifyCmd(env), newSetCmd(env))
	return c
}

// checkpointView is a checkpoint, and which file it is from.
type checkpointView struct {
	File string `json:"file"`
	*watchtail.Checkpoint
}

func (v checkpointView) Table() output.Table {
	out := ""
	if v.Output != nil {
		out = fmt.Sprintf("%s up to byte %d", v.Output.Path, v.Output.Offset)
	}
	return output.Table{
		Columns: []output.Column{{Name: "FILE"}, {Name: "GENERATION", Right: true}, {Name: "CLUSTER"}, {Name: "REVISION", Right: true}, {Name: "SELECTION"}, {Name: "OUTPUT"}, {Name: "TIME"}},
		Rows:    [][]string{{v.File, fmt.Sprint(v.Generation), fmt.Sprintf("%016x", uint64(v.ClusterID)), fmt.Sprint(v.Revision), v.Selection, out, v.Time.Format("2006-01-02T15:04:05Z07:00")}},
	}
}

func newShowCmd(env *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use: "show FILE", Short: "Show a checkpoint", Long: "Show a checkpoint. It is only read; a tail may be running on it.", Args: one,
		RunE: func(_ *cobra.Command, args []string) error {
			p, err := env.Printer(output.Views()...)
			if err != nil {
				return err
			}
			c, _, err := watchtail.ReadCheckpoint(args[0])
			if err != nil {
				return err
			}
			return p.Print(checkpointView{args[0], c})
		},
	}
}

func newVerifyCmd(env *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use: "verify FILE", Short: "Tell whether a checkpoint and the generation before it are sound", Args: one,
		Long: "Tell whether a checkpoint and the generation before it are sound: 0, or 32 when the\ncheckpoint is not. Both are only read.",
		RunE: func(_ *cobra.Command, args []string) error {
			p, err := env.Printer(output.Views()...)
			if err != nil {
				return err
			}
			c, _, err := watchtail.ReadCheckpoint(args[0])
			if prev, _, perr := watchtail.ReadCheckpoint(args[0] + watchtail.PrevSuffix); err != nil && perr == nil {
				return cli.WithHint(err, fmt.Sprintf("the generation before it, of revision %d, is sound, and tail uses it", prev.Revision))
			} else if perr != nil && err == nil && c.Generation > 1 {
				env.Warn("the generation before it cannot be used: %v", perr)
			}
			if err != nil {
				return err
			}
			return p.Print(checkpointView{args[0], c})
		},
	}
}

func newSetCmd(env *cli.Env) *cobra.Command {
	var rev int64
	var forget bool
	c := &cobra.Command{
		Use: "set FILE --rev N", Short: "Go on elsewhere", Args: one,
		Long: `Set the revision behind which the next tail goes on. With a smaller one events come
again, with a larger one some never come. --forget-cluster takes the next cluster for the
one that was followed, whatever its history. The generation before is kept.`,
		RunE: func(c *cobra.Command, args []string) error {
			if rev < 1 && c.Flags().Changed("rev") || !forget && !c.Flags().Changed("rev") {
				return cli.Usagef("say --rev N, from 1 on, or --forget-cluster")
			}
			f, err := watchtail.LockCheckpoint(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			old, damaged, err := f.Load()
			switch {
			case err != nil:
				return err
			case damaged != nil:
				env.Warn("%v; the generation before it is used", damaged)
			case old == nil:
				return cli.Failf(cli.Checkpoint, "checkpoint %s is not there", args[0])
			}
			if rev > 0 {
				old.Revision, old.Digest = rev, 0
			}
			if forget {
				old.ClusterID, old.Ahead, old.Digest = 0, 0, 0
			}
			old.Time = env.Now().UTC()
			return f.Save(*old)
		},
	}
	c.Flags().Int64Var(&rev, "rev", 0, "the last revision that was given")
	c.Flags().BoolVar(&forget, "forget-cluster", false, "do not compare the next cluster's history with this one's")
	return c
}

func one(_ *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return cli.Usagef("it takes one file")
	}
	return nil
}
