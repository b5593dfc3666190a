//go:build linux

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// benchHash compares hashes of files. etcdutl writes to what it hashes and has a copy.
func benchHash(ctx context.Context, b *bencher) error {
	compacted := filepath.Join(b.dir, "compacted.db")
	if err := b.makeCompacted(ctx, compacted); err != nil {
		return err
	}
	for _, db := range []struct{ name, path string }{{"never compacted", b.large}, {"compacted", compacted}} {
		dup := filepath.Join(b.dir, "hashed.db")
		if err := copyTo(db.path, dup); err != nil {
			return err
		}
		ours := []string{b.ours, "snapshot", "hashkv", db.path}
		s, err := b.compare(ctx, nil, command{args: append(ours[:3:3], db.path, "--skip-hash-check")}, command{args: []string{b.etcdutl, "hashkv", dup}}, command{args: ours})
		if err = errors.Join(err, os.Remove(dup)); err != nil {
			return err
		}
		row("`snapshot hashkv --skip-hash-check`, "+db.name+"; peer: etcdutl hashkv", s[0], s[1])
		row("the same with the checksum", s[2], s[1])
	}
	s, err := b.compare(ctx, nil, command{args: []string{b.ours, "snapshot", "status", b.large}}, command{args: []string{b.etcdutl, "snapshot", "status", b.large}})
	if err != nil {
		return err
	}
	row("`snapshot status`; peer: etcdutl snapshot status", s[0], s[1])
	return nil
}

// benchRestore compares restores. What they have written is synced and removed before
// the next one.
func benchRestore(ctx context.Context, b *bencher) error {
	dir := filepath.Join(b.dir, "restored")
	s, err := b.compare(ctx, func() error { return os.RemoveAll(dir) },
		command{args: []string{b.ours, "snapshot", "restore", b.large, "--data-dir", dir}},
		command{args: []string{b.etcdutl, "snapshot", "restore", b.large, "--data-dir", dir}})
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		return err
	}
	row("`snapshot restore`, verified down to every record; peer: etcdutl snapshot restore", s[0], s[1])
	return nil
}

// makeCompacted makes the large database compacted in the middle.
func (b *bencher) makeCompacted(ctx context.Context, path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	srv, err := b.serve(ctx, b.large)
	if err != nil {
		return err
	}
	defer srv.close()
	r, err := srv.client.Get(ctx, "x")
	if err != nil {
		return err
	}
	if _, err := srv.client.Compact(ctx, r.Header.Revision/2, clientv3.WithCompactPhysical()); err != nil {
		return err
	}
	in, err := srv.client.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer in.Close()
	return write(in, path)
}

func copyTo(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	return write(in, to)
}

func write(in io.Reader, to string) error {
	out, err := os.Create(to + ".part")
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	return os.Rename(to+".part", to)
}

// benchSave compares saves of a running server, and what they do to another client.
func benchSave(ctx context.Context, b *bencher) error {
	srv, err := b.serve(ctx, b.large)
	if err != nil {
		return err
	}
	defer srv.close()
	out := filepath.Join(b.dir, "saved.db")
	clean := func() error {
		for _, f := range []string{out, out + ".manifest.json", out + ".part"} {
			if err := os.Remove(f); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		return nil
	}
	ours := command{args: []string{b.ours, "snapshot", "save", out, "--force"}, endpoint: srv.endpoint}
	peer := command{args: []string{b.etcdctl, "snapshot", "save", out, "--command-timeout", "5m"}, endpoint: srv.endpoint}
	s, err := b.compare(ctx, clean, ours, peer)
	if err != nil {
		return err
	}
	idle := srv.idleP99(ctx)
	var p99 []time.Duration
	for _, c := range []command{ours, peer} {
		if err := clean(); err != nil {
			return err
		}
		_, p, err := b.underLoad(ctx, srv, c)
		if err != nil {
			return err
		}
		p99 = append(p99, p)
	}
	row("`snapshot save`, levels 0 to 4; peer: etcdctl snapshot save", s[0], s[1], idle, p99[0], p99[1])
	return clean()
}

// benchVerify compares a verification with a look at the same file.
func benchVerify(ctx context.Context, b *bencher) error {
	ours := command{args: []string{b.ours, "snapshot", "verify", "--level", "4", b.large}}
	peer := command{args: []string{b.etcdutl, "snapshot", "status", b.large}}
	deep := command{args: []string{b.ours, "snapshot", "verify", b.large}}
	unsealed := command{args: []string{b.ours, "snapshot", "verify", "--level", "4", "--skip-hash-check", b.large}, code: 3}
	s, err := b.compare(ctx, nil, ours, peer, deep, unsealed)
	if err != nil {
		return err
	}
	row("`snapshot verify --level 4`, warm; peer: etcdutl snapshot status", s[0], s[1])
	row("the same without the checksum", s[3], s[1])
	row("`snapshot verify`, with every object of Kubernetes", s[2], s[1])
	runs := b.runs
	b.runs = min(runs, 3)
	defer func() { b.runs = runs }()
	if s, err = b.compare(ctx, func() error { return forget(b.large) }, ours, peer); err != nil {
		return err
	}
	row("`snapshot verify --level 4`, cold", s[0], s[1])
	return nil
}
