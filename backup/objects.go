package backup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/pipeline"
	"github.com/etcdctl-plus/etcdctl-plus/registry"
)

// ObjectReader reads the objects of Kubernetes in a keyspace.
type ObjectReader struct {
	Mapper *registry.Mapper
	// NewDecoder makes a decoder for one goroutine.
	NewDecoder func() *registry.Decoder
}

// objectCount sums up the objects of a keyspace.
type objectCount struct {
	objects int64
	sealed  int64 // could not be opened
}

// sealNames collects what sealed values need to be opened: "aescbc:key1". Names are as
// good as the values themselves tell; see registry.Seal.
type sealNames map[string]int

// see notes a value.
func (n sealNames) see(rec keyspace.Record) {
	if h, ok := registry.SealOf(rec.Value); ok {
		name := h.Provider
		if h.KeyName != "" {
			name += ":" + h.KeyName
		}
		n[name]++
	}
}

// sorted leaves out what is a rare guess: where a name ends is not certain, because what
// follows it is random.
func (n sealNames) sorted() []string {
	for name, count := range n {
		for other, often := range n {
			if strings.HasPrefix(name, other+":") && often > 20*count {
				delete(n, name)
			}
		}
	}
	return slices.Sorted(maps.Keys(n))
}

// checkObjects decodes every value of Kubernetes' and compares the object with its key.
func checkObjects(ctx context.Context, src keyspace.Source, reader *ObjectReader, report func(Finding)) (objectCount, error) {
	type batch struct {
		objectCount
		findings []Finding
	}
	pool := sync.Pool{New: func() any { return reader.NewDecoder() }}
	in := src.Records(ctx, keyspace.Prefix([]byte(reader.Mapper.Prefix()+"/")))
	var sum objectCount
	for b, err := range pipeline.Map(ctx, in, pipeline.Options{}, func(_ context.Context, recs []keyspace.Record) (batch, error) {
		d := pool.Get().(*registry.Decoder)
		defer pool.Put(d)
		var b batch
		var buf []byte
		for _, rec := range recs {
			var res registry.Result
			buf, res = d.Append(buf[:0], rec.Key, rec.Value, rec.ModRev)
			b.add(reader.Mapper, rec, res, func(f Finding) { b.findings = append(b.findings, f) })
		}
		return b, nil
	}) {
		if err != nil {
			return sum, err
		}
		sum.objects += b.objects
		sum.sealed += b.sealed
		for _, f := range b.findings {
			report(f)
		}
	}
	return sum, nil
}

func (c *objectCount) add(m *registry.Mapper, rec keyspace.Record, res registry.Result, report func(Finding)) {
	say := func(format string, a ...any) {
		report(Finding{Level: LevelObjects, Page: -1, Rev: keyspace.Revision{Main: rec.ModRev}, Key: slices.Clone(rec.Key), Reason: fmt.Sprintf(format, a...)})
	}
	if res.Seal.Provider != "" && !res.Seal.Opened {
		c.sealed++
		return
	}
	switch {
	case errors.Is(res.Err, registry.ErrDamaged), errors.Is(res.Err, registry.ErrCRLF):
		say("%v", res.Err)
		return
	case res.Object == nil:
		return // text, or a binary nobody knows
	}
	c.objects++
	key, ok := m.Parse(rec.Key)
	if !ok || key.Extra != "" || key.Resource.Internal {
		return
	}
	ns, name, ok := registry.ObjectName(res.Object)
	switch {
	case !ok:
	case name != key.Name:
		say("the object calls itself %q", name)
	case key.Resource.Namespaced && ns != key.Namespace:
		say("the object says that it is in namespace %q", ns)
	}
}

// objects is level 5.
func (v *verification) objects(ctx context.Context) error {
	if v.o.Objects == nil {
		v.skip(LevelObjects, "objects were not asked for")
		return nil
	}
	reader, err := v.o.Objects(ctx, v.src)
	if err == nil {
		var sum objectCount
		sum, err = checkObjects(ctx, v.src, reader, v.found)
		v.r.Objects, v.r.SealedValues = sum.objects, sum.sealed
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, keyspace.ErrCorrupt), err != nil && v.r.Damage > 0:
		// What is damaged was found by the levels before, which go on behind it.
		if v.r.Damage == 0 {
			v.say(LevelObjects, "%v", err)
		}
		v.skip(LevelObjects, "the records cannot all be read")
	case err != nil:
		return fmt.Errorf("verify the objects: %w", err)
	case v.r.Objects+v.r.SealedValues == 0:
		v.skip(LevelObjects, "nothing of Kubernetes is in it")
	case v.r.SealedValues > 0:
		v.skip(LevelObjects, fmt.Sprintf("%d values stayed sealed", v.r.SealedValues))
		v.at(LevelObjects).Partly = true
	}
	return nil
}
