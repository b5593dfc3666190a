package columns

// tables are the kinds with columns of their own, by group and kind.
var tables = map[string]table{
	"/Pod": {"Name|Ready|Status|Restarts|Age|*IP|*Node|*Nominated Node|*Readiness Gates", of((*pod).row)},

	"apps/Deployment":         {"Name|Ready|Up-to-date|Available|Age|*Containers|*Images|*Selector", of(deployment)},
	"apps/StatefulSet":        {"Name|Ready|Age|*Containers|*Images", of(statefulSet)},
	"apps/ReplicaSet":         {"Name|Desired|Current|Ready|Age|*Containers|*Images|*Selector", of(replicaSet)},
	"apps/DaemonSet":          {"Name|Desired|Current|Ready|Up-to-date|Available|Node Selector|Age|*Containers|*Images|*Selector", of(daemonSet)},
	"apps/ControllerRevision": {"Name|Controller|Revision|Age", of((*controllerRevision).row)},
	"/ReplicationController":  {"Name|Desired|Current|Ready|Age|*Containers|*Images|*Selector", of((*replicationController).row)},
	"/PodTemplate":            {"Name|Containers|Images|Pod Labels", of((*podTemplate).row)},

	"batch/Job":     {"Name|Status|Completions|Duration|Age|*Containers|*Images|*Selector", of((*job).row)},
	"batch/CronJob": {"Name|Schedule|Timezone|Suspend|Active|Last Schedule|Age|*Containers|*Images|*Selector", of((*cronJob).row)},

	"autoscaling/HorizontalPodAutoscaler": {"Name|Reference|Targets|MinPods|MaxPods|Replicas|Age", of((*autoscaler).row)},
	"policy/PodDisruptionBudget":          {"Name|Min Available|Max Unavailable|Allowed Disruptions|Age", of((*disruptionBudget).row)},

	"/Service":                       {"Name|Type|Cluster-IP|External-IP|Port(s)|Age|*Selector", of((*service).row)},
	"/Endpoints":                     {"Name|Endpoints|Age", of((*endpoints).row)},
	"discovery.k8s.io/EndpointSlice": {"Name|AddressType|Ports|Endpoints|Age", of((*endpointSlice).row)},
	"networking.k8s.io/Ingress":      {"Name|Class|Hosts|Address|Ports|Age", of((*ingress).row)},
	"networking.k8s.io/IngressClass": {"Name|Controller|Parameters|Age", of((*ingressClass).row)},

	"networking.k8s.io/NetworkPolicy": {"Name|Pod-Selector|Age", of((*networkPolicy).row)},
	"networking.k8s.io/ServiceCIDR":   {"Name|CIDRs|Age", of((*serviceCIDR).row)},
	"networking.k8s.io/IPAddress":     {"Name|ParentRef", of((*ipAddress).row)},

	"/PersistentVolume":      {"Name|Capacity|Access Modes|Reclaim Policy|Status|Claim|StorageClass|VolumeAttributesClass|Reason|Age|*VolumeMode", of((*volume).row)},
	"/PersistentVolumeClaim": {"Name|Status|Volume|Capacity|Access Modes|StorageClass|VolumeAttributesClass|Age|*VolumeMode", of((*claim).row)},

	"storage.k8s.io/StorageClass":          {"Name|Provisioner|ReclaimPolicy|VolumeBindingMode|AllowVolumeExpansion|Age", of((*storageClass).row)},
	"storage.k8s.io/VolumeAttributesClass": {"Name|DriverName|Age", of((*volumeAttributesClass).row)},
	"storage.k8s.io/VolumeAttachment":      {"Name|Attacher|PV|Node|Attached|Age", of((*volumeAttachment).row)},
	"storage.k8s.io/CSINode":               {"Name|Drivers|Age", of((*csiNode).row)},
	"storage.k8s.io/CSIDriver":             {"Name|AttachRequired|PodInfoOnMount|StorageCapacity|TokenRequests|RequiresRepublish|Modes|Age", of((*csiDriver).row)},
	"storage.k8s.io/CSIStorageCapacity":    {"Name|StorageClassName|Capacity", of((*csiStorageCapacity).row)},

	"/Namespace":      {"Name|Status|Age", of((*namespace).row)},
	"/Node":           {"Name|Status|Roles|Age|Version|*Internal-IP|*External-IP|*OS-Image|*Kernel-Version|*Container-Runtime", of((*node).row)},
	"/Event":          {"Last Seen|Type|Reason|Object|*Subobject|*Source|Message|*First Seen|*Count|*Name", of((*event).row)},
	"/Secret":         {"Name|Type|Data|Age", of((*secret).row)},
	"/ConfigMap":      {"Name|Data|Age", of((*configMap).row)},
	"/ServiceAccount": {"Name|Age", of((*named).row)},
	"/ResourceQuota":  {"Name|Request|Limit|Age", of((*quota).row)},

	"coordination.k8s.io/Lease":          {"Name|Holder|Age", of((*lease).row)},
	"coordination.k8s.io/LeaseCandidate": {"Name|LeaseName|BinaryVersion|EmulationVersion|Age", of((*lease).candidate)},

	"rbac.authorization.k8s.io/RoleBinding":        {"Name|Role|Age|*Users|*Groups|*ServiceAccounts", of((*roleBinding).row)},
	"rbac.authorization.k8s.io/ClusterRoleBinding": {"Name|Role|Age|*Users|*Groups|*ServiceAccounts", of((*roleBinding).row)},

	"certificates.k8s.io/CertificateSigningRequest": {"Name|Age|SignerName|Requestor|RequestedDuration|Condition", of((*signingRequest).row)},
	"certificates.k8s.io/ClusterTrustBundle":        {"Name|SignerName", of((*signingRequest).bundle)},

	"scheduling.k8s.io/PriorityClass": {"Name|Value|Global-Default|Age|PreemptionPolicy", of((*priorityClass).row)},
	"node.k8s.io/RuntimeClass":        {"Name|Handler|Age", of((*runtimeClass).row)},

	"admissionregistration.k8s.io/MutatingWebhookConfiguration":   {"Name|Webhooks|Age", of((*webhooks).row)},
	"admissionregistration.k8s.io/ValidatingWebhookConfiguration": {"Name|Webhooks|Age", of((*webhooks).row)},
	"admissionregistration.k8s.io/ValidatingAdmissionPolicy":      {"Name|Validations|ParamKind|Age", of((*admissionPolicy).row)},
	"admissionregistration.k8s.io/MutatingAdmissionPolicy":        {"Name|Mutations|ParamKind|Age", of((*admissionPolicy).row)},

	"flowcontrol.apiserver.k8s.io/FlowSchema":                 {"Name|PriorityLevel|MatchingPrecedence|DistinguisherMethod|Age|MissingPL", of((*flowSchema).row)},
	"flowcontrol.apiserver.k8s.io/PriorityLevelConfiguration": {"Name|Type|NominalConcurrencyShares|Queues|HandSize|QueueLengthLimit|Age", of((*priorityLevel).row)},

	"apiregistration.k8s.io/APIService": {"Name|Service|Available|Age", of((*apiService).row)},

	"resource.k8s.io/DeviceClass":           {"Name|Age", of((*named).row)},
	"resource.k8s.io/ResourceClaim":         {"Name|State|Age", of((*resourceClaim).row)},
	"resource.k8s.io/ResourceClaimTemplate": {"Name|Age", of((*named).row)},
	"resource.k8s.io/ResourceSlice":         {"Name|Node|Driver|Pool|Age", of((*resourceSlice).row)},
}
