package columns

import (
	"strings"
	"testing"
	"time"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// TestRows: hand-made objects in the states that one meets at night, as kubectl
// shows them. Meta is put in by the test: an object of an hour's age.
func TestRows(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, object, want string }{
		// Pods: plain ones.
		{"/Pod", `"spec":{"containers":[{"name":"a"},{"name":"b"}],"nodeName":"n1"},"status":{"phase":"Running","podIP":"10.0.0.1","containerStatuses":[{"name":"a","ready":true,"state":{"running":{}}},{"name":"b","ready":false,"state":{"running":{}}}]}`,
			"x|1/2|Running|0|60m|10.0.0.1|n1|<none>|<none>"},
		{"/Pod", `"spec":{"containers":[{"name":"a"}]},"status":{"phase":"Pending"}`, "x|0/1|Pending|0|60m|<none>|<none>|<none>|<none>"},
		{"/Pod", `"spec":{"containers":[{"name":"a"}]},"status":{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"SchedulingGated"}]}`,
			"x|0/1|SchedulingGated|0|60m|<none>|<none>|<none>|<none>"},
		{"/Pod", `"spec":{"containers":[{"name":"a"}],"readinessGates":[{"conditionType":"g"},{"conditionType":"h"}]},"status":{"phase":"Pending","nominatedNodeName":"n2","conditions":[{"type":"g","status":"True"},{"type":"h","status":"False"}]}`,
			"x|0/1|Pending|0|60m|<none>|<none>|n2|1/2"},
		// Crashing, with the time of the last restart.
		{"/Pod", `"spec":{"containers":[{"name":"a"}]},"status":{"phase":"Running","containerStatuses":[{"name":"a","restartCount":7,"state":{"waiting":{"reason":"CrashLoopBackOff"}},"lastState":{"terminated":{"exitCode":1,"finishedAt":"2026-11-30T11:55:00Z"}}}]}`,
			"x|0/1|CrashLoopBackOff|7 (5m ago)|60m|<none>|<none>|<none>|<none>"},
		{"/Pod", `"spec":{"containers":[{"name":"a"}]},"status":{"phase":"Running","containerStatuses":[{"name":"a","state":{"terminated":{"exitCode":137,"reason":"OOMKilled"}}}]}`, "x|0/1|OOMKilled|0|60m|<none>|<none>|<none>|<none>"},
		{"/Pod", `"spec":{"containers":[{"name":"a"}]},"status":{"phase":"Running","containerStatuses":[{"name":"a","state":{"terminated":{"exitCode":3}}}]}`, "x|0/1|ExitCode:3|0|60m|<none>|<none>|<none>|<none>"},
		{"/Pod", `"spec":{"containers":[{"name":"a"}]},"status":{"phase":"Running","containerStatuses":[{"name":"a","state":{"terminated":{"signal":9}}}]}`, "x|0/1|Signal:9|0|60m|<none>|<none>|<none>|<none>"},
		// Done, and half done.
		{"/Pod", `"spec":{"containers":[{"name":"a"}]},"status":{"phase":"Succeeded","containerStatuses":[{"name":"a","state":{"terminated":{"reason":"Completed"}}}]}`, "x|0/1|Completed|0|60m|<none>|<none>|<none>|<none>"},
		{"/Pod", `"spec":{"containers":[{"name":"a"},{"name":"b"}]},"status":{"phase":"Running","containerStatuses":[{"name":"a","state":{"terminated":{"reason":"Completed"}}},{"name":"b","ready":true,"state":{"running":{}}}]}`,
			"x|1/2|NotReady|0|60m|<none>|<none>|<none>|<none>"},
		{"/Pod", `"spec":{"containers":[{"name":"a"},{"name":"b"}]},"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}],"containerStatuses":[{"name":"a","state":{"terminated":{"reason":"Completed"}}},{"name":"b","ready":true,"state":{"running":{}}}]}`,
			"x|1/2|Running|0|60m|<none>|<none>|<none>|<none>"},
		{"/Pod", `"spec":{"containers":[{"name":"a"},{"name":"b"}]},"status":{"phase":"Running","containerStatuses":[{"name":"a","state":{"terminated":{"reason":"Completed"}}},{"name":"b","state":{"terminated":{"reason":"Error","exitCode":1}}}]}`,
			"x|0/2|Error|0|60m|<none>|<none>|<none>|<none>"},
		// Evicted, leaving, lost.
		{"/Pod", `"spec":{"containers":[{"name":"a"}]},"status":{"phase":"Failed","reason":"Evicted"}`, "x|0/1|Evicted|0|60m|<none>|<none>|<none>|<none>"},
		{"/Pod DELETED", `"spec":{"containers":[{"name":"a"}]},"status":{"phase":"Running"}`, "x|0/1|Terminating|0|60m|<none>|<none>|<none>|<none>"},
		{"/Pod DELETED", `"spec":{"containers":[{"name":"a"}]},"status":{"phase":"Failed","reason":"Evicted"}`, "x|0/1|Evicted|0|60m|<none>|<none>|<none>|<none>"},
		{"/Pod DELETED", `"spec":{"containers":[{"name":"a"}]},"status":{"phase":"Running","reason":"NodeLost"}`, "x|0/1|Unknown|0|60m|<none>|<none>|<none>|<none>"},
		// Init containers.
		{"/Pod", `"spec":{"containers":[{"name":"a"}],"initContainers":[{"name":"i"},{"name":"j"}]},"status":{"phase":"Pending","initContainerStatuses":[{"name":"i","state":{"terminated":{"exitCode":0}}},{"name":"j","state":{"running":{}}}]}`,
			"x|0/1|Init:1/2|0|60m|<none>|<none>|<none>|<none>"},
		{"/Pod", `"spec":{"containers":[{"name":"a"}],"initContainers":[{"name":"i"}]},"status":{"phase":"Pending","initContainerStatuses":[{"name":"i","restartCount":2,"state":{"waiting":{"reason":"CrashLoopBackOff"}}}]}`,
			"x|0/1|Init:CrashLoopBackOff|2|60m|<none>|<none>|<none>|<none>"},
		{"/Pod", `"spec":{"containers":[{"name":"a"}],"initContainers":[{"name":"i"}]},"status":{"phase":"Pending","initContainerStatuses":[{"name":"i","state":{"waiting":{"reason":"PodInitializing"}}}]}`,
			"x|0/1|Init:0/1|0|60m|<none>|<none>|<none>|<none>"},
		{"/Pod", `"spec":{"containers":[{"name":"a"}],"initContainers":[{"name":"i"}]},"status":{"phase":"Pending","initContainerStatuses":[{"name":"i","state":{"terminated":{"exitCode":2}}}]}`,
			"x|0/1|Init:ExitCode:2|0|60m|<none>|<none>|<none>|<none>"},
		{"/Pod", `"spec":{"containers":[{"name":"a"}],"initContainers":[{"name":"i"}]},"status":{"phase":"Pending","initContainerStatuses":[{"name":"i","state":{"terminated":{"exitCode":2,"signal":9}}}]}`,
			"x|0/1|Init:Signal:9|0|60m|<none>|<none>|<none>|<none>"},
		{"/Pod", `"spec":{"containers":[{"name":"a"}],"initContainers":[{"name":"i"}]},"status":{"phase":"Pending","initContainerStatuses":[{"name":"i","state":{"terminated":{"exitCode":2,"reason":"Error"}}}]}`,
			"x|0/1|Init:Error|0|60m|<none>|<none>|<none>|<none>"},
		// A sidecar counts, and its restarts stay.
		{"/Pod", `"spec":{"containers":[{"name":"a"}],"initContainers":[{"name":"s","restartPolicy":"Always"}]},"status":{"phase":"Running","initContainerStatuses":[{"name":"s","started":true,"ready":true,"restartCount":2,"state":{"running":{}}}],"containerStatuses":[{"name":"a","ready":true,"restartCount":1,"state":{"running":{}}}]}`,
			"x|2/2|Running|3|60m|<none>|<none>|<none>|<none>"},

		{"apps/Deployment", `"spec":{"replicas":3,"selector":{"matchLabels":{"app":"web"},"matchExpressions":[{"key":"a","operator":"In","values":["2","1"]},{"key":"z","operator":"DoesNotExist"}]},"template":{"spec":{"containers":[{"name":"a","image":"i:1"},{"name":"b","image":"j"}]}}},"status":{"readyReplicas":2,"updatedReplicas":1,"availableReplicas":2}`,
			"x|2/3|1|2|60m|a,b|i:1,j|a in (1,2),app=web,!z"},
		{"apps/Deployment", `"spec":{"replicas":0}`, "x|0/0|0|0|60m|||"},
		{"apps/StatefulSet", `"spec":{"template":{"spec":{"containers":[{"name":"a","image":"i"}]}}}`, "x|0/1|60m|a|i"},
		{"apps/ReplicaSet", `"spec":{"replicas":2,"selector":{"matchExpressions":[{"key":"k","operator":"Wrong"}]}},"status":{"replicas":2,"readyReplicas":1}`, "x|2|2|1|60m|||<error>"},
		{"apps/DaemonSet", `"spec":{"template":{"spec":{"nodeSelector":{"b":"2","a":"1"}}}},"status":{"desiredNumberScheduled":5,"currentNumberScheduled":4,"numberReady":3,"updatedNumberScheduled":2,"numberAvailable":1}`, "x|5|4|3|2|1|a=1,b=2|60m|||<none>"},

		{"batch/Job", `"spec":{"completions":3},"status":{"succeeded":3,"startTime":"2026-11-30T11:00:00Z","completionTime":"2026-11-30T11:02:40Z","conditions":[{"type":"Complete","status":"True"}]}`, "x|Complete|3/3|2m40s|60m|||<none>"},
		{"batch/Job", `"spec":{"parallelism":2},"status":{"startTime":"2026-11-30T11:00:00Z"}`, "x|Running|0/1 of 2|60m|60m|||<none>"},
		{"batch/Job", `"status":{"conditions":[{"type":"Suspended","status":"True"}]}`, "x|Suspended|0/1||60m|||<none>"},
		{"batch/Job", `"status":{"conditions":[{"type":"Failed","status":"True"},{"type":"Suspended","status":"True"}]}`, "x|Failed|0/1||60m|||<none>"},
		{"batch/Job DELETED", ``, "x|Terminating|0/1||60m|||<none>"},
		{"batch/CronJob", `"spec":{"schedule":"*/5 * * * *","suspend":true,"timeZone":"Europe/Berlin"}`, "x|*/5 * * * *|Europe/Berlin|True|0|<none>|60m|||<none>"},
		{"batch/CronJob", `"spec":{"schedule":"@daily"},"status":{"active":[{}],"lastScheduleTime":"2026-11-30T00:00:00Z"}`, "x|@daily|<none>|False|1|12h|60m|||<none>"},

		{"/Node", `"status":{"conditions":[{"type":"Ready","status":"True"}],"addresses":[{"type":"InternalIP","address":"1.1.1.1"}],"nodeInfo":{"kubeletVersion":"v1","kernelVersion":"6.1","architecture":"arm64"}}`, "x|Ready|<none>|60m|v1|1.1.1.1|<none>|<unknown>|6.1 (arm64)|<unknown>"},
		{"/Node", `"spec":{"unschedulable":true},"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}`, "x|NotReady,SchedulingDisabled|<none>|60m||<none>|<none>|<unknown>|<unknown>|<unknown>"},
		{"/Node", `"spec":{"unschedulable":true}`, "x|Unknown,SchedulingDisabled|<none>|60m||<none>|<none>|<unknown>|<unknown>|<unknown>"},

		{"/Service", `"spec":{"type":"ExternalName","externalName":"db.example.com"}`, "x|ExternalName|<none>|db.example.com|<none>|60m|<none>"},
		{"/Service", `"spec":{"type":"LoadBalancer","clusterIP":"10.0.0.1","ports":[{"port":443,"nodePort":30443,"protocol":"TCP"}]}`, "x|LoadBalancer|10.0.0.1|<pending>|443:30443/TCP|60m|<none>"},
		{"/Service", `"spec":{"type":"LoadBalancer","externalIPs":["9.9.9.9"],"selector":{"b":"","a":"1"}},"status":{"loadBalancer":{"ingress":[{"hostname":"lb.example.com"},{"ip":"2.2.2.2"},{"ip":"2.2.2.2"}]}}`, "x|LoadBalancer|<none>|2.2.2.2,lb.example.com,9.9.9.9|<none>|60m|a=1,b="},
		{"/Service", `"spec":{"clusterIP":"None","clusterIPs":["None"],"ports":[{"port":53,"protocol":"UDP"},{"port":53}]}`, "x|ClusterIP|None|<none>|53/UDP,53/TCP|60m|<none>"},
		{"/Endpoints", `"subsets":[{"addresses":[{"ip":"1.1.1.1"},{"ip":"::1"},{"ip":"2.2.2.2"},{"ip":"3.3.3.3"}],"ports":[{"port":80}]}]`, "x|1.1.1.1:80,[::1]:80,2.2.2.2:80 + 1 more...|60m"},
		{"/Endpoints", ``, "x|<none>|60m"},
		{"networking.k8s.io/Ingress", `"spec":{"ingressClassName":"edge","rules":[{"host":"a"},{"host":"b"},{"host":"c"},{"host":"d"}],"tls":[{}]},"status":{"loadBalancer":{"ingress":[{"ip":"1.1.1.1"}]}}`, "x|edge|a,b,c + 1 more...|1.1.1.1|80, 443|60m"},
		{"networking.k8s.io/Ingress", `"spec":{"rules":[{}]}`, "x|<none>|*||80|60m"},

		{"/PersistentVolume", `"spec":{"capacity":{"storage":"5Gi"},"accessModes":["ReadWriteMany","ReadOnlyMany"],"claimRef":{"namespace":"n","name":"c"},"storageClassName":"s"},"status":{"phase":"Bound"}`, "x|5Gi|ROX,RWX|Retain|Bound|n/c|s|<unset>||60m|Filesystem"},
		{"/PersistentVolumeClaim", `"spec":{"storageClassName":"s"},"status":{"capacity":{"storage":"1Gi"}}`, "x|Pending||||s|<unset>|60m|Filesystem"},
		{"/PersistentVolumeClaim DELETED", `"spec":{"volumeName":"v"},"status":{"phase":"Bound","accessModes":["ReadWriteOnce"],"capacity":{"storage":"1Gi"}}`, "x|Terminating|v|1Gi|RWO||<unset>|60m|Filesystem"},

		{"/Event", `"lastTimestamp":"2026-11-30T11:59:30Z","firstTimestamp":"2026-11-30T11:00:00Z","count":4,"type":"Warning","reason":"Failed","message":" first\nsecond ","involvedObject":{"kind":"Pod","name":"p","fieldPath":"spec"},"source":{"component":"kubelet","host":"n1"}`,
			"30s|Warning|Failed|pod/p|spec|kubelet, n1|first...|60m|4|x"},
		{"/Event", `"eventTime":"2026-11-30T11:59:00.123456Z","firstTimestamp":null,"reportingController":"c","series":{"count":9,"lastObservedTime":"2026-11-30T11:59:59.5Z"},"involvedObject":{"kind":"Node"}`, "0s|||node||c||59s|9|x"},

		{"/Secret", `"data":{"a":"[redacted: 1 byte, hmac 00]"}`, "x|Opaque|1|60m"},
		{"/ConfigMap", `"data":{"a":""},"binaryData":{"b":""}`, "x|2|60m"},
		{"/Namespace", ``, "x|Active|60m"},
		{"/Namespace", `"status":{"phase":"Terminating"}`, "x|Terminating|60m"},
		{"/ServiceAccount", ``, "x|60m"},
		{"/ResourceQuota", `"status":{"hard":{"limits.cpu":"2","pods":"5"},"used":{"pods":"1"}}`, "x|pods: 1/5|limits.cpu: 0/2|60m"},
		{"policy/PodDisruptionBudget", `"spec":{"minAvailable":"50%"},"status":{"disruptionsAllowed":1}`, "x|50%|N/A|1|60m"},
		{"autoscaling/HorizontalPodAutoscaler", `"spec":{"scaleTargetRef":{"kind":"Deployment","name":"d"},"maxReplicas":9,"targetCPUUtilizationPercentage":80},"status":{"currentReplicas":2,"currentCPUUtilizationPercentage":35}`, "x|Deployment/d|cpu: 35%/80%|1|9|2|60m"},
		{"autoscaling/HorizontalPodAutoscaler", `"spec":{"maxReplicas":9,"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"averageUtilization":80}}},{"type":"Pods","pods":{"target":{"averageValue":"10"}}},{"type":"External","external":{"target":{"value":"3"}}}]}`, "x|/|cpu: <unknown>/80%, <unknown>/10 + 1 more...|1|9|0|60m"},
		{"apps/ControllerRevision", `"revision":7`, "x|<none>|7|60m"},
	} {
		kind, deleted := strings.CutSuffix(c.kind, " DELETED")
		meta := `"metadata":{"name":"x","creationTimestamp":"2026-11-30T11:00:00Z"`
		if deleted {
			meta += `,"deletionTimestamp":"2026-11-30T11:30:00Z"`
		}
		object := "{" + meta + "}"
		if c.object != "" {
			object += "," + c.object
		}
		group, name, _ := strings.Cut(kind, "/")
		p := Builtin(group, name)
		if p == nil {
			t.Errorf("%s has no columns", kind)
			continue
		}
		if got := strings.Join(p.Row([]byte(object+"}"), now), "|"); got != c.want {
			t.Errorf("%s %s\n got %s\nwant %s", kind, c.object, got, c.want)
		}
	}
}

