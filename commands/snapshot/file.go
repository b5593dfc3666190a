package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

// fileFlags say how a file is opened. Under etcdutl's name there are none.
type fileFlags struct{ cli.FileFlags }

func (f *fileFlags) define(env *cli.Env, set *pflag.FlagSet) {
	if !env.DropIn() {
		f.Define(set, "")
	}
}

func (f *fileFlags) options(env *cli.Env) (dbfile.Options, error) {
	if env.DropIn() {
		return dbfile.Options{}, nil
	}
	return f.Options(env)
}

// oneFile is the only argument of a command.
func oneFile(c *cobra.Command, args []string) (string, error) {
	if len(args) != 1 || args[0] == "" {
		return "", cli.Usagef("snapshot %s requires exactly one argument", c.Name())
	}
	return args[0], nil
}

// openFile opens a file, and under etcdutl's name waits for the lock as --timeout says.
func openFile(ctx context.Context, env *cli.Env, c *cobra.Command, path string, o dbfile.Options) (*dbfile.Source, error) {
	wait, end := lockTimeout(env, c)
	for {
		src, err := dbfile.Open(ctx, path, o)
		if !errors.Is(err, keyspace.ErrLocked) || !wait || !end.IsZero() && !env.Now().Before(end) {
			if err != nil && env.DropIn() {
				err = ownHint(err)
			}
			return src, notBackup(path, err)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// notBackup says of a file that is no database that it is damaged, as verify does: whoever
// looks at it took it for a backup. Anything else under that name is the wrong argument.
func notBackup(path string, err error) error {
	if !errors.Is(err, keyspace.ErrNotDatabase) {
		return err
	}
	if st, serr := os.Stat(path); serr != nil || !st.Mode().IsRegular() {
		return err
	}
	d := *cli.Describe(err)
	d.Code, d.Class, d.Retryable = cli.Integrity, "", false
	return &d
}

// lockTimeout is until when to wait for a lock; the zero time: for ever.
func lockTimeout(env *cli.Env, c *cobra.Command) (wait bool, end time.Time) {
	f := c.Flags().Lookup("timeout")
	if env.Personality != cli.Etcdutl || f == nil {
		return false, end
	}
	d, err := c.Flags().GetDuration("timeout")
	if err != nil || d == 0 {
		return err == nil, end
	}
	return true, env.Now().Add(d)
}

// ownHint replaces the hints that name flags which a command does not have.
func ownHint(err error) error {
	var hint string
	switch {
	case err == nil:
		return nil
	case errors.Is(err, dbfile.ErrUnpack):
		hint = "if you trust the file, unpack it first"
	case errors.Is(err, keyspace.ErrLocked):
		hint = "save a snapshot from the running etcd, or work on a copy of the file"
	default:
		return err
	}
	d := *cli.Describe(err)
	d.Hint = hint
	return &d
}

// etcdutlView is an answer in etcdutl's forms.
type etcdutlView struct {
	header []string
	row    []string
	fields [][2]string
	json   any
}

// print writes it byte for byte as etcdutl does.
func (v etcdutlView) print(env *cli.Env) error {
	p, err := env.Printer(output.Simple, output.Fields, output.JSON, output.Tables)
	if err != nil {
		return err
	}
	var text string
	switch p.Format {
	case output.JSON:
		b, err := output.Marshal(v.json)
		if err != nil {
			return err
		}
		text = string(b) + "\n"
	case output.Fields:
		for _, f := range v.fields {
			text += fmt.Sprintf("%q : %s\n", f[0], f[1])
		}
	case output.Tables:
		if text, err = output.Boxed(v.header, [][]string{v.row}); err != nil {
			return err
		}
	default:
		for i, cell := range v.row {
			if i > 0 {
				text += ", "
			}
			text += cell
		}
		text += "\n"
	}
	_, err = io.WriteString(p.Out, text)
	return err
}
