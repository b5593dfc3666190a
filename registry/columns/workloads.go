package columns

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

type container struct{ Name, Image, RestartPolicy string }

// sidecar: an init container that goes on running.
func (c container) sidecar() bool { return c.RestartPolicy == "Always" }

type template struct {
	Metadata meta
	Spec     struct {
		Containers   []container
		NodeSelector map[string]string
	}
}

// names and images of the containers.
func (t *template) containers() (names, images string) {
	var n, i []string
	for _, c := range t.Spec.Containers {
		n, i = append(n, c.Name), append(i, c.Image)
	}
	return strings.Join(n, ","), strings.Join(i, ",")
}

type terminated struct {
	ExitCode, Signal   int64
	Reason, FinishedAt string
}

type containerState struct {
	Waiting    *struct{ Reason string }
	Running    *struct{}
	Terminated *terminated
}

type containerStatus struct {
	Name             string
	Ready            bool
	Started          bool
	RestartCount     int
	State, LastState containerState
}

type pod struct {
	Metadata meta
	Spec     struct {
		Containers, InitContainers []container
		NodeName                   string
		ReadinessGates             []struct{ ConditionType string }
	}
	Status struct {
		Phase, Reason, PodIP, NominatedNodeName  string
		PodIPs                                   []struct{ IP string }
		Conditions                               []condition
		InitContainerStatuses, ContainerStatuses []containerStatus
	}
}

// restarts counts restarts and remembers the last one.
type restarts struct {
	n    int
	last time.Time
}

func (r *restarts) add(c *containerStatus) {
	r.n += c.RestartCount
	if t := c.LastState.Terminated; t != nil {
		if at, ok := parseTime(t.FinishedAt); ok && at.After(r.last) {
			r.last = at
		}
	}
}

func (r *restarts) text(now time.Time) string {
	if r.n == 0 || r.last.IsZero() {
		return strconv.Itoa(r.n)
	}
	return fmt.Sprintf("%d (%s ago)", r.n, Duration(now.Sub(r.last)))
}

// ended says how a container ended; prefix is "" or "Init:".
func (t *terminated) ended(prefix string) string {
	switch {
	case t.Reason != "":
		return prefix + t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("%sSignal:%d", prefix, t.Signal)
	}
	return fmt.Sprintf("%sExitCode:%d", prefix, t.ExitCode)
}

// podState is what the containers of a pod say together.
type podState struct {
	reason       string
	ready, total int
	restarts     restarts
}

func (p *pod) state() podState {
	s := podState{reason: or(p.Status.Reason, p.Status.Phase), total: len(p.Spec.Containers)}
	if c := find(p.Status.Conditions, "PodScheduled"); c != nil && c.Reason == "SchedulingGated" {
		s.reason = c.Reason
	}
	sidecars := map[string]bool{}
	for _, c := range p.Spec.InitContainers {
		if sidecars[c.Name] = c.sidecar(); c.sidecar() {
			s.total++
		}
	}
	kept, initializing := s.initContainers(p, sidecars)
	if !initializing || is(p.Status.Conditions, "Initialized") {
		// The init containers are behind us: only sidecars still count.
		s.restarts = kept
		s.mainContainers(p)
	}
	switch deleted := p.Metadata.DeletionTimestamp != ""; {
	case deleted && p.Status.Reason == "NodeLost":
		s.reason = "Unknown"
	case deleted && p.Status.Phase != "Succeeded" && p.Status.Phase != "Failed":
		s.reason = "Terminating"
	}
	return s
}

// initContainers looks at the init containers up to the first that is not done. It
// returns the restarts of the sidecars among them, and whether one is not done.
func (s *podState) initContainers(p *pod, sidecars map[string]bool) (kept restarts, initializing bool) {
	for i := range p.Status.InitContainerStatuses {
		c := &p.Status.InitContainerStatuses[i]
		s.restarts.add(c)
		sidecar := sidecars[c.Name]
		if sidecar {
			kept.add(c)
		}
		switch t, w := c.State.Terminated, c.State.Waiting; {
		case t != nil && t.ExitCode == 0:
			continue
		case sidecar && c.Started:
			if c.Ready {
				s.ready++
			}
			continue
		case t != nil:
			s.reason = t.ended("Init:")
		case w != nil && w.Reason != "" && w.Reason != "PodInitializing":
			s.reason = "Init:" + w.Reason
		default:
			s.reason = fmt.Sprintf("Init:%d/%d", i, len(p.Spec.InitContainers))
		}
		return kept, true
	}
	return kept, false
}

