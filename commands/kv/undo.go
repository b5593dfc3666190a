package kv

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unicode/utf8"

	"github.com/etcdctl-plus/etcdctl-plus/backup/place"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// The size of one transaction that puts things back; etcd takes 128 operations and 1.5 MB
// unless told otherwise.
const (
	undoOps   = 100
	undoBytes = 512 << 10
)

// save writes what was there as transactions that put it back, and returns the file's
// name. The file is on the disk before anything is written to the cluster.
func (g *writeGuard) save(env *cli.Env, t *there, all []written) (string, error) {
	path := g.undo
	if path == "" {
		dir, err := stateDir(env)
		if err != nil {
			return "", err
		}
		path = filepath.Join(dir, fmt.Sprintf("%s-%d.json", env.Now().UTC().Format("20060102T150405.000000000"), t.rev))
	}
	b, err := t.undoing(all)
	if err != nil {
		return "", err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", cli.WithHint(fmt.Errorf("save what is there: %w", err), "nothing was written to the cluster; --undo FILE names another place")
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = place.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		_ = os.Remove(path) // of no use, and ours
		return "", fmt.Errorf("save what is there: %w", err)
	}
	return path, nil
}

// stateDir is a folder of the user's alone, by the XDG base directory specification.
func stateDir(env *cli.Env) (string, error) {
	base := env.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(base) {
		home := env.Getenv("HOME")
		if home == "" {
			var err error
			if home, err = os.UserCacheDir(); err != nil {
				return "", cli.WithHint(cli.Failf(cli.CantCreate, "there is no home folder to save what is there in"), "--undo FILE names a place")
			}
		}
		base = filepath.Join(home, ".local", "state")
	}
	dir := filepath.Join(base, "etcdctl-plus", "undo")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", cli.WithHint(fmt.Errorf("save what is there: %w", err), "--undo FILE names another place")
	}
	return dir, nil
}

// undoing is a document a line: keys that were not there are deleted, the others get back
// what they had, with their lease.
func (t *there) undoing(all []written) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	var doc txnDoc
	size := 0
	flush := func() error {
		if len(doc.Then) == 0 {
			return nil
		}
		err := e.Encode(doc)
		doc, size = txnDoc{}, 0
		return err
	}
	add := func(op opDoc, n int) error {
		if len(doc.Then) == undoOps || size > 0 && size+n > undoBytes {
			if err := flush(); err != nil {
				return err
			}
		}
		doc.Then = append(doc.Then, op)
		size += n
		return nil
	}
	had := map[string]bool{}
	for _, r := range t.records {
		had[string(r.Key)] = true
	}
	seen := map[string]bool{}
	for _, w := range all {
		if w.end != "" || had[w.key] || seen[w.key] {
			continue
		}
		seen[w.key] = true
		d := &delDoc{}
		d.Key, d.KeyBase64 = textOrBase64([]byte(w.key))
		if err := add(opDoc{Del: d}, 0); err != nil {
			return nil, err
		}
	}
	for _, r := range t.records {
		if seen[string(r.Key)] {
			continue
		}
		seen[string(r.Key)] = true
		p, err := putting(r)
		if err != nil {
			return nil, err
		}
		if err := add(opDoc{Put: p}, len(r.Value)); err != nil {
			return nil, err
		}
	}
	err := flush()
	return b.Bytes(), err
}

func putting(r keyspace.Record) (*putDoc, error) {
	p := &putDoc{}
	p.Key, p.KeyBase64 = textOrBase64(r.Key)
	var raw []byte
	if p.Value, raw = textOrBase64(r.Value); p.Value == nil {
		p.ValueBase64 = &raw
	}
	if r.Lease != 0 {
		id, err := json.Marshal(cli.LeaseID(r.Lease))
		if err != nil {
			return nil, err
		}
		p.Lease = id
	}
	return p, nil
}

// textOrBase64 is a string where the bytes are UTF-8, else the bytes.
func textOrBase64(b []byte) (*string, []byte) {
	if !utf8.Valid(b) {
		return nil, b
	}
	s := string(b)
	return &s, nil
}
