package columns

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

type namespace struct {
	Metadata meta
	Status   struct{ Phase string }
}

func (n *namespace) row(now time.Time) []any {
	return []any{n.Metadata.Name, or(n.Status.Phase, "Active"), since(now, n.Metadata.CreationTimestamp)}
}

type node struct {
	Metadata meta
	Spec     struct{ Unschedulable bool }
	Status   struct {
		Conditions []condition
		Addresses  []struct{ Type, Address string }
		NodeInfo   struct{ KubeletVersion, OSImage, KernelVersion, ContainerRuntimeVersion, Architecture string }
	}
}

func (n *node) state() string {
	state := "Unknown"
	for _, c := range n.Status.Conditions { // of repeated ones the last counts
		if c.Type == "Ready" {
			if state = "NotReady"; c.Status == "True" {
				state = "Ready"
			}
		}
	}
	if n.Spec.Unschedulable {
		state += ",SchedulingDisabled"
	}
	return state
}

func (n *node) roles() string {
	var roles []string
	for k, v := range n.Metadata.Labels {
		role, ok := strings.CutPrefix(k, "node-role.kubernetes.io/")
		if k == "kubernetes.io/role" {
			role, ok = v, true
		}
		if ok && role != "" {
			roles = append(roles, role)
		}
	}
	slices.Sort(roles)
	return or(strings.Join(slices.Compact(roles), ","), "<none>")
}

func (n *node) address(kind string) string {
	for _, a := range n.Status.Addresses {
		if a.Type == kind {
			return a.Address
		}
	}
	return "<none>"
}

func (n *node) row(now time.Time) []any {
	i := &n.Status.NodeInfo
	kernel := or(i.KernelVersion, "<unknown>")
	if i.Architecture != "" {
		kernel += " (" + i.Architecture + ")"
	}
	return []any{
		n.Metadata.Name, n.state(), n.roles(), since(now, n.Metadata.CreationTimestamp), i.KubeletVersion,
		n.address("InternalIP"), n.address("ExternalIP"), or(i.OSImage, "<unknown>"), kernel, or(i.ContainerRuntimeVersion, "<unknown>"),
	}
}

// event is a core Event or, with other names for the same fields, one of
// events.k8s.io.
type event struct {
	Metadata                      meta
	FirstTimestamp, LastTimestamp string
	DeprecatedFirstTimestamp      string
	DeprecatedLastTimestamp       string
	EventTime                     string
	Count, DeprecatedCount        int64
	Series                        *struct {
		Count            int64
		LastObservedTime string
	}
	Type, Reason, Message, Note             string
	InvolvedObject, Regarding               struct{ Kind, Name, FieldPath string }
	Source, DeprecatedSource                struct{ Component, Host string }
	ReportingController, ReportingComponent string
	ReportingInstance                       string
}

func (e *event) row(now time.Time) []any {
	first := or(or(e.FirstTimestamp, e.DeprecatedFirstTimestamp), e.EventTime)
	last := or(or(e.LastTimestamp, e.DeprecatedLastTimestamp), first)
	count := e.Count
	if count == 0 {
		count = e.DeprecatedCount
	}
	if count == 0 {
		count = 1 // a single event of the newer API has none
	}
	if e.Series != nil {
		last, count = e.Series.LastObservedTime, e.Series.Count
	}
	about := e.InvolvedObject
	if about.Kind+about.Name+about.FieldPath == "" {
		about = e.Regarding
	}
	object := strings.ToLower(about.Kind)
	if about.Name != "" {
		object += "/" + about.Name
	}
	component := or(or(e.Source.Component, e.DeprecatedSource.Component), or(e.ReportingController, e.ReportingComponent))
	if host := or(or(e.Source.Host, e.DeprecatedSource.Host), e.ReportingInstance); host != "" {
		component += ", " + host
	}
	return []any{
		since(now, last), e.Type, e.Reason, object, about.FieldPath, component, strings.TrimSpace(or(e.Message, e.Note)),
		since(now, first), count, e.Metadata.Name,
	}
}

type secret struct {
	Metadata meta
	Type     string
	Data     map[string]any
}

func (s *secret) row(now time.Time) []any {
	return []any{s.Metadata.Name, or(s.Type, "Opaque"), len(s.Data), since(now, s.Metadata.CreationTimestamp)}
}

