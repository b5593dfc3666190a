package inspect

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/registry"
)

// ResourceCount is how much of one Kubernetes resource there is, in one
// namespace when counted so.
type ResourceCount struct {
	Resource     string `json:"resource"` // plural; "" for keys of no known resource
	Group        string `json:"group"`
	Namespace    string `json:"namespace,omitempty"`
	Path         string `json:"path"` // below the registry prefix
	Objects      int64  `json:"objects"`
	Bytes        int64  `json:"bytes"` // of the stored values
	LargestBytes int64  `json:"largestBytes"`
}

// CountResources counts the objects under the mapper's prefix at a revision, by
// resource and, if asked, by namespace; in the order of their names.
func CountResources(ctx context.Context, src keyspace.Source, rev int64, m *registry.Mapper, byNamespace bool) ([]ResourceCount, error) {
	type id struct{ path, namespace string }
	counts := map[id]*ResourceCount{}
	r := keyspace.Prefix([]byte(m.Prefix() + "/"))
	r.Rev = rev
	for rec, err := range src.Records(ctx, r) {
		if err != nil {
			return nil, err
		}
		k, ok := m.Parse(rec.Key)
		c := ResourceCount{Path: unknownPath(rec.Key, m.Prefix())}
		if ok && k.Resource != nil {
			c = ResourceCount{Resource: k.Resource.Plural, Group: k.Resource.Group, Path: k.Resource.Prefix}
		}
		if byNamespace {
			c.Namespace = k.Namespace
		}
		at := counts[id{c.Path, c.Namespace}]
		if at == nil {
			at = &c
			counts[id{c.Path, c.Namespace}] = at
		}
		at.Objects++
		at.Bytes += int64(len(rec.Value))
		at.LargestBytes = max(at.LargestBytes, int64(len(rec.Value)))
	}
	out := make([]ResourceCount, 0, len(counts))
	for _, c := range counts {
		out = append(out, *c)
	}
	slices.SortFunc(out, func(a, b ResourceCount) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Path, b.Path))
	})
	return out, nil
}

// unknownPath is the folder of a key that belongs to no known resource.
func unknownPath(key []byte, prefix string) string {
	rest := strings.TrimPrefix(string(key), prefix+"/")
	if i := strings.LastIndexByte(rest, '/'); i >= 0 {
		return rest[:i]
	}
	return rest
}
