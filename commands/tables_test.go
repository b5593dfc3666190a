package commands_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/etcdctl-plus/etcdctl-plus/commands"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/corpus"
)

// tableKinds are those of the corpus that have columns of their own, and two that
// have not.
var tableKinds = strings.Fields(`pods deployments statefulsets daemonsets replicasets controllerrevisions jobs cronjobs horizontalpodautoscalers poddisruptionbudgets
	services endpoints endpointslices ingresses ingressclasses networkpolicies servicecidrs ipaddresses persistentvolumes persistentvolumeclaims storageclasses volumeattachments
	csinodes csidrivers namespaces nodes events secrets configmaps serviceaccounts resourcequotas leases rolebindings clusterrolebindings certificatesigningrequests
	clustertrustbundles priorityclasses runtimeclasses mutatingwebhookconfigurations validatingwebhookconfigurations validatingadmissionpolicies flowschemas
	prioritylevelconfigurations apiservices widgets galaxies limitranges customresourcedefinitions`)

// TestTables prints every kind of the corpus, narrow and wide. The tables were held
// against those of Kubernetes' own printers (v1.37.2) over the same objects: they
// differ in nothing but what follows the columns of kubectl.
func TestTables(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
	var all bytes.Buffer
	for _, kind := range tableKinds {
		for _, wide := range []string{"table", "wide"} {
			var out, errs bytes.Buffer
			e := cli.NewEnv("etcdctl-plus", strings.NewReader(""), &out, &errs, func(string) string { return "" })
			e.Now = func() time.Time { return at }
			code := commands.Run(context.Background(), e, []string{"registry", "get", kind, "-A", "-o", wide, "--db", corpus.Snapshot(t), "--encryption-config", corpus.EncryptionConfig()})
			fmt.Fprintf(&all, "== %s -A -o %s\n%s%s", kind, wide, errs.String(), out.String())
			if code != 0 {
				t.Errorf("%s: exit code %d, %s", kind, code, errs.String())
			}
		}
	}
	const golden = "../testdata/tables.golden"
	if *update {
		if err := os.WriteFile(golden, all.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got := all.String(); got != string(want) {
		a, b := strings.Split(got, "\n"), strings.Split(string(want), "\n")
		for i := range min(len(a), len(b)) {
			if a[i] != b[i] {
				t.Fatalf("line %d; go test ./commands -run TestTables -update shows all in git diff\n got %s\nwant %s", i+1, a[i], b[i])
			}
		}
		t.Fatalf("%d lines, want %d", len(a), len(b))
	}
}
