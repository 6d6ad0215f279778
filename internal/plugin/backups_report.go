package plugin

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// BackupsReport is what there is to restore from.
type BackupsReport struct {
	// Newest good backup, and when the next is due by schedule.
	Newest *v1alpha1.LastBackup `json:"newest,omitempty"`
	Next   *metav1.Time         `json:"next,omitempty"`
	// Drill is the last restore on trial.
	Drill *v1alpha1.DrillStatus `json:"drill,omitempty"`
	// Volume that backups are kept on; nil where they go to a store.
	Volume *VolumeReport `json:"volume,omitempty"`
	// Off says that spec.backup turns backups off.
	Off bool `json:"off,omitempty"`
}

// addBackups takes up what status says of backups.
func (r *Report) addBackups(c v1alpha1.Cluster) {
	st := c.CommonStatus()
	r.Backups = &BackupsReport{Newest: st.LastBackup, Next: st.NextBackup, Drill: st.Drill, Off: !c.Common().Backup.IsEnabled()}
}

// renderBackups are the newest one, the newest drill, and the volume that they are on.
func (v view) renderBackups(b *BackupsReport) []node {
	if b == nil {
		return nil
	}
	newest := v.paintText(yellow, "none yet")
	switch {
	case b.Newest != nil:
		newest = fmt.Sprintf("%s, begun %s ago", b.Newest.Name, v.formatAge(b.Newest.Time))
	case b.Off:
		newest = v.paintText(yellow, "none: spec.backup.enabled is false")
	}
	lines := []string{"newest  " + newest}
	if b.Next != nil {
		lines = append(lines, "next    "+b.Next.UTC().Format("2006-01-02 15:04 UTC"))
	}
	if text := v.describeDrill(b.Drill); text != "" {
		lines = append(lines, "drill   "+text)
	}
	if b.Volume != nil {
		lines = append(lines, "volume  "+b.Volume.describeVolume()+v.paintText(dim, "  holds the backups"))
	}
	return leafNodes(lines)
}

// describeDrill is how the last restore on trial ended.
func (v view) describeDrill(d *v1alpha1.DrillStatus) string {
	switch {
	case d == nil:
		return ""
	case d.Running != nil:
		return fmt.Sprintf("%s is being restored on trial, for %s", d.Running.Backup, v.formatAge(d.Running.StartTime))
	case d.LastTime == nil:
		return "none yet"
	case d.Result == v1alpha1.DrillFailed:
		return v.paintText(red, fmt.Sprintf("failed %s ago with %s: %s", v.formatAge(*d.LastTime), d.Backup, d.Message))
	}
	return fmt.Sprintf("passed %s ago with %s, in %s", v.formatAge(*d.LastTime), d.Backup, d.Duration)
}