// TestEveryKind: each table has a cell for each column, of an empty object and of
// nonsense too, and its placeholder shows name and reason in what is not wide.
func TestEveryKind(t *testing.T) {
	t.Parallel()
	if len(tables) < 50 {
		t.Errorf("only %d tables", len(tables))
	}
	for kind := range tables {
		group, name, _ := strings.Cut(kind, "/")
		p := Builtin(group, name)
		for _, doc := range []string{`{}`, `{"metadata":{"name":"n"}}`, `{"metadata":5,"spec":[],"status":"x","data":7}`, `[]`, `nonsense`} {
			if n := len(p.row([]byte(doc), now)); n != len(p.Columns) {
				t.Errorf("%s: %d cells for %d columns", kind, n, len(p.Columns))
			}
			p.Row([]byte(doc), now)
		}
		seen := ""
		for i, cell := range p.Placeholder("my-name", "(sealed)") {
			if !p.Columns[i].Wide {
				seen += cell
			}
		}
		if !strings.Contains(seen, "my-name") || !strings.Contains(seen, "(sealed)") {
			t.Errorf("%s: placeholder %q", kind, p.Placeholder("my-name", "(sealed)"))
		}
	}
	if Builtin("", "Nothing") != nil {
		t.Error("columns of nothing")
	}
}

