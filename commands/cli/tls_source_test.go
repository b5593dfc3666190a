package cli_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/live"
)

// Client certificates go with every connection of a live source, also with those
// that it makes itself to choose among several endpoints.
func TestLiveSourceOverTLS(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	until := time.Now().Add(time.Hour)
	cert, key := ca.issue(t, "server", "127.0.0.1", until)
	clientCert, clientKey := ca.issue(t, "client", "client", until)
	addr, _ := startEtcd(t, transport.TLSInfo{CertFile: cert, KeyFile: key, TrustedCAFile: ca.ca(), ClientCertAuth: true}, transport.TLSInfo{})
	for name, endpoints := range map[string][]string{
		"one":     {"https://" + addr},
		"several": {"https://127.0.0.1:1", "https://" + addr},
	} {
		t.Run(name, func(t *testing.T) {
			s := settings(endpoints...)
			s.CACert, s.Cert, s.Key, s.KeyPrefix = ca.ca(), clientCert, clientKey, name+"/"
			c, err := cli.Dial(t.Context(), &s, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for i := range 20 {
				if _, err := c.Put(t.Context(), fmt.Sprintf("k%02d", i), "v"); err != nil {
					t.Fatal(err)
				}
			}
			src := live.New(c, live.Options{TempDir: t.TempDir()})
			defer src.Close()
			info, err := src.Info(t.Context())
			if err != nil || !strings.Contains(info.Location, addr) {
				t.Errorf("%+v, %v", info, err)
			}
			n := 0
			for rec, err := range src.Records(t.Context(), keyspace.Prefix([]byte(name+"/"))) {
				if err != nil {
					t.Fatal(err)
				}
				if string(rec.Key) != fmt.Sprintf("%s/k%02d", name, n) {
					t.Errorf("%q", rec.Key)
				}
				n++
			}
			for _, err := range src.Events(t.Context(), keyspace.EventRange{Key: []byte(name), End: keyspace.PrefixEnd([]byte(name))}) {
				if err != nil {
					t.Fatal(err)
				}
				n++
			}
			if n != 40 {
				t.Errorf("%d records and events, want 20 of each", n)
			}
		})
	}
}
