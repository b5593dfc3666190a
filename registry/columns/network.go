package columns

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

type loadBalancer struct {
	Ingress []struct{ IP, Hostname string }
}

// addresses returns the points of entry in order, each once.
func (l *loadBalancer) addresses() []string {
	var out []string
	for _, i := range l.Ingress {
		if a := or(i.IP, i.Hostname); a != "" {
			out = append(out, a)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

type service struct {
	Metadata meta
	Spec     struct {
		Type, ClusterIP, ExternalName string
		ClusterIPs, ExternalIPs       []string
		Selector                      map[string]string
		Ports                         []struct {
			Port, NodePort int64
			Protocol       string
		}
	}
	Status struct{ LoadBalancer loadBalancer }
}

func (s *service) external() string {
	switch s.Spec.Type {
	case "", "ClusterIP", "NodePort":
		return or(strings.Join(s.Spec.ExternalIPs, ","), "<none>")
	case "LoadBalancer":
		return or(strings.Join(append(s.Status.LoadBalancer.addresses(), s.Spec.ExternalIPs...), ","), "<pending>")
	case "ExternalName":
		return s.Spec.ExternalName
	}
	return "<unknown>"
}

func (s *service) row(now time.Time) []any {
	var ports []string
	for _, p := range s.Spec.Ports {
		node := ""
		if p.NodePort > 0 {
			node = fmt.Sprintf(":%d", p.NodePort)
		}
		ports = append(ports, fmt.Sprintf("%d%s/%s", p.Port, node, or(p.Protocol, "TCP")))
	}
	ip := s.Spec.ClusterIP
	if len(s.Spec.ClusterIPs) > 0 {
		ip = s.Spec.ClusterIPs[0]
	}
	return []any{
		s.Metadata.Name, or(s.Spec.Type, "ClusterIP"), or(ip, "<none>"), s.external(), or(strings.Join(ports, ","), "<none>"),
		since(now, s.Metadata.CreationTimestamp), labels(s.Spec.Selector),
	}
}

type endpoints struct {
	Metadata meta
	Subsets  []struct {
		Addresses []struct{ IP string }
		Ports     []struct{ Port int }
	}
}

func (e *endpoints) row(now time.Time) []any {
	var list []string
	for _, s := range e.Subsets {
		if len(s.Ports) == 0 { // of a headless service without ports
			for _, a := range s.Addresses {
				list = append(list, a.IP)
			}
		}
		for _, p := range s.Ports {
			for _, a := range s.Addresses {
				list = append(list, net.JoinHostPort(a.IP, strconv.Itoa(p.Port)))
			}
		}
	}
	text := some(list, 3, ",")
	if len(e.Subsets) == 0 {
		text = "<none>"
	}
	return []any{e.Metadata.Name, text, since(now, e.Metadata.CreationTimestamp)}
}

type endpointSlice struct {
	Metadata    meta
	AddressType string
	Ports       []struct {
		Port *int64
		Name *string
	}
	Endpoints []struct{ Addresses []string }
}

func (e *endpointSlice) row(now time.Time) []any {
	var ports, addresses []string
	for _, p := range e.Ports {
		ports = append(ports, fmt.Sprint(deref(p.Port, value(p.Name, "*"))))
	}
	for _, x := range e.Endpoints {
		addresses = append(addresses, x.Addresses...)
	}
	return []any{
		e.Metadata.Name, e.AddressType, or(some(ports, 3, ","), "<unset>"), or(some(addresses, 3, ","), "<unset>"), since(now, e.Metadata.CreationTimestamp),
	}
}

type ingress struct {
	Metadata meta
	Spec     struct {
		IngressClassName *string
		Rules            []struct{ Host string }
		TLS              []struct{}
	}
	Status struct{ LoadBalancer loadBalancer }
}

func (i *ingress) row(now time.Time) []any {
	ports := "80"
	if len(i.Spec.TLS) > 0 {
		ports = "80, 443"
	}
	return []any{
		i.Metadata.Name, deref(i.Spec.IngressClassName, "<none>"), i.hosts(), strings.Join(i.Status.LoadBalancer.addresses(), ","), ports,
		since(now, i.Metadata.CreationTimestamp),
	}
}

// hosts names the first three; rules without a host are counted, but not named.
func (i *ingress) hosts() string {
	const limit = 3
	var list []string
	more := false
	for _, r := range i.Spec.Rules {
		if len(list) == limit {
			more = true
			break
		}
		if r.Host != "" {
			list = append(list, r.Host)
		}
	}
	text := or(strings.Join(list, ","), "*")
	if more {
		return fmt.Sprintf("%s + %d more...", text, len(i.Spec.Rules)-limit)
	}
	return text
}

type ingressClass struct {
	Metadata meta
	Spec     struct {
		Controller string
		Parameters *struct {
			APIGroup   *string
			Kind, Name string
		}
	}
}

func (i *ingressClass) row(now time.Time) []any {
	name := i.Metadata.Name
	if i.Metadata.Annotations["ingressclass.kubernetes.io/is-default-class"] == "true" {
		name += " (default)"
	}
	parameters := "<none>"
	if p := i.Spec.Parameters; p != nil {
		parameters = p.Kind
		if p.APIGroup != nil {
			parameters += "." + *p.APIGroup
		}
		parameters += "/" + p.Name
	}
	return []any{name, i.Spec.Controller, parameters, since(now, i.Metadata.CreationTimestamp)}
}

type networkPolicy struct {
	Metadata meta
	Spec     struct{ PodSelector selector }
}

func (n *networkPolicy) row(now time.Time) []any {
	return []any{n.Metadata.Name, n.Spec.PodSelector.String(), since(now, n.Metadata.CreationTimestamp)}
}

type serviceCIDR struct {
	Metadata meta
	Spec     struct{ CIDRs []string }
}

func (s *serviceCIDR) row(now time.Time) []any {
	return []any{s.Metadata.Name, strings.Join(s.Spec.CIDRs, ","), since(now, s.Metadata.CreationTimestamp)}
}

type ipAddress struct {
	Metadata meta
	Spec     struct {
		ParentRef *struct{ Group, Resource, Namespace, Name string }
	}
}

func (i *ipAddress) row(time.Time) []any {
	parent := "<none>"
	if p := i.Spec.ParentRef; p != nil {
		parent = strings.ToLower(p.Resource)
		if p.Group != "" {
			parent += "." + strings.ToLower(p.Group)
		}
		if p.Namespace != "" {
			parent += "/" + p.Namespace
		}
		parent += "/" + p.Name
	}
	return []any{i.Metadata.Name, parent}
}
