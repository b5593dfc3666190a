package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"filippo.io/age"
	"github.com/spf13/pflag"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
)

// FileFlags say how a database file is opened.
type FileFlags struct {
	Copy bool
	// SkipHash reads a snapshot whose checksum does not fit.
	SkipHash bool
	// WALDir is the write-ahead log where it does not lie in the data folder.
	WALDir string
	// UnpackLimit bounds what a packed snapshot may hold, in bytes.
	UnpackLimit int64
	// Identity are files of age identities, for encrypted snapshots.
	Identity []string
}

// Define adds the flags; with is put in front of their descriptions.
func (o *FileFlags) Define(f *pflag.FlagSet, with string) {
	f.BoolVar(&o.Copy, "db-copy", false, with+"read a private copy, so that the file of a running etcd can be read")
	f.StringVar(&o.WALDir, "wal-dir", "", with+"the folder of the member's write-ahead log, where that is not in the data folder")
	o.DefinePacked(f, with)
}

// DefinePacked adds only the flags for what a snapshot is packed in.
func (o *FileFlags) DefinePacked(f *pflag.FlagSet, with string) {
	f.Int64Var(&o.UnpackLimit, "db-unpack-limit", 0, with+"most bytes that a packed file may unpack to (0: 16 GiB, and 250 times its size)")
	f.StringArrayVar(&o.Identity, "identity", nil, with+"file of age identities that open an encrypted snapshot (also ETCDCTL_PLUS_IDENTITY)")
}

// DefineSkipHash adds the flag for damaged files.
func (o *FileFlags) DefineSkipHash(f *pflag.FlagSet, with string) {
	f.BoolVar(&o.SkipHash, "db-skip-hash-check", false, with+"read a snapshot whose checksum is wrong, as far as it can be read")
}

// Options reads the identities and returns how to open a file.
func (o *FileFlags) Options(env *Env) (dbfile.Options, error) {
	d := dbfile.Options{Copy: o.Copy, IgnoreChecksum: o.SkipHash, WALDir: o.WALDir, UnpackLimit: o.UnpackLimit}
	if o.UnpackLimit < 0 {
		return d, Usagef("--db-unpack-limit cannot be negative")
	}
	files := o.Identity
	if v := env.Getenv("ETCDCTL_PLUS_IDENTITY"); v != "" && len(files) == 0 {
		files = []string{v}
	}
	for _, path := range files {
		ids, err := readIdentities(path)
		if err != nil {
			return d, err
		}
		d.Identities = append(d.Identities, ids...)
	}
	return d, nil
}

func readIdentities(path string) ([]age.Identity, error) {
	f, err := os.Open(path)
	if err != nil {
		e := &Error{Code: Config, Err: fmt.Errorf("read age identities: %w", err)}
		if errors.Is(err, fs.ErrPermission) {
			e.Code = Permission
		}
		return nil, e
	}
	defer f.Close()
	ids, err := age.ParseIdentities(f)
	if err != nil {
		// The library's error may quote the line, which is a secret.
		return nil, &Error{Code: Config, Err: fmt.Errorf("read age identities: %s holds something else", path), Hint: "it is a file as age-keygen writes it, with lines that begin with AGE-SECRET-KEY-1"}
	}
	return ids, nil
}

// Recipients reads age recipients; each of all is one, or a file of them.
func Recipients(all []string) ([]age.Recipient, error) {
	var out []age.Recipient
	for _, s := range all {
		f, err := os.Open(s)
		if err != nil {
			if strings.HasPrefix(strings.ToUpper(s), "AGE-SECRET-KEY") {
				return nil, WithHint(Usagef("--recipient was given an identity, which is secret (not shown), and wants a recipient"), "`age-keygen -y FILE` prints the recipient of an identity; take a new identity if this one went into a log")
			}
			r, perr := age.ParseX25519Recipient(s)
			if perr != nil {
				return nil, WithHint(Usagef("--recipient %q is neither an age recipient nor a file of them", s), "a recipient begins with age1; age-keygen makes one, and the identity that opens what is encrypted to it")
			}
			out = append(out, r)
			continue
		}
		rs, err := age.ParseRecipients(f)
		f.Close()
		if err != nil {
			return nil, &Error{Code: Config, Err: fmt.Errorf("read age recipients from %s: %w", s, err)}
		}
		out = append(out, rs...)
	}
	return out, nil
}
