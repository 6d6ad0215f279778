package backups

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// diskSpace is what is known of a cluster's volume for backups, in bytes: what it
// holds, what backups of any kind take of it, and what another one may need. All
// is 0 where nothing is known.
type diskSpace struct{ holds, taken, needs int64 }

// measureDiskSpace reads the sizes of the volume and of what is on it. A file system
// takes its share, and a database grows from one backup to the next.
func measureDiskSpace(declared *v1alpha1.ClusterBackup, all, own []*v1alpha1.Backup, claim *corev1.PersistentVolumeClaim) diskSpace {
	if declared.Destination != nil || claim == nil {
		return diskSpace{}
	}
	size := claim.Status.Capacity[corev1.ResourceStorage]
	s := diskSpace{holds: size.Value() - size.Value()/20}
	for _, b := range all {
		if isOnClaim(b, claim) && b.DeletionTimestamp == nil {
			s.taken += b.Status.Result.Size.Value()
		}
	}
	if newest := FindNewestGood(own); newest != nil {
		s.needs = newest.Status.Result.Size.Value() + newest.Status.Result.Size.Value()/4
	}
	return s
}

// VolumeSize is the size of a volume in bytes; its requested size before it was ever
// mounted.
func VolumeSize(claim *corev1.PersistentVolumeClaim) int64 {
	has, asked := claim.Status.Capacity[corev1.ResourceStorage], claim.Spec.Resources.Requests[corev1.ResourceStorage]
	return max(has.Value(), asked.Value())
}

// isOnClaim says whether a good backup's data is on a volume.
func isOnClaim(b *v1alpha1.Backup, claim *corev1.PersistentVolumeClaim) bool {
	at := b.Status.Location
	return b.HasSucceeded() && at != nil && at.ClaimName == claim.Name && at.ClaimUID == string(claim.UID)
}

// isShort says whether there is no disk space for another backup.
func (s diskSpace) isShort() bool { return s.holds > 0 && s.needs > 0 && s.taken+s.needs > s.holds }

// minKept good backups by schedule stay on a volume that is short of disk space.
const minKept = 2

// planEarlyRemoval are the oldest good backups by schedule that go before another one is
// made at a slot, where the volume has no space for it beside them: first those that would go
// right after it, and then, unless the spec says how many are kept, those that
// retention would still keep, which are early. The newest good one is never
// among them, the newest few are never early, and nothing goes in vain.
func (s diskSpace) planEarlyRemoval(own []*v1alpha1.Backup, c v1alpha1.Cluster, slot time.Time) (drop []*v1alpha1.Backup, early map[string]bool) {
	if !s.isShort() {
		return nil, nil
	}
	declared, stays := c.Common().Backup, findIrreplaceable(c)
	good := slices.DeleteFunc(ListEndedRuns(own), func(b *v1alpha1.Backup) bool { return !b.HasSucceeded() || isPrecaution(b, slot) })
	oldest := slot.Add(-parseRetention(declared.Retention))
	early, exact := map[string]bool{}, declared.Retention != "" || declared.MaxBackups != nil
	for i := len(good) - 1; i > 0 && s.isShort(); i-- {
		b := good[i]
		kept := !b.CreationTimestamp.Time.Before(oldest) && !exceedsCount(i+2, declared)
		if kept && (exact || i < minKept) {
			return nil, nil
		}
		if kept {
			stays = findProven(c)
		}
		if at := b.Status.Location; at != nil && at.ClaimName != "" && b.Name != stays {
			drop, early[b.Name] = append(drop, b), kept
			s.taken -= b.Status.Result.Size.Value()
		}
	}
	if s.isShort() {
		return nil, nil
	}
	return drop, early
}

// findIrreplaceable is the one that is proven, while drills fail; else it goes for
// what is newer.
func findIrreplaceable(c v1alpha1.Cluster) string {
	if d := c.CommonStatus().Drill; d != nil && d.Result == v1alpha1.DrillFailed {
		return findProven(c)
	}
	return ""
}

// describeShortage says what to do about a volume that is too small; empty where it
// is large enough.
func (s diskSpace) describeShortage() string {
	if !s.isShort() {
		return ""
	}
	in := func(n int64) string { return resource.NewQuantity(n>>20<<20, resource.BinarySI).String() }
	return fmt.Sprintf("; of about %s on the volume backups take %s, and another one may need %s: raise spec.backup.volume.size, or lower spec.backup.retention",
		in(s.holds), in(s.taken), in(s.needs))
}
