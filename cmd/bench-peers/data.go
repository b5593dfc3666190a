//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/dbfile"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sandbox"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/corpus"
)

// programs builds what is measured from the module graph of the source tree.
func (b *bencher) programs(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	b.self = self
	for pkg, path := range map[string]*string{
		"./cmd/etcdctl-plus":         &b.ours,
		"go.etcd.io/etcd/etcdctl/v3": &b.etcdctl,
		"go.etcd.io/etcd/etcdutl/v3": &b.etcdutl,
		"go.etcd.io/etcd/server/v3":  &b.etcd,
	} {
		name := map[*string]string{&b.ours: "etcdctl-plus", &b.etcdctl: "etcdctl", &b.etcdutl: "etcdutl", &b.etcd: "etcd"}[path]
		*path = filepath.Join(b.dir, name)
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", *path, pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		cmd.Stderr = os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("build %s: %w", pkg, err)
		}
	}
	return nil
}

// databases makes the data once: 1 M small keys and 100 k Pods written twice; and
// 300 k revisions of one put each.
func (b *bencher) databases(ctx context.Context) error {
	keys, pods, revs := 1_000_000, 100_000, 300_000
	if b.small {
		keys, pods, revs = 10_000, 1_000, 3_000
	}
	b.large, b.revisions = filepath.Join(b.dir, "large.db"), filepath.Join(b.dir, "revisions.db")
	if err := b.makeDB(ctx, b.large, func(c *clientv3.Client) error { return putLarge(ctx, c, keys, pods) }); err != nil {
		return err
	}
	return b.makeDB(ctx, b.revisions, func(c *clientv3.Client) error {
		return spread(ctx, revs, func(i int) error {
			_, err := c.Put(ctx, fmt.Sprintf("/app/%05d", i%10_000), fmt.Sprintf("value %d of a key that is written again and again", i))
			return err
		})
	})
}

func (b *bencher) makeDB(ctx context.Context, path string, fill func(*clientv3.Client) error) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	fmt.Fprintln(os.Stderr, "making", path)
	s, err := sandbox.Start(ctx, sandbox.Options{Dir: b.dir})
	if err != nil {
		return err
	}
	defer s.Close()
	c, err := s.Client()
	if err != nil {
		return err
	}
	defer c.Close()
	if err := fill(c); err != nil {
		return err
	}
	r, err := c.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	f, err := os.Create(path + ".part")
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, r); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(path+".part", path)
}

// spread calls f for 0..n-1 from many goroutines.
func spread(ctx context.Context, n int, f func(int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	const workers = 64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := w; i < n && ctx.Err() == nil; i += workers {
				if err := f(i); err != nil {
					cancel(err)
				}
			}
		}()
	}
	wg.Wait()
	return context.Cause(ctx)
}

func putLarge(ctx context.Context, c *clientv3.Client, keys, pods int) error {
	tmpl, err := podTemplate(ctx)
	if err != nil {
		return err
	}
	put := func(key, value string) error { _, err := c.Put(ctx, key, value); return err }
	// What tells a registry from other data; every cluster has it.
	if err := put("/registry/namespaces/kube-system", `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system"}}`); err != nil {
		return err
	}
	for round := range 2 {
		err := spread(ctx, pods, func(i int) error {
			key, value, err := podOf(tmpl, i, round)
			if err != nil {
				return err
			}
			return put(key, value)
		})
		if err != nil {
			return err
		}
	}
	return spread(ctx, keys, func(i int) error {
		return put(fmt.Sprintf("/app/%03d/setting-%07d", i%1000, i), fmt.Sprintf("value-%07d-of-a-small-key", i))
	})
}

// podTemplate takes a real Pod, as an API server stored it, out of the corpus.
func podTemplate(ctx context.Context) (*corev1.Pod, error) {
	dir, err := os.MkdirTemp("", "bench-corpus-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	db := filepath.Join(dir, "snapshot.db")
	if err := corpus.Unpack("snapshot.db.gz", db); err != nil {
		return nil, err
	}
	src, err := dbfile.Open(ctx, db, dbfile.Options{})
	if err != nil {
		return nil, err
	}
	defer src.Close()
	for rec, err := range src.Records(ctx, keyspace.Prefix([]byte("/registry/pods/data-platform/db-"))) {
		if err != nil {
			return nil, err
		}
		var u runtime.Unknown
		if err := u.Unmarshal(rec.Value[4:]); err != nil {
			return nil, err
		}
		p := &corev1.Pod{}
		return p, p.Unmarshal(u.Raw)
	}
	return nil, fmt.Errorf("the corpus has no such Pod")
}

func podName(i int) string { return fmt.Sprintf("web-%06d-%05x", i, i*7919%0xfffff) }

func podOf(tmpl *corev1.Pod, i, round int) (key, value string, err error) {
	p := tmpl.DeepCopy()
	p.Name, p.Namespace = podName(i), fmt.Sprintf("team-%03d", i%200)
	p.UID = types.UID(fmt.Sprintf("%08x-0000-4000-8000-%012x", i, i*31))
	p.Spec.NodeName = fmt.Sprintf("node-%04d", i%1000)
	p.Status.PodIP = fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255)
	p.Generation = int64(round + 1)
	raw, err := p.Marshal()
	if err != nil {
		return "", "", err
	}
	u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Raw: raw}
	b, err := u.Marshal()
	return "/registry/pods/" + p.Namespace + "/" + p.Name, "k8s\x00" + string(b), err
}
