package registry

import (
	"bytes"
	"slices"
	"strings"
)

// FirstFunc returns the first key in [from, end), or nil when there is none. An
// empty end means to the end of the keyspace. On a live cluster that is a read with
// limit 1 and keys only; give the server the end as well, because it counts the
// rest of the range.
type FirstFunc func(from, end []byte) ([]byte, error)

// knownPrefixes are tried before searching: upstream's, which k3s has too, and that
// of OpenShift's kube-apiserver.
var knownPrefixes = []string{"/registry", "/kubernetes.io"}

// landmarks are keys that an apiserver creates when it starts. Any one will do.
var landmarks = []string{
	"/namespaces/kube-system", "/namespaces/default", "/services/specs/default/kubernetes", "/ranges/serviceips",
	"/ranges/servicenodeports", "/priorityclasses/system-node-critical",
}

// maxProbes bounds the reads of DetectPrefix.
const maxProbes = 96

// DetectPrefix finds the registry prefix of a cluster with few reads: for the usual
// prefixes it asks for single keys that every cluster has, so that one read is the
// rule; only then it hops through the keyspace from folder to folder. It returns ""
// when nothing looks like Kubernetes.
func DetectPrefix(first FirstFunc) (string, error) {
	p := prober{first: first, left: maxProbes}
	for _, prefix := range knownPrefixes {
		if ok, err := p.confirm(prefix); ok || err != nil {
			return prefix, err
		}
	}
	for from := []byte{0}; p.left > 0; {
		key, err := p.ask(from, nil)
		if err != nil || key == nil {
			return "", err
		}
		found := folders(string(key))
		for _, prefix := range found {
			if slices.Contains(knownPrefixes, prefix) {
				continue
			}
			if ok, err := p.confirm(prefix); ok || err != nil {
				return prefix, err
			}
		}
		if len(found) > 0 {
			from = []byte(found[0] + "0") // "0" follows "/": behind the whole folder
		} else {
			from = append(bytes.Clone(key), 0)
		}
	}
	return "", nil
}

type prober struct {
	first FirstFunc
	left  int
}

func (p *prober) ask(from, end []byte) ([]byte, error) {
	p.left--
	return p.first(from, end)
}

// confirm tells whether one of the landmarks lies below prefix.
func (p *prober) confirm(prefix string) (bool, error) {
	for _, l := range landmarks {
		if p.left <= 0 {
			break
		}
		key := []byte(prefix + l)
		got, err := p.ask(key, append(bytes.Clone(key), 0))
		if err != nil || bytes.Equal(got, key) {
			return err == nil, err
		}
	}
	return false, nil
}

// folders returns the first two leading folders of a key: "/a" and "/a/b" of
// "/a/b/c".
func folders(key string) (out []string) {
	for i := 1; i < len(key) && len(out) < 2; i++ {
		if key[i] == '/' {
			out = append(out, key[:i])
		}
	}
	return out
}

// DetectPrefixOf finds the registry prefix in a sample of keys, in any order: the
// prefix below which most keys are of a known built-in resource. It returns ""
// when none is.
func DetectPrefixOf(keys [][]byte) string {
	votes := map[string]int{}
	m := NewMapper("/x")
	for _, k := range keys {
		if !bytes.HasPrefix(k, []byte{'/'}) {
			continue
		}
		for _, p := range folders(string(k)) {
			info, ok := m.Parse([]byte("/x" + strings.TrimPrefix(string(k), p)))
			if ok && info.Resource.Kind != "" && info.Extra == "" {
				votes[p]++
			}
		}
	}
	best := ""
	for p, n := range votes {
		if n > votes[best] || n == votes[best] && (slices.Contains(knownPrefixes, p) || best != "" && p < best) {
			best = p
		}
	}
	return best
}