type configMap struct {
	Metadata         meta
	Data, BinaryData map[string]any
}

func (c *configMap) row(now time.Time) []any {
	return []any{c.Metadata.Name, len(c.Data) + len(c.BinaryData), since(now, c.Metadata.CreationTimestamp)}
}

// named is an object of which only name and age are shown.
type named struct{ Metadata meta }

func (n *named) row(now time.Time) []any {
	return []any{n.Metadata.Name, since(now, n.Metadata.CreationTimestamp)}
}

type lease struct {
	Metadata meta
	Spec     struct{ HolderIdentity, LeaseName, BinaryVersion, EmulationVersion string }
}

func (l *lease) row(now time.Time) []any {
	return []any{l.Metadata.Name, l.Spec.HolderIdentity, since(now, l.Metadata.CreationTimestamp)}
}

func (l *lease) candidate(now time.Time) []any {
	return []any{l.Metadata.Name, l.Spec.LeaseName, l.Spec.BinaryVersion, l.Spec.EmulationVersion, since(now, l.Metadata.CreationTimestamp)}
}

type roleBinding struct {
	Metadata meta
	RoleRef  struct{ Kind, Name string }
	Subjects []struct{ Kind, Namespace, Name string }
}

func (r *roleBinding) row(now time.Time) []any {
	who := map[string][]string{}
	for _, s := range r.Subjects {
		name := s.Name
		if s.Kind == "ServiceAccount" {
			name = s.Namespace + "/" + name
		}
		who[s.Kind] = append(who[s.Kind], name)
	}
	list := func(kind string) string { return strings.Join(who[kind], ", ") }
	return []any{
		r.Metadata.Name, r.RoleRef.Kind + "/" + r.RoleRef.Name, since(now, r.Metadata.CreationTimestamp),
		list("User"), list("Group"), list("ServiceAccount"),
	}
}

type signingRequest struct {
	Metadata meta
	Spec     struct {
		SignerName, Username string
		ExpirationSeconds    *int64
	}
	Status struct {
		Conditions  []condition
		Certificate string
	}
}

func (s *signingRequest) row(now time.Time) []any {
	state := "Pending"
	switch {
	case find(s.Status.Conditions, "Denied") != nil:
		state = "Denied"
	case find(s.Status.Conditions, "Approved") != nil:
		state = "Approved"
	}
	if find(s.Status.Conditions, "Failed") != nil {
		state += ",Failed"
	}
	if s.Status.Certificate != "" {
		state += ",Issued"
	}
	lasts := "<none>"
	if n := s.Spec.ExpirationSeconds; n != nil {
		lasts = Duration(time.Duration(*n) * time.Second)
	}
	return []any{s.Metadata.Name, since(now, s.Metadata.CreationTimestamp), or(s.Spec.SignerName, "<none>"), s.Spec.Username, lasts, state}
}

func (s *signingRequest) bundle(time.Time) []any {
	return []any{s.Metadata.Name, or(s.Spec.SignerName, "<none>")}
}

type quota struct {
	Metadata meta
	Status   struct{ Hard, Used map[string]any }
}

func (q *quota) row(now time.Time) []any {
	var names, requests, limits []string
	for name := range q.Status.Hard {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		used, ok := q.Status.Used[name]
		if !ok {
			used = "0"
		}
		line := fmt.Sprintf("%s: %v/%v", name, used, q.Status.Hard[name])
		if strings.HasPrefix(name, "limits.") {
			limits = append(limits, line)
		} else {
			requests = append(requests, line)
		}
	}
	return []any{q.Metadata.Name, strings.Join(requests, ", "), strings.Join(limits, ", "), since(now, q.Metadata.CreationTimestamp)}
}

type priorityClass struct {
	Metadata         meta
	Value            int64
	GlobalDefault    bool
	PreemptionPolicy string
}

func (p *priorityClass) row(now time.Time) []any {
	return []any{p.Metadata.Name, p.Value, p.GlobalDefault, since(now, p.Metadata.CreationTimestamp), or(p.PreemptionPolicy, "PreemptLowerPriority")}
}