// mainContainers lets the first container that has something to say give the reason:
// they are looked at from the last to the first.
func (s *podState) mainContainers(p *pod) {
	running, failed := false, ""
	for i := len(p.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := &p.Status.ContainerStatuses[i]
		s.restarts.add(c)
		switch t, w := c.State.Terminated, c.State.Waiting; {
		case w != nil && w.Reason != "":
			s.reason = w.Reason
		case t != nil:
			s.reason = t.ended("")
			if t.ExitCode != 0 {
				failed = s.reason
			}
		case c.Ready && c.State.Running != nil:
			running = true
			s.ready++
		}
	}
	if s.reason != "Completed" {
		return
	}
	// One container is done, which is not all there is to say.
	switch {
	case running && is(p.Status.Conditions, "Ready"):
		s.reason = "Running"
	case failed != "":
		s.reason = failed
	case running:
		s.reason = "NotReady"
	}
}

func (p *pod) row(now time.Time) []any {
	s := p.state()
	ip := p.Status.PodIP
	if ip == "" && len(p.Status.PodIPs) > 0 {
		ip = p.Status.PodIPs[0].IP
	}
	gates := "<none>"
	if n := len(p.Spec.ReadinessGates); n > 0 {
		open := 0
		for _, g := range p.Spec.ReadinessGates {
			if is(p.Status.Conditions, g.ConditionType) {
				open++
			}
		}
		gates = fmt.Sprintf("%d/%d", open, n)
	}
	return []any{
		p.Metadata.Name, fmt.Sprintf("%d/%d", s.ready, s.total), s.reason, s.restarts.text(now), since(now, p.Metadata.CreationTimestamp),
		or(ip, "<none>"), or(p.Spec.NodeName, "<none>"), or(p.Status.NominatedNodeName, "<none>"), gates,
	}
}

// workload is what Deployments and their like have in common.
type workload struct {
	Metadata meta
	Spec     struct {
		Replicas *int64
		Selector *selector
		Template template
	}
	Status struct {
		Replicas, ReadyReplicas, UpdatedReplicas, AvailableReplicas int64

		DesiredNumberScheduled, CurrentNumberScheduled, NumberReady, UpdatedNumberScheduled, NumberAvailable int64
	}
}

// desired is how many replicas are wanted: one, unless the object says otherwise.
func (w *workload) desired() int64 { return value(w.Spec.Replicas, 1) }

func deployment(w *workload, now time.Time) []any {
	names, images := w.Spec.Template.containers()
	return []any{
		w.Metadata.Name, fmt.Sprintf("%d/%d", w.Status.ReadyReplicas, w.desired()), w.Status.UpdatedReplicas, w.Status.AvailableReplicas,
		since(now, w.Metadata.CreationTimestamp), names, images, w.Spec.Selector.text("<invalid>"),
	}
}

func statefulSet(w *workload, now time.Time) []any {
	names, images := w.Spec.Template.containers()
	return []any{w.Metadata.Name, fmt.Sprintf("%d/%d", w.Status.ReadyReplicas, w.desired()), since(now, w.Metadata.CreationTimestamp), names, images}
}

func replicaSet(w *workload, now time.Time) []any {
	names, images := w.Spec.Template.containers()
	return []any{
		w.Metadata.Name, w.desired(), w.Status.Replicas, w.Status.ReadyReplicas, since(now, w.Metadata.CreationTimestamp),
		names, images, w.Spec.Selector.String(),
	}
}

func daemonSet(w *workload, now time.Time) []any {
	names, images := w.Spec.Template.containers()
	s := &w.Status
	return []any{
		w.Metadata.Name, s.DesiredNumberScheduled, s.CurrentNumberScheduled, s.NumberReady, s.UpdatedNumberScheduled, s.NumberAvailable,
		labels(w.Spec.Template.Spec.NodeSelector), since(now, w.Metadata.CreationTimestamp), names, images, w.Spec.Selector.String(),
	}
}

type replicationController struct {
	Metadata meta
	Spec     struct {
		Replicas *int64
		Selector map[string]string
		Template template
	}
	Status struct{ Replicas, ReadyReplicas int64 }
}

