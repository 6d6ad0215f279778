package controller

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// space is what is known of the room on a cluster's volume for backups, in
// bytes: what it holds, what backups of whatever kind take of it, and what
// another one may need. All is 0 where nothing is known.
type space struct{ holds, taken, needs int64 }

// spaceOf the volume. A file system takes its share of it, and a database grows
// from one backup to the next.
func spaceOf(declared *v1alpha1.ClusterBackup, all, own []*v1alpha1.Backup, claim *corev1.PersistentVolumeClaim) space {
	if declared.Destination != nil || claim == nil {
		return space{}
	}
	size := claim.Status.Capacity[corev1.ResourceStorage]
	s := space{holds: size.Value() - size.Value()/20}
	for _, b := range all {
		if onClaim(b, claim) && b.DeletionTimestamp == nil {
			s.taken += b.Status.Result.Size.Value()
		}
	}
	if newest := newestGood(own); newest != nil {
		s.needs = newest.Status.Result.Size.Value() + newest.Status.Result.Size.Value()/4
	}
	return s
}

// roomOn is the size of a volume, in bytes: as it is, or as it is to be where it
// was never mounted.
func roomOn(claim *corev1.PersistentVolumeClaim) int64 {
	has, asked := claim.Status.Capacity[corev1.ResourceStorage], claim.Spec.Resources.Requests[corev1.ResourceStorage]
	return max(has.Value(), asked.Value())
}

// onClaim says whether a good backup's data is on a volume.
func onClaim(b *v1alpha1.Backup, claim *corev1.PersistentVolumeClaim) bool {
	at := b.Status.Location
	return b.Succeeded() && at != nil && at.ClaimName == claim.Name && at.ClaimUID == string(claim.UID)
}

// short says whether another backup has no room.
func (s space) short() bool { return s.holds > 0 && s.needs > 0 && s.taken+s.needs > s.holds }

// fewest good backups by schedule stay on a volume that is short of room.
const fewest = 2

// room are the oldest good backups by schedule that go before another one is
// made at a slot, where it has no room beside them: first those that would go
// right after it, and then, unless the spec says how many are kept, those that
// retention would still keep, which are early. The newest good one is never
// among them, the newest few are never early, and nothing goes in vain.
func (s space) room(own []*v1alpha1.Backup, c v1alpha1.Cluster, slot time.Time) (drop []*v1alpha1.Backup, early map[string]bool) {
	if !s.short() {
		return nil, nil
	}
	declared, stays := c.Common().Backup, irreplaceable(c)
	good := slices.DeleteFunc(endedRuns(own), func(b *v1alpha1.Backup) bool { return !b.Succeeded() || asPrecaution(b, slot) })
	oldest := slot.Add(-retention(declared.Retention))
	early, exact := map[string]bool{}, declared.Retention != "" || declared.MaxBackups != nil
	for i := len(good) - 1; i > 0 && s.short(); i-- {
		b := good[i]
		kept := !b.CreationTimestamp.Time.Before(oldest) && !overCount(i+2, declared)
		if kept && (exact || i < fewest) {
			return nil, nil
		}
		if kept {
			stays = proven(c)
		}
		if at := b.Status.Location; at != nil && at.ClaimName != "" && b.Name != stays {
			drop, early[b.Name] = append(drop, b), kept
			s.taken -= b.Status.Result.Size.Value()
		}
	}
	if s.short() {
		return nil, nil
	}
	return drop, early
}

// irreplaceable is the one that is proven, while drills fail; else it goes for
// what is newer.
func irreplaceable(c v1alpha1.Cluster) string {
	if d := c.CommonStatus().Drill; d != nil && d.Result == v1alpha1.DrillFailed {
		return proven(c)
	}
	return ""
}

// hint says what to do about a volume that is too small; empty where it is not.
func (s space) hint() string {
	if !s.short() {
		return ""
	}
	in := func(n int64) string { return resource.NewQuantity(n>>20<<20, resource.BinarySI).String() }
	return fmt.Sprintf("; of about %s on the volume backups take %s, and another one may need %s: raise spec.backup.volume.size, or lower spec.backup.retention",
		in(s.holds), in(s.taken), in(s.needs))
}