type runtimeClass struct {
	Metadata meta
	Handler  string
	Spec     struct{ RuntimeHandler string } // v1alpha1
}

func (r *runtimeClass) row(now time.Time) []any {
	return []any{r.Metadata.Name, or(r.Handler, r.Spec.RuntimeHandler), since(now, r.Metadata.CreationTimestamp)}
}

type webhooks struct {
	Metadata meta
	Webhooks []struct{}
}

func (w *webhooks) row(now time.Time) []any {
	return []any{w.Metadata.Name, len(w.Webhooks), since(now, w.Metadata.CreationTimestamp)}
}

type admissionPolicy struct {
	Metadata meta
	Spec     struct {
		Validations, Mutations []struct{}
		ParamKind              *struct{ APIVersion, Kind string }
	}
}

func (a *admissionPolicy) row(now time.Time) []any {
	kind := "<unset>"
	if p := a.Spec.ParamKind; p != nil {
		kind = p.APIVersion + "/" + p.Kind
	}
	return []any{a.Metadata.Name, len(a.Spec.Validations) + len(a.Spec.Mutations), kind, since(now, a.Metadata.CreationTimestamp)}
}

type flowSchema struct {
	Metadata meta
	Spec     struct {
		PriorityLevelConfiguration struct{ Name string }
		MatchingPrecedence         *int64
		DistinguisherMethod        *struct{ Type string }
	}
	Status struct{ Conditions []condition }
}

func (f *flowSchema) row(now time.Time) []any {
	method, dangling := "<none>", "?"
	if m := f.Spec.DistinguisherMethod; m != nil {
		method = m.Type
	}
	if c := find(f.Status.Conditions, "Dangling"); c != nil {
		dangling = c.Status
	}
	return []any{
		f.Metadata.Name, f.Spec.PriorityLevelConfiguration.Name, value(f.Spec.MatchingPrecedence, 1000), method, since(now, f.Metadata.CreationTimestamp), dangling,
	}
}

type priorityLevel struct {
	Metadata meta
	Spec     struct {
		Type    string
		Limited *struct {
			NominalConcurrencyShares, AssuredConcurrencyShares *int64
			LimitResponse                                      struct {
				Queuing *struct{ Queues, HandSize, QueueLengthLimit int64 }
			}
		}
	}
}

func (p *priorityLevel) row(now time.Time) []any {
	none := any("<none>")
	shares, queues, hand, limit := none, none, none, none
	if l := p.Spec.Limited; l != nil {
		shares = value(l.NominalConcurrencyShares, value(l.AssuredConcurrencyShares, 30))
		if q := l.LimitResponse.Queuing; q != nil {
			queues, hand, limit = q.Queues, q.HandSize, q.QueueLengthLimit
		}
	}
	return []any{p.Metadata.Name, p.Spec.Type, shares, queues, hand, limit, since(now, p.Metadata.CreationTimestamp)}
}

type apiService struct {
	Metadata meta
	Spec     struct {
		Service *struct{ Namespace, Name string }
	}
	Status struct{ Conditions []condition }
}

func (a *apiService) row(now time.Time) []any {
	service, available := "Local", "Unknown"
	if s := a.Spec.Service; s != nil {
		service = s.Namespace + "/" + s.Name
	}
	if c := find(a.Status.Conditions, "Available"); c != nil {
		available = c.Status
		if c.Status != "True" {
			available += " (" + c.Reason + ")"
		}
	}
	return []any{a.Metadata.Name, service, available, since(now, a.Metadata.CreationTimestamp)}
}

type autoscaler struct {
	Metadata meta
	Spec     struct {
		ScaleTargetRef                 struct{ Kind, Name string }
		MinReplicas                    *int64
		MaxReplicas                    int64
		Metrics                        []metric
		TargetCPUUtilizationPercentage *int64 // v1
	}
	Status struct {
		CurrentReplicas                 int64
		CurrentMetrics                  []metric
		CurrentCPUUtilizationPercentage *int64 // v1
	}
}

// metric is one in the specification, with a target, or in the status, with a
// current value.
type metric struct {
	Type                                                string
	Resource, ContainerResource, Pods, Object, External *metricSource
}

type metricSource struct {
	Name            string
	Target, Current metricValue
}

type metricValue struct {
	AverageUtilization  *int64
	Value, AverageValue any
}