func (r *replicationController) row(now time.Time) []any {
	names, images := r.Spec.Template.containers()
	return []any{
		r.Metadata.Name, value(r.Spec.Replicas, 1), r.Status.Replicas, r.Status.ReadyReplicas, since(now, r.Metadata.CreationTimestamp),
		names, images, labels(r.Spec.Selector),
	}
}

type jobSpec struct {
	Completions, Parallelism *int64
	Selector                 *selector
	Template                 template
}

type job struct {
	Metadata meta
	Spec     jobSpec
	Status   struct {
		Succeeded                 int64
		StartTime, CompletionTime string
		Conditions                []condition
	}
}

func (j *job) state() string {
	switch c := j.Status.Conditions; {
	case is(c, "Complete"):
		return "Complete"
	case is(c, "Failed"):
		return "Failed"
	case j.Metadata.DeletionTimestamp != "":
		return "Terminating"
	case is(c, "Suspended"):
		return "Suspended"
	case is(c, "FailureTarget"):
		return "FailureTarget"
	case is(c, "SuccessCriteriaMet"):
		return "SuccessCriteriaMet"
	}
	return "Running"
}

func (j *job) row(now time.Time) []any {
	wanted := "1"
	switch parallel := value(j.Spec.Parallelism, 1); {
	case j.Spec.Completions != nil:
		wanted = strconv.FormatInt(*j.Spec.Completions, 10)
	case parallel > 1:
		wanted = fmt.Sprintf("1 of %d", parallel)
	}
	took := ""
	if start, ok := parseTime(j.Status.StartTime); ok {
		end, ok := parseTime(j.Status.CompletionTime)
		if !ok {
			end = now
		}
		took = Duration(end.Sub(start))
	}
	names, images := j.Spec.Template.containers()
	return []any{
		j.Metadata.Name, j.state(), fmt.Sprintf("%d/%s", j.Status.Succeeded, wanted), took, since(now, j.Metadata.CreationTimestamp),
		names, images, j.Spec.Selector.String(),
	}
}

type cronJob struct {
	Metadata meta
	Spec     struct {
		Schedule    string
		TimeZone    *string
		Suspend     *bool
		JobTemplate struct{ Spec jobSpec }
	}
	Status struct {
		Active           []struct{}
		LastScheduleTime string
	}
}

func (c *cronJob) row(now time.Time) []any {
	last := "<none>"
	if c.Status.LastScheduleTime != "" {
		last = since(now, c.Status.LastScheduleTime)
	}
	suspend := "False" // as Kubernetes prints a boolean that may be unset
	if value(c.Spec.Suspend, false) {
		suspend = "True"
	}
	t := &c.Spec.JobTemplate.Spec
	names, images := t.Template.containers()
	return []any{
		c.Metadata.Name, c.Spec.Schedule, deref(c.Spec.TimeZone, "<none>"), suspend, len(c.Status.Active), last, since(now, c.Metadata.CreationTimestamp),
		names, images, t.Selector.String(),
	}
}

type controllerRevision struct {
	Metadata meta
	Revision int64
}

func (c *controllerRevision) row(now time.Time) []any {
	owner := "<none>"
	for _, o := range c.Metadata.OwnerReferences {
		if o.Controller {
			group, _, ok := strings.Cut(o.APIVersion, "/")
			kind := strings.ToLower(o.Kind)
			if ok {
				kind += "." + strings.ToLower(group)
			}
			owner = kind + "/" + o.Name
			break
		}
	}
	return []any{c.Metadata.Name, owner, c.Revision, since(now, c.Metadata.CreationTimestamp)}
}

type podTemplate struct {
	Metadata meta
	Template template
}

func (p *podTemplate) row(time.Time) []any {
	names, images := p.Template.containers()
	return []any{p.Metadata.Name, names, images, labels(p.Template.Metadata.Labels)}
}

type disruptionBudget struct {
	Metadata meta
	Spec     struct{ MinAvailable, MaxUnavailable any }
	Status   struct{ DisruptionsAllowed int64 }
}

func (d *disruptionBudget) row(now time.Time) []any {
	orNA := func(v any) any {
		if v == nil {
			return "N/A"
		}
		return v
	}
	return []any{d.Metadata.Name, orNA(d.Spec.MinAvailable), orNA(d.Spec.MaxUnavailable), d.Status.DisruptionsAllowed, since(now, d.Metadata.CreationTimestamp)}
}