func TestDuration(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for d, want := range map[time.Duration]string{
		-time.Hour: "<invalid>", -2 * time.Second: "<invalid>", -1500 * time.Millisecond: "0s", 0: "0s", 119 * time.Second: "119s", 2 * time.Minute: "2m", 125 * time.Second: "2m5s",
		10 * time.Minute: "10m", 179 * time.Minute: "179m", 3 * time.Hour: "3h", 200 * time.Minute: "3h20m", 8 * time.Hour: "8h", 47 * time.Hour: "47h", 2 * day: "2d", 50 * time.Hour: "2d2h",
		8 * day: "8d", 729 * day: "729d", 730 * day: "2y", 800 * day: "2y70d", 8 * 365 * day: "8y", 9 * 365 * day: "9y",
	} {
		if got := Duration(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

const definition = `{"metadata":{"name":"ws.a.b"},"spec":{"versions":[
	{"name":"v1alpha1","served":true,"additionalPrinterColumns":[{"name":"Old","type":"string","jsonPath":".spec.old"}]},
	{"name":"v1","served":true,"additionalPrinterColumns":[
		{"name":"Text","type":"string","jsonPath":".spec.text"},{"name":"Whole","type":"integer","jsonPath":".spec.whole"},{"name":"Num","type":"number","jsonPath":".spec.num"},
		{"name":"Flag","type":"boolean","jsonPath":".spec.flag"},{"name":"When","type":"date","jsonPath":".spec.when"},{"name":"Ready","type":"string","priority":1,"jsonPath":".status.conditions[?(@.type==\"Ready\")].status"},
		{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}]},
	{"name":"v2","served":false,"additionalPrinterColumns":[{"name":"New","type":"string","jsonPath":".spec.new"}]}]}}`

// TestCustomColumns: types that fit and types that do not, paths that are missing,
// and the version that kubectl asks for.
func TestCustomColumns(t *testing.T) {
	t.Parallel()
	p, err := FromCRD([]byte(definition), []string{"v2", "v1", "v1alpha1"})
	if err != nil {
		t.Fatal(err)
	}
	var head []string
	for _, c := range p.Columns {
		name := c.Name
		if c.Wide {
			name = "*" + name
		}
		head = append(head, name)
	}
	if got := strings.Join(head, "|"); got != "NAME|TEXT|WHOLE|NUM|FLAG|WHEN|*READY|AGE" {
		t.Errorf("columns %s", got)
	}
	for object, want := range map[string]string{
		`{"metadata":{"name":"x","creationTimestamp":"2026-11-30T11:00:00Z"},"spec":{"text":"t","whole":7,"num":1.5,"flag":true,"when":"2026-11-30T11:59:00Z"},"status":{"conditions":[{"type":"A","status":"x"},{"type":"Ready","status":"False"}]}}`: "x|t|7|1.5|true|60s|False|60m",
		`{"metadata":{"name":"x"}}`: "x|||||||",
		`{"metadata":{"name":"x"},"spec":{"text":{"a":[1]},"whole":"7","num":true,"flag":"true","when":"soon"}}`:  `x|{"a":[1]}||||<invalid>||`,
		`{"metadata":{"name":"x"},"spec":{"text":12345678901234567890,"whole":2.9,"num":3,"flag":null,"when":5}}`: "x|12345678901234567890|2|3||||",
		`{"metadata":{"name":"x"},"spec":{"text":null,"when":"","whole":null}}`:                                   "x|||||<unknown>||",
		`[]`: "|||||||",
	} {
		if got := strings.Join(p.Row([]byte(object), now), "|"); got != want {
			t.Errorf("%s\n got %s\nwant %s", object, got, want)
		}
	}
	if p, err = FromCRD([]byte(definition), []string{"v1alpha1"}); err != nil || p.Columns[1].Name != "OLD" {
		t.Errorf("%+v, %v", p.Columns, err)
	}
	p, err = FromCRD([]byte(`{"spec":{"version":"v1","additionalPrinterColumns":[{"name":"C","type":"string","JSONPath":".spec.c"}]}}`), nil)
	if err != nil || len(p.Columns) != 2 || strings.Join(p.Row([]byte(`{"metadata":{"name":"x"},"spec":{"c":"v"}}`), now), "|") != "x|v" {
		t.Errorf("v1beta1: %+v, %v", p.Columns, err)
	}
	if p, err = FromCRD([]byte(`{"spec":{"versions":[{"name":"v1","served":true}]}}`), nil); err != nil || p.Columns[1].Name != "AGE" {
		t.Errorf("without columns: %+v, %v", p.Columns, err)
	}
	p, err = FromCRD([]byte(`{"metadata":{"name":"ws.a.b"},"spec":{"additionalPrinterColumns":[{"name":"C","type":"string","JSONPath":".a[?("}]}}`), nil)
	if err == nil || !strings.Contains(err.Error(), `ws.a.b: column "C"`) || len(p.Columns) != 1 || p.Row([]byte(`{"metadata":{"name":"x"}}`), now)[0] != "x" {
		t.Errorf("a wrong path: %+v, %v", p, err)
	}
	if _, err = FromCRD([]byte(`nonsense`), nil); err == nil {
		t.Error("nonsense is no definition")
	}
}

// FuzzRow: no object makes a printer panic or forget a column.
func FuzzRow(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"x"},"spec":{"containers":[{}],"initContainers":[null]},"status":{"initContainerStatuses":[{}],"containerStatuses":[{"state":{"terminated":{}}}],"conditions":[{}]}}`))
	f.Add([]byte(`{"spec":{"metrics":[{"type":"Pods"},{"type":"Object","object":{}}],"rules":[{}],"ports":[{}],"selector":{"matchExpressions":[{"operator":"In"}]}},"subsets":[{"addresses":[{}]}],"status":{"currentMetrics":[{}]}}`))
	custom, err := FromCRD([]byte(definition), []string{"v1"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		custom.Row(object, now)
		for kind, table := range tables {
			if n := len(table.row(object, now)); n != strings.Count(table.columns, "|")+1 {
				t.Errorf("%s: %d cells", kind, n)
			}
		}
	})
}
