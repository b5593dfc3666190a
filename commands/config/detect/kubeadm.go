package detect

import (
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// kubeadm looks at the static pods of etcd and of the API server.
func (t *tree) kubeadm() *Host {
	dir := t.manifests()
	etcdFile, apiFile := path.Join(dir, "etcd.yaml"), path.Join(dir, "kube-apiserver.yaml")
	etcd, etcdErr := t.pod(etcdFile, "etcd")
	api, apiErr := t.pod(apiFile, "kube-apiserver")
	if gone(etcdErr) && gone(apiErr) {
		return nil
	}
	h := &Host{Kind: Kubeadm, Store: Etcd}
	for file, err := range map[string]error{etcdFile: etcdErr, apiFile: apiErr} {
		if err != nil && !gone(err) {
			h.Problems = append(h.Problems, t.problem(file, err, ""))
		}
	}
	slices.SortFunc(h.Problems, func(a, b Problem) int { return strings.Compare(a.File, b.File) })
	if api == nil {
		api = &pod{flags: newValues()}
	}
	const renew = "`kubeadm certs renew all` renews it, then the control plane has to start again"
	switch {
	case etcd != nil && etcdErr == nil:
		t.stacked(h, etcd, api, renew)
	case gone(etcdErr) && api.flags.get("etcd-servers") != "":
		t.external(h, api, renew)
	case gone(etcdErr) && apiErr == nil:
		return nil // an API server without an etcd
	}
	if enc := api.flags.get("encryption-provider-config"); enc != "" {
		t.encryption(h, api.host(enc), api.flags.from["encryption-provider-config"])
	}
	return h
}

// manifests returns the kubelet's folder of static pods.
func (t *tree) manifests() string {
	var kubelet struct {
		StaticPodPath string `yaml:"staticPodPath"`
	}
	if b, err := t.read("/var/lib/kubelet/config.yaml"); err == nil && yaml.Unmarshal(b, &kubelet) == nil && path.IsAbs(kubelet.StaticPodPath) {
		return kubelet.StaticPodPath
	}
	return "/etc/kubernetes/manifests"
}

// stacked is an etcd beside the API server.
func (t *tree) stacked(h *Host, etcd, api *pod, renew string) {
	c := client{server: etcd.flags, inside: etcd.host, renew: renew}
	if ca := etcd.flags.get("trusted-ca-file"); ca != "" {
		// kubeadm's health check has a certificate of its own beside the CA.
		pki := path.Dir(etcd.host(ca))
		file := path.Join(pki, "healthcheck-client")
		c.clients = append(c.clients, pair{file + ".crt", file + ".key", t.shown(pki)})
	}
	c.clients = append(c.clients, t.apiClient(api)...)
	if ca := api.flags.get("etcd-cafile"); ca != "" {
		c.cas = append(c.cas, Setting{Value: api.host(ca), From: api.flags.from["etcd-cafile"]})
	}
	t.connect(h, c)
}

func (t *tree) apiClient(api *pod) []pair {
	cert, key := api.flags.get("etcd-certfile"), api.flags.get("etcd-keyfile")
	if cert == "" || key == "" {
		return nil
	}
	return []pair{{api.host(cert), api.host(key), api.flags.from["etcd-certfile"]}}
}

// external is an etcd that only the API server's flags tell of.
func (t *tree) external(h *Host, api *pod, renew string) {
	servers := split(api.flags.get("etcd-servers"))
	h.set("endpoints", strings.Join(servers, ","), api.flags.from["etcd-servers"])
	h.note("an external etcd: what the API server is told of it; its data is where it runs")
	if !slices.ContainsFunc(servers, func(s string) bool { return strings.HasPrefix(s, "https://") }) {
		return
	}
	ca := api.flags.get("etcd-cafile")
	if ca != "" {
		t.authority(h, []Setting{{Value: api.host(ca), From: api.flags.from["etcd-cafile"]}}, nil, renew)
	}
	t.identity(h, t.apiClient(api), "", api.flags.get("etcd-certfile") != "", renew)
}

// encryption tells of the file that opens sealed values. To connect one does not need it.
func (t *tree) encryption(h *Host, file, from string) {
	h.set("encryption-config", t.shown(file), from)
	f, err := t.open(file)
	if err == nil {
		f.Close()
		return
	}
	p := t.problem(file, err, "without it sealed values stay sealed")
	p.Warning = true
	h.Problems = append(h.Problems, p)
}
