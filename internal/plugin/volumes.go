package plugin

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// VolumeReport is one PersistentVolumeClaim.
type VolumeReport struct {
	Name string `json:"name"`
	// Size as requested; Capacity as there is.
	Size         string `json:"size"`
	Capacity     string `json:"capacity,omitempty"`
	StorageClass string `json:"storageClass,omitempty"`
	Phase        string `json:"phase,omitempty"`
	// UsedBy are the pods that mount it.
	UsedBy []string `json:"usedBy,omitempty"`
	// Diverged says that it held data that the primary did not have.
	Diverged bool `json:"diverged,omitempty"`
}

// addVolumes files each volume by what it holds: a member, backups, a member
// that is gone, or something else. Only what a member left is known to be
// expendable.
func (r *Report) addVolumes(volumes []corev1.PersistentVolumeClaim, pods []corev1.Pod) {
	slices.SortFunc(volumes, func(a, b corev1.PersistentVolumeClaim) int { return strings.Compare(a.Name, b.Name) })
	for i := range volumes {
		v := &volumes[i]
		report := volumeReport(v, pods)
		ordinal, current := v.Labels[v1alpha1.LabelMember]
		m := r.findMember(r.Name + "-" + ordinal)
		switch {
		case current && m != nil:
			m.Volume = &report
		case v.Name == r.Name+v1alpha1.SuffixBackups:
			if r.Backups == nil {
				r.Backups = &BackupsReport{}
			}
			r.Backups.Volume = &report
		case r.ofMember(v.Name) && !current:
			r.RetainedVolumes = append(r.RetainedVolumes, report)
		default:
			r.OtherVolumes = append(r.OtherVolumes, report)
		}
	}
}

// ofMember says whether a volume has the name of a member's.
func (r *Report) ofMember(volume string) bool {
	ordinal, named := strings.CutPrefix(volume, "data-"+r.Name+"-")
	_, err := strconv.ParseUint(ordinal, 10, 16)
	return named && err == nil
}

func volumeReport(v *corev1.PersistentVolumeClaim, pods []corev1.Pod) VolumeReport {
	report := VolumeReport{Name: v.Name, Phase: string(v.Status.Phase)}
	if v.DeletionTimestamp != nil {
		report.Phase = "Terminating"
	}
	report.Diverged = v1alpha1.MarkedDiverged(v)
	if size, asked := v.Spec.Resources.Requests[corev1.ResourceStorage]; asked {
		report.Size = size.String()
	}
	if capacity, there := v.Status.Capacity[corev1.ResourceStorage]; there {
		report.Capacity = capacity.String()
	}
	if v.Spec.StorageClassName != nil {
		report.StorageClass = *v.Spec.StorageClassName
	}
	for i := range pods {
		mounts := func(of corev1.Volume) bool {
			return of.PersistentVolumeClaim != nil && of.PersistentVolumeClaim.ClaimName == v.Name
		}
		if running := pods[i].Status.Phase; running != corev1.PodSucceeded && running != corev1.PodFailed && slices.ContainsFunc(pods[i].Spec.Volumes, mounts) {
			report.UsedBy = append(report.UsedBy, pods[i].Name)
		}
	}
	return report
}

func (v VolumeReport) describeVolume() string {
	text := v.Name + " " + v.Size
	if v.Capacity != "" && v.Capacity != v.Size {
		text += " (has " + v.Capacity + ")"
	}
	if v.Phase != "" && v.Phase != "Bound" {
		text += " " + v.Phase
	}
	return text
}

// renderRetainedVolumes are the volumes of members that are gone. Nothing that is in use, or
// that may be the only copy of a write, is offered for deletion.
func (v view) renderRetainedVolumes(r Report) []node {
	var lines []string
	for _, volume := range r.RetainedVolumes {
		remark := "kept: scaling up again uses it again. If its data is not needed: kubectl delete pvc " + volume.Name + " -n " + r.Namespace
		switch {
		case len(volume.UsedBy) > 0:
			remark = "in use by pod " + strings.Join(volume.UsedBy, ", ")
		case volume.Phase == "Terminating":
			remark = "is being deleted"
		case volume.Diverged:
			remark = "kept: it held data that the primary does not have; copy that before you decide what becomes of it"
		}
		lines = append(lines, volume.describeVolume()+v.paintText(dim, "  "+remark))
	}
	return leafNodes(lines)
}

// renderOtherVolumes are volumes that neither a member nor backups use.
func (v view) renderOtherVolumes(volumes []VolumeReport) []node {
	var lines []string
	for _, volume := range volumes {
		text := volume.describeVolume()
		if len(volume.UsedBy) > 0 {
			text += v.paintText(dim, fmt.Sprintf("  in use by pod %s", strings.Join(volume.UsedBy, ", ")))
		}
		lines = append(lines, text)
	}
	return leafNodes(lines)
}
