package registry

// builtin is one line of the table of built-in resources. An empty prefix means
// the plural: kube-apiserver stores most built-in resources without their group.
type builtin struct {
	group, kind, plural string
	short               string // comma-separated
	scope               scope
	prefix              string
	oldGroups           string // comma-separated: groups that served the same stored objects
}

type scope uint8

const (
	cluster    scope = iota // prefix/NAME
	namespaced              // prefix/NAMESPACE/NAME
	internal                // the same path as cluster, but served by no API
)

// builtins lists every resource that a kube-apiserver has stored in etcd since
// Kubernetes 1.17, removed ones included, by group. Names come from the API's own
// discovery; the prefixes that differ from the plural are those of kube-apiserver's
// storage factory.
var builtins = []builtin{
	{"", "ConfigMap", "configmaps", "cm", namespaced, "", ""},
	{"", "Endpoints", "endpoints", "ep", namespaced, "services/endpoints", ""},
	{"", "Event", "events", "ev", namespaced, "", "events.k8s.io"},
	{"", "LimitRange", "limitranges", "limits", namespaced, "", ""},
	{"", "Namespace", "namespaces", "ns", cluster, "", ""},
	{"", "Node", "nodes", "no", cluster, "minions", ""},
	{"", "PersistentVolume", "persistentvolumes", "pv", cluster, "", ""},
	{"", "PersistentVolumeClaim", "persistentvolumeclaims", "pvc", namespaced, "", ""},
	{"", "Pod", "pods", "po", namespaced, "", ""},
	{"", "PodTemplate", "podtemplates", "", namespaced, "", ""},
	{"", "ReplicationController", "replicationcontrollers", "rc", namespaced, "controllers", ""},
	{"", "ResourceQuota", "resourcequotas", "quota", namespaced, "", ""},
	{"", "Secret", "secrets", "", namespaced, "", ""},
	{"", "Service", "services", "svc", namespaced, "services/specs", ""},
	{"", "ServiceAccount", "serviceaccounts", "sa", namespaced, "", ""},

	{"admissionregistration.k8s.io", "InitializerConfiguration", "initializerconfigurations", "", cluster, "", ""},
	{"admissionregistration.k8s.io", "MutatingAdmissionPolicy", "mutatingadmissionpolicies", "", cluster, "", ""},
	{"admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", "", cluster, "", ""},
	{"admissionregistration.k8s.io", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", "", cluster, "", ""},
	{"admissionregistration.k8s.io", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", "", cluster, "", ""},
	{"admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", "", cluster, "", ""},
	{"admissionregistration.k8s.io", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", "", cluster, "", ""},

	{"apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions", "crd,crds", cluster, "apiextensions.k8s.io/customresourcedefinitions", ""},

	{"apiregistration.k8s.io", "APIService", "apiservices", "", cluster, "apiregistration.k8s.io/apiservices", ""},

	{"apps", "ControllerRevision", "controllerrevisions", "", namespaced, "", ""},
	{"apps", "DaemonSet", "daemonsets", "ds", namespaced, "", "extensions"},
	{"apps", "Deployment", "deployments", "deploy", namespaced, "", "extensions"},
	{"apps", "ReplicaSet", "replicasets", "rs", namespaced, "", "extensions"},
	{"apps", "StatefulSet", "statefulsets", "sts", namespaced, "", ""},

	{"auditregistration.k8s.io", "AuditSink", "auditsinks", "as", cluster, "", ""},

	{"autoscaling", "HorizontalPodAutoscaler", "horizontalpodautoscalers", "hpa", namespaced, "", "extensions"},

	{"batch", "CronJob", "cronjobs", "cj", namespaced, "", ""},
	{"batch", "Job", "jobs", "", namespaced, "", "extensions"},

	{"certificates.k8s.io", "CertificateSigningRequest", "certificatesigningrequests", "csr", cluster, "", ""},
	{"certificates.k8s.io", "ClusterTrustBundle", "clustertrustbundles", "", cluster, "", ""},
	{"certificates.k8s.io", "PodCertificateRequest", "podcertificaterequests", "", namespaced, "", ""},

	{"coordination.k8s.io", "Lease", "leases", "", namespaced, "", ""},
	{"coordination.k8s.io", "LeaseCandidate", "leasecandidates", "", namespaced, "", ""},

	{"discovery.k8s.io", "EndpointSlice", "endpointslices", "", namespaced, "", ""},

	{"flowcontrol.apiserver.k8s.io", "FlowSchema", "flowschemas", "", cluster, "", ""},
	{"flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration", "prioritylevelconfigurations", "", cluster, "", ""},

	{"internal.apiserver.k8s.io", "StorageVersion", "storageversions", "", cluster, "", ""},

	{"lifecycle.k8s.io", "Eviction", "evictions", "", namespaced, "", ""},
	{"lifecycle.k8s.io", "EvictionRequest", "evictionrequests", "", namespaced, "", ""},

	{"networking.k8s.io", "ClusterCIDR", "clustercidrs", "cc", cluster, "", ""},
	{"networking.k8s.io", "IPAddress", "ipaddresses", "ip", cluster, "", ""},
	{"networking.k8s.io", "Ingress", "ingresses", "ing", namespaced, "ingress", "extensions"},
	{"networking.k8s.io", "IngressClass", "ingressclasses", "", cluster, "", ""},
	{"networking.k8s.io", "NetworkPolicy", "networkpolicies", "netpol", namespaced, "", "extensions"},
	{"networking.k8s.io", "ServiceCIDR", "servicecidrs", "", cluster, "", ""},

	{"node.k8s.io", "RuntimeClass", "runtimeclasses", "", cluster, "", ""},

	{"policy", "PodDisruptionBudget", "poddisruptionbudgets", "pdb", namespaced, "", ""},
	{"policy", "PodSecurityPolicy", "podsecuritypolicies", "psp", cluster, "podsecuritypolicy", "extensions"},

	{"rbac.authorization.k8s.io", "ClusterRole", "clusterroles", "", cluster, "", ""},
	{"rbac.authorization.k8s.io", "ClusterRoleBinding", "clusterrolebindings", "", cluster, "", ""},
	{"rbac.authorization.k8s.io", "Role", "roles", "", namespaced, "", ""},
	{"rbac.authorization.k8s.io", "RoleBinding", "rolebindings", "", namespaced, "", ""},

	{"resource.k8s.io", "DeviceClass", "deviceclasses", "", cluster, "", ""},
	{"resource.k8s.io", "DeviceTaintRule", "devicetaintrules", "", cluster, "", ""},
	{"resource.k8s.io", "PodScheduling", "podschedulings", "", namespaced, "", ""},
	{"resource.k8s.io", "PodSchedulingContext", "podschedulingcontexts", "", namespaced, "", ""},
	{"resource.k8s.io", "ResourceClaim", "resourceclaims", "", namespaced, "", ""},
	{"resource.k8s.io", "ResourceClaimParameters", "resourceclaimparameters", "", namespaced, "", ""},
	{"resource.k8s.io", "ResourceClaimTemplate", "resourceclaimtemplates", "", namespaced, "", ""},
	{"resource.k8s.io", "ResourceClass", "resourceclasses", "", cluster, "", ""},
	{"resource.k8s.io", "ResourceClassParameters", "resourceclassparameters", "", namespaced, "", ""},
	{"resource.k8s.io", "ResourcePoolStatusRequest", "resourcepoolstatusrequests", "", cluster, "", ""},
	{"resource.k8s.io", "ResourceSlice", "resourceslices", "", cluster, "", ""},

	{"scheduling.k8s.io", "CompositePodGroup", "compositepodgroups", "", namespaced, "", ""},
	{"scheduling.k8s.io", "PodGroup", "podgroups", "", namespaced, "", ""},
	{"scheduling.k8s.io", "PriorityClass", "priorityclasses", "pc", cluster, "", ""},
	{"scheduling.k8s.io", "Workload", "workloads", "", namespaced, "", ""},

	{"settings.k8s.io", "PodPreset", "podpresets", "", namespaced, "", ""},

	{"storage.k8s.io", "CSIDriver", "csidrivers", "", cluster, "", ""},
	{"storage.k8s.io", "CSINode", "csinodes", "", cluster, "", ""},
	{"storage.k8s.io", "CSIStorageCapacity", "csistoragecapacities", "", namespaced, "", ""},
	{"storage.k8s.io", "StorageClass", "storageclasses", "sc", cluster, "", ""},
	{"storage.k8s.io", "VolumeAttachment", "volumeattachments", "", cluster, "", ""},
	{"storage.k8s.io", "VolumeAttributesClass", "volumeattributesclasses", "vac", cluster, "", ""},

	{"storagemigration.k8s.io", "StorageVersionMigration", "storageversionmigrations", "", cluster, "", ""},

	// Book-keeping of the apiservers themselves.
	{"", "RangeAllocation", "ranges", "", internal, "", ""},
	{"", "Endpoints", "masterleases", "", internal, "", ""},
	{"", "Endpoints", "peerserverleases", "", internal, "", ""},
}
