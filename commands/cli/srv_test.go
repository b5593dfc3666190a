package cli_test

import (
	"context"
	"net"
	"strconv"
	"strings"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
)

// TestDiscovery finds an etcd by SRV records of a real, small name server. It is
// not parallel: the resolver is the process's.
func TestDiscovery(t *testing.T) {
	addr, _ := startEtcd(t, transport.TLSInfo{}, transport.TLSInfo{})
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	resolver := serveDNS(t, map[string]int{"_etcd-client._tcp.cluster.test.": n, "_etcd-client-blue._tcp.cluster.test.": n})
	old := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", resolver)
	}}
	t.Cleanup(func() { net.DefaultResolver = old })

	s := settings()
	s.DiscoverySRV, s.InsecureDiscovery = "cluster.test", true
	if err := dial(s); err != nil {
		t.Errorf("discovery: %v", err)
	}
	s.DiscoverySRVName = "blue"
	if err := dial(s); err != nil {
		t.Errorf("discovery by service name: %v", err)
	}
	s.InsecureDiscovery = false
	if err := dial(s); err == nil || !strings.Contains(err.Error(), "no https endpoint") {
		t.Errorf("plain records without --insecure-discovery: %v", err)
	}
	s = settings()
	s.DiscoverySRV, s.InsecureDiscovery = "nowhere.test", true
	err = dial(s)
	if err == nil || !strings.Contains(err.Error(), "look up SRV records of nowhere.test") {
		t.Errorf("no records: %v", err)
	}
	if d := cli.Describe(err); d.Code != cli.Unavailable || !strings.Contains(d.Hint, "_etcd-client._tcp") {
		t.Errorf("%+v", d)
	}
}

// serveDNS answers SRV queries for the given names with 127.0.0.1 and a port, and
// everything else with "no such name".
func serveDNS(t *testing.T, srv map[string]int) string {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pc.Close() })
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			if answer := answerDNS(buf[:n], srv); answer != nil {
				_, _ = pc.WriteTo(answer, from) // a lost answer is asked for again
			}
		}
	}()
	return pc.LocalAddr().String()
}

func answerDNS(query []byte, srv map[string]int) []byte {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	m.Response, m.RCode, m.Additionals = true, dnsmessage.RCodeNameError, nil
	port, ok := srv[strings.ToLower(q.Name.String())]
	head := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 60}
	target := dnsmessage.MustNewName("node-1.cluster.test.")
	switch {
	case ok && q.Type == dnsmessage.TypeSRV:
		m.RCode = dnsmessage.RCodeSuccess
		m.Answers = []dnsmessage.Resource{{Header: head, Body: &dnsmessage.SRVResource{Port: uint16(port), Target: target}}}
	case q.Name == target:
		m.RCode = dnsmessage.RCodeSuccess
		if q.Type == dnsmessage.TypeA {
			m.Answers = []dnsmessage.Resource{{Header: head, Body: &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}}}}
		}
	}
	b, err := m.Pack()
	if err != nil {
		return nil
	}
	return b
}
