//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/etcdctl-plus/etcdctl-plus/registry"
)

// peer runs one of the bare loops that our commands are compared with. It prints
// a single line.
func peer(args []string) error {
	peers := map[string]func(string) error{
		"bbolt-walk": bboltWalk, "marshal": marshalLoop, "marshal-one": marshalOne, "transcode-one": transcodeOne, "rangestream": rangeStream, "pages": pages,
	}
	if len(args) != 2 || peers[args[0]] == nil {
		return errors.New("usage: bench-peers peer NAME FILE|ENDPOINT")
	}
	return peers[args[0]](args[1])
}

// walk reads every record of a file with bbolt.
func walk(path string, f func(k []byte, kv *mvccpb.KeyValue)) error {
	db, err := bbolt.Open(path, 0o400, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer db.Close()
	return db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("key")).ForEach(func(k, v []byte) error {
			var kv mvccpb.KeyValue
			if err := proto.Unmarshal(v, &kv); err != nil {
				return err
			}
			f(k, &kv)
			return nil
		})
	})
}

// bboltWalk fills a Go map of the live keys, without decoding the values.
func bboltWalk(path string) error {
	db, err := bbolt.Open(path, 0o400, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer db.Close()
	live := map[string]struct{}{}
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("key")).ForEach(func(k, v []byte) error {
			key := firstField(v)
			if len(k) == 18 {
				delete(live, string(key))
			} else {
				live[string(key)] = struct{}{}
			}
			return nil
		})
	})
	fmt.Println(len(live))
	return err
}

// firstField returns the key of a stored record, the first field of its message.
func firstField(v []byte) []byte {
	n, i := 0, 1
	for shift := 0; ; shift += 7 {
		n |= int(v[i]&0x7f) << shift
		i++
		if v[i-1] < 0x80 {
			return v[i : i+n]
		}
	}
}

// livePods returns the newest value of every Pod.
func livePods(path string) ([][]byte, error) {
	m := map[string][]byte{}
	err := walk(path, func(_ []byte, kv *mvccpb.KeyValue) {
		if len(kv.GetValue()) > 4 && string(kv.GetValue()[:4]) == "k8s\x00" {
			m[string(kv.GetKey())] = kv.GetValue()
		}
	})
	var out [][]byte
	for _, v := range m {
		out = append(out, v)
	}
	return out, err
}

func marshalPod(v []byte) (int, error) {
	var u runtime.Unknown
	if err := u.Unmarshal(v[4:]); err != nil {
		return 0, err
	}
	var p corev1.Pod
	if err := p.Unmarshal(u.Raw); err != nil {
		return 0, err
	}
	b, err := json.Marshal(&p)
	return len(b), err
}

// marshalLoop decodes every live Pod with Kubernetes' own code on two cores. What
// it takes to find the values is not counted: the line says how long the loop took.
func marshalLoop(path string) error { return loop(path, 2, marshalPod) }

func marshalOne(path string) error { return loop(path, 1, marshalPod) }

func transcodeOne(path string) error {
	d := registry.NewDecoder(registry.Options{})
	return loop(path, 1, func(v []byte) (int, error) {
		r := d.Decode([]byte("/registry/pods/a/b"), v, 0)
		return len(r.Object), r.Err
	})
}

func loop(path string, workers int, f func([]byte) (int, error)) error {
	pods, err := livePods(path)
	if err != nil {
		return err
	}
	start := now()
	var wg sync.WaitGroup
	total := make([]int, workers)
	for w := range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := w; i < len(pods); i += workers {
				n, err := f(pods[i])
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
				}
				total[w] += n
			}
		}()
	}
	wg.Wait()
	fmt.Printf("%d pods %v\n", len(pods), now()-start)
	return nil
}

func dial(endpoint string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop(), MaxCallRecvMsgSize: 1<<31 - 1})
}

// rangeStream reads everything by RangeStream and prints nothing of it.
func rangeStream(endpoint string) error {
	c, err := dial(endpoint)
	if err != nil {
		return err
	}
	defer c.Close()
	s, err := pb.NewKVClient(c.ActiveConnection()).RangeStream(context.Background(), &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}, grpc.MaxCallRecvMsgSize(1<<31-1))
	if err != nil {
		return err
	}
	n := 0
	for {
		r, err := s.Recv()
		if errors.Is(err, io.EOF) {
			fmt.Println(n)
			return nil
		}
		if err != nil {
			return err
		}
		if n == 0 {
			fmt.Println("first")
		}
		n += len(r.GetRangeResponse().GetKvs())
	}
}

// pages reads everything in pages of 50 000 keys.
func pages(endpoint string) error {
	c, err := dial(endpoint)
	if err != nil {
		return err
	}
	defer c.Close()
	key, n, rev := "\x00", 0, int64(0)
	for {
		r, err := c.Get(context.Background(), key, clientv3.WithFromKey(), clientv3.WithLimit(50_000), clientv3.WithRev(rev), clientv3.WithSerializable())
		if err != nil {
			return err
		}
		rev = r.Header.Revision
		n += len(r.Kvs)
		if !r.More {
			fmt.Println(n)
			return nil
		}
		key = string(r.Kvs[len(r.Kvs)-1].Key) + "\x00"
	}
}