func (m *metric) source() *metricSource {
	switch m.Type {
	case "Resource":
		return m.Resource
	case "ContainerResource":
		return m.ContainerResource
	case "Pods":
		return m.Pods
	case "Object":
		return m.Object
	case "External":
		return m.External
	}
	return nil
}

// text sets a metric's target beside what it is now.
func (m *metric) text(now *metricSource) string {
	s := m.source()
	if s == nil {
		return "<unknown type>"
	}
	var current metricValue
	if now != nil {
		current = now.Current
	}
	quantity := func(q any) any {
		if q != nil {
			return q
		}
		if now != nil && m.Type != "Object" && m.Type != "External" {
			return "0"
		}
		return "<unknown>"
	}
	percent := func(n *int64, none string) string {
		if n == nil {
			return none
		}
		return fmt.Sprintf("%d%%", *n)
	}
	switch average := s.Target.AverageValue; {
	case m.Type == "Pods":
		return fmt.Sprintf("%v/%v", quantity(current.AverageValue), average)
	case m.Type == "Object" || m.Type == "External":
		if average != nil {
			return fmt.Sprintf("%v/%v (avg)", quantity(current.AverageValue), average)
		}
		if now != nil && current.Value == nil {
			current.Value = "<nil>"
		}
		return fmt.Sprintf("%v/%v", quantity(current.Value), s.Target.Value)
	case average != nil:
		return fmt.Sprintf("%s: %v/%v", s.Name, quantity(current.AverageValue), average)
	}
	return fmt.Sprintf("%s: %s/%s", s.Name, percent(current.AverageUtilization, "<unknown>"), percent(s.Target.AverageUtilization, "<auto>"))
}

func (a *autoscaler) targets() string {
	if a.Spec.TargetCPUUtilizationPercentage != nil {
		cpu := metric{Type: "Resource", Resource: &metricSource{Name: "cpu", Target: metricValue{AverageUtilization: a.Spec.TargetCPUUtilizationPercentage}}}
		return cpu.text(&metricSource{Current: metricValue{AverageUtilization: a.Status.CurrentCPUUtilizationPercentage}})
	}
	wanted := a.Spec.Metrics
	if len(wanted) == 0 { // the API server's default
		use := int64(80)
		wanted = []metric{{Type: "Resource", Resource: &metricSource{Name: "cpu", Target: metricValue{AverageUtilization: &use}}}}
	}
	var list []string
	for i := range wanted {
		var now *metricSource
		if i < len(a.Status.CurrentMetrics) {
			m := a.Status.CurrentMetrics[i]
			m.Type = wanted[i].Type
			now = m.source()
		}
		list = append(list, wanted[i].text(now))
	}
	return some(list, 2, ", ")
}

func (a *autoscaler) row(now time.Time) []any {
	r := a.Spec.ScaleTargetRef
	return []any{
		a.Metadata.Name, r.Kind + "/" + r.Name, a.targets(), value(a.Spec.MinReplicas, 1), a.Spec.MaxReplicas, a.Status.CurrentReplicas,
		since(now, a.Metadata.CreationTimestamp),
	}
}

type resourceClaim struct {
	Metadata meta
	Status   struct {
		Allocation  *struct{}
		ReservedFor []struct{}
	}
}

func (r *resourceClaim) row(now time.Time) []any {
	var states []string
	deleted := r.Metadata.DeletionTimestamp != ""
	if deleted {
		states = append(states, "deleted")
	}
	switch {
	case r.Status.Allocation != nil:
		states = append(states, "allocated")
		if len(r.Status.ReservedFor) > 0 {
			states = append(states, "reserved")
		}
	case !deleted:
		states = append(states, "pending")
	}
	return []any{r.Metadata.Name, strings.Join(states, ","), since(now, r.Metadata.CreationTimestamp)}
}

type resourceSlice struct {
	Metadata meta
	Spec     struct {
		NodeName, Driver string
		Pool             struct{ Name string }
	}
}

func (r *resourceSlice) row(now time.Time) []any {
	return []any{r.Metadata.Name, r.Spec.NodeName, r.Spec.Driver, r.Spec.Pool.Name, since(now, r.Metadata.CreationTimestamp)}
}
