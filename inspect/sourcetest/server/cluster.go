package server

import (
	"fmt"
	"strings"
	"testing"
)

// Cluster starts n members of one cluster and waits until they answer. Version and Args
// of o are for all of them, its names and ports are not used.
func Cluster(tb testing.TB, n int, o Options) []*Process {
	tb.Helper()
	ports := Ports(tb, 2*n)
	var peers []string
	for i := range n {
		peers = append(peers, fmt.Sprintf("m%d=http://127.0.0.1:%d", i, ports[2*i+1]))
	}
	var members []*Process
	for i := range n {
		o.Name, o.Peers, o.ClientPort, o.PeerPort, o.DataDir, o.NoWait = fmt.Sprintf("m%d", i), strings.Join(peers, ","), ports[2*i], ports[2*i+1], "", true
		members = append(members, Start(tb, o))
	}
	for _, m := range members {
		m.Ready(tb)
		m.Client(tb)
	}
	return members
}

// Leader returns the index of the member that leads.
func Leader(tb testing.TB, members []*Process) int {
	tb.Helper()
	for i, m := range members {
		st, err := m.Client(tb).Status(tb.Context(), m.Endpoint)
		if err != nil {
			tb.Fatal(err)
		}
		if st.Header.GetMemberId() == st.Leader {
			return i
		}
	}
	tb.Fatal("no member leads")
	return -1
}
