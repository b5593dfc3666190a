package transcode

import (
	"testing"

	table "github.com/etcdctl-plus/etcdctl-plus/registry/schema"
)

// The same Pods with this package and with Kubernetes' Unmarshal and json.Marshal.
func benchmarkPods(b *testing.B) []sample {
	var pods []sample
	bytes := 0
	for _, s := range revisions(b) {
		if s.kind == "Pod" {
			pods = append(pods, s)
			bytes += len(s.raw)
		}
	}
	b.SetBytes(int64(bytes / len(pods)))
	b.ReportAllocs()
	return pods
}

func BenchmarkTranscode(b *testing.B) {
	pods := benchmarkPods(b)
	m := table.Load().Kind("v1", "Pod").Message
	b.RunParallel(func(pb *testing.PB) {
		var tr Transcoder
		var dst []byte
		var err error
		for i := 0; pb.Next(); i++ {
			if dst, err = tr.Append(dst[:0], m, "", pods[i%len(pods)].raw); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkKubernetes(b *testing.B) {
	pods := benchmarkPods(b)
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			if _, _, err := kubernetes("v1", "Pod", pods[i%len(pods)].raw); err != nil {
				b.Fatal(err)
			}
		}
	})
}
