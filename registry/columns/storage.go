package columns

import (
	"slices"
	"strings"
	"time"
)

// classAnnotation named the storage class before there was a field for it.
const classAnnotation = "volume.beta.kubernetes.io/storage-class"

// modes abbreviates access modes, in a fixed order.
func modes(list []string) string {
	var out []string
	for _, m := range [][2]string{{"ReadWriteOnce", "RWO"}, {"ReadOnlyMany", "ROX"}, {"ReadWriteMany", "RWX"}, {"ReadWriteOncePod", "RWOP"}} {
		if slices.Contains(list, m[0]) {
			out = append(out, m[1])
		}
	}
	return strings.Join(out, ",")
}

// size is the storage of a list of quantities.
func size(quantities map[string]any) any {
	if q, ok := quantities["storage"]; ok && q != nil {
		return q
	}
	return "0"
}

type volume struct {
	Metadata meta
	Spec     struct {
		Capacity                                        map[string]any
		AccessModes                                     []string
		PersistentVolumeReclaimPolicy, StorageClassName string
		ClaimRef                                        *struct{ Namespace, Name string }
		VolumeAttributesClassName, VolumeMode           *string
	}
	Status struct{ Phase, Reason string }
}

func (v *volume) row(now time.Time) []any {
	phase := or(v.Status.Phase, "Pending")
	if v.Metadata.DeletionTimestamp != "" {
		phase = "Terminating"
	}
	claim := ""
	if c := v.Spec.ClaimRef; c != nil {
		claim = c.Namespace + "/" + c.Name
	}
	class, ok := v.Metadata.Annotations[classAnnotation]
	if !ok {
		class = v.Spec.StorageClassName
	}
	return []any{
		v.Metadata.Name, size(v.Spec.Capacity), modes(v.Spec.AccessModes), or(v.Spec.PersistentVolumeReclaimPolicy, "Retain"), phase, claim, class,
		deref(v.Spec.VolumeAttributesClassName, "<unset>"), v.Status.Reason, since(now, v.Metadata.CreationTimestamp), value(v.Spec.VolumeMode, "Filesystem"),
	}
}

type claim struct {
	Metadata meta
	Spec     struct {
		VolumeName                                              string
		StorageClassName, VolumeAttributesClassName, VolumeMode *string
	}
	Status struct {
		Phase       string
		AccessModes []string
		Capacity    map[string]any
	}
}

func (c *claim) row(now time.Time) []any {
	phase := or(c.Status.Phase, "Pending")
	if c.Metadata.DeletionTimestamp != "" {
		phase = "Terminating"
	}
	var capacity any = ""
	access := ""
	if c.Spec.VolumeName != "" { // before it is bound, only wishes are known
		capacity, access = size(c.Status.Capacity), modes(c.Status.AccessModes)
	}
	class, ok := c.Metadata.Annotations[classAnnotation]
	if !ok {
		class = value(c.Spec.StorageClassName, "")
	}
	return []any{
		c.Metadata.Name, phase, c.Spec.VolumeName, capacity, access, class, deref(c.Spec.VolumeAttributesClassName, "<unset>"),
		since(now, c.Metadata.CreationTimestamp), value(c.Spec.VolumeMode, "Filesystem"),
	}
}

type storageClass struct {
	Metadata                         meta
	Provisioner                      string
	ReclaimPolicy, VolumeBindingMode *string
	AllowVolumeExpansion             bool
}

// row marks every class that asks to be the default; of several, kubectl marks the
// newest, which one object does not tell.
func (s *storageClass) row(now time.Time) []any {
	name := s.Metadata.Name
	for _, a := range []string{"storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"} {
		if s.Metadata.Annotations[a] == "true" {
			name = s.Metadata.Name + " (default)"
		}
	}
	return []any{
		name, s.Provisioner, value(s.ReclaimPolicy, "Delete"), value(s.VolumeBindingMode, "Immediate"), s.AllowVolumeExpansion,
		since(now, s.Metadata.CreationTimestamp),
	}
}

type volumeAttributesClass struct {
	Metadata   meta
	DriverName string
}

func (v *volumeAttributesClass) row(now time.Time) []any {
	return []any{v.Metadata.Name, v.DriverName, since(now, v.Metadata.CreationTimestamp)}
}

type volumeAttachment struct {
	Metadata meta
	Spec     struct {
		Attacher, NodeName string
		Source             struct{ PersistentVolumeName string }
	}
	Status struct{ Attached bool }
}

func (v *volumeAttachment) row(now time.Time) []any {
	return []any{v.Metadata.Name, v.Spec.Attacher, v.Spec.Source.PersistentVolumeName, v.Spec.NodeName, v.Status.Attached, since(now, v.Metadata.CreationTimestamp)}
}

type csiNode struct {
	Metadata meta
	Spec     struct{ Drivers []struct{} }
}

func (c *csiNode) row(now time.Time) []any {
	return []any{c.Metadata.Name, len(c.Spec.Drivers), since(now, c.Metadata.CreationTimestamp)}
}

type csiDriver struct {
	Metadata meta
	Spec     struct {
		AttachRequired                                     *bool
		PodInfoOnMount, StorageCapacity, RequiresRepublish bool
		VolumeLifecycleModes                               []string
		TokenRequests                                      []struct{ Audience string }
	}
}

func (c *csiDriver) row(now time.Time) []any {
	tokens := "<unset>"
	if c.Spec.TokenRequests != nil {
		var list []string
		for _, t := range c.Spec.TokenRequests {
			list = append(list, t.Audience)
		}
		tokens = strings.Join(list, ",")
	}
	return []any{
		c.Metadata.Name, value(c.Spec.AttachRequired, true), c.Spec.PodInfoOnMount, c.Spec.StorageCapacity, tokens, c.Spec.RequiresRepublish,
		or(strings.Join(c.Spec.VolumeLifecycleModes, ","), "Persistent"), since(now, c.Metadata.CreationTimestamp),
	}
}

type csiStorageCapacity struct {
	Metadata         meta
	StorageClassName string
	Capacity         *string
}

func (c *csiStorageCapacity) row(time.Time) []any {
	return []any{c.Metadata.Name, c.StorageClassName, deref(c.Capacity, "<unset>")}
}
