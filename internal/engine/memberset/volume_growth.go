package memberset

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

const mebibyte = 1 << 20

// memberVolume is a member's claim, and what its agent says of the volume.
type memberVolume struct {
	live *corev1.PersistentVolumeClaim
	// said is nil while the agent is silent.
	status *agentapi.Status
	// expandable says whether its storage class lets it grow.
	expandable bool
}

// growth is how large members' volumes should be. It is worked out from the
// claims alone, which remember how far volumes grew.
type growth struct {
	// size of every member's volume, or more where one is larger already.
	size resource.Quantity
	// itself says that volumes grow by themselves at all.
	itself bool
	// why the volumes grow now; empty when they do not.
	why string
	// stuck says by ordinal why a volume that should grow cannot, in facts of
	// Degraded.
	stuck map[int]condition.Fact
}

// planGrowth of the volumes of the members that there are.
func planGrowth(s objects.Set, o Observation) growth {
	volumes := map[int]memberVolume{}
	for n, live := range o.Volumes {
		if live.Labels[v1alpha1.LabelMember] == strconv.Itoa(n) {
			volumes[n] = memberVolume{live: live, status: o.Member(n), expandable: isGrowable(o, className(live))}
		}
	}
	return growVolumes(s.Storage, s.Cluster.Common().Suspend, volumes)
}

// growVolumes says how large the volumes should be. They grow together, and only by
// what members say: one that is silent asks for nothing, nor does one whose
// volume is about to have more space. It holds up no other: it may wait for a
// node that is gone, while the primary's volume fills.
func growVolumes(storage v1alpha1.StorageSpec, suspended bool, volumes map[int]memberVolume) growth {
	g := growth{size: storage.Size, stuck: map[int]condition.Fact{}}
	if storage.AutoGrow == nil {
		return g
	}
	auto := growthRules(storage)
	g.itself = true
	for _, v := range volumes {
		g.size = maxQuantity(g.size, v.requestedSize())
	}
	g.size = minQuantity(g.size, auto.MaxSize)
	var due []int
	target := g.size.Value() + g.size.Value()/100*int64(auto.StepPercent)
	for _, n := range slices.Sorted(maps.Keys(volumes)) {
		if least, isDue := volumes[n].requiredSize(auto); isDue && !volumes[n].isResizing(g.size) {
			due, target = append(due, n), max(target, least)
		}
	}
	for _, n := range due {
		switch reason, message := volumes[n].findHindrance(auto, suspended, g.size); {
		case reason != "" && !volumes[n].isFilled(auto) && !volumes[n].lacksSpace(volumes[n].neededSpace()):
			// It fills fast and has space still: a rate comes and goes.
		case reason != "":
			g.stuck[n] = condition.Fact{Type: v1alpha1.ConditionDegraded, Status: metav1.ConditionTrue, Reason: reason, Ordinal: n,
				Message: volumes[n].describeFill(auto) + message}
		case g.why == "":
			g.why = volumes[n].describeFill(auto)
		}
	}
	if g.why != "" {
		mebibytes := (target + mebibyte - 1) / mebibyte
		g.size = minQuantity(*resource.NewQuantity(mebibytes*mebibyte, resource.BinarySI), auto.MaxSize)
	}
	return g
}

// describeHold says of a member that waits for disk space what becomes of it, and whether
// it is repaired without a person.
func (g growth) describeHold(ordinal int, m *agentapi.Status) (message string, repairs bool) {
	stuck, isStuck := g.stuck[ordinal]
	switch {
	case m.Hold != agentapi.HoldVolumeFull || !isStuck && (!g.itself || m.VolumeSize <= 0):
		return m.Message, false
	case isStuck:
		return stuck.Message, false
	}
	return "waits for its volume to grow by itself", true
}

// describeDiskSpace says what gives disk space to a member that runs on a full volume, and whether
// that comes without a person.
func (g growth) describeDiskSpace(ordinal int) (remedy string, grows bool) {
	stuck, isStuck := g.stuck[ordinal]
	switch {
	case isStuck:
		return stuck.Message, false
	case g.itself:
		return "it grows by itself, as spec.storage.autoGrow asks for", true
	}
	return "set spec.storage.size to more, let volumes grow by themselves with spec.storage.autoGrow.maxSize, or remove data", false
}

// growthRules are spec.storage.autoGrow with the schema's defaults. Its
// maximum is never less than the declared size.
func growthRules(storage v1alpha1.StorageSpec) v1alpha1.AutoGrowSpec {
	auto := *storage.AutoGrow
	auto.MaxSize = maxQuantity(auto.MaxSize, storage.Size)
	if auto.ThresholdPercent == 0 {
		auto.ThresholdPercent = 80
	}
	if auto.StepPercent == 0 {
		auto.StepPercent = 20
	}
	return auto
}

// findHindrance says why a volume that is due cannot grow.
func (v memberVolume) findHindrance(auto v1alpha1.AutoGrowSpec, suspended bool, size resource.Quantity) (reason, message string) {
	switch {
	case v.isUnbounded():
		return v1alpha1.ReasonStorageUnbounded, fmt.Sprintf(
			", and its file system is not limited to the volume's %s: growing it gives no disk space. Free space on what it shares, or use a storage class that limits volumes", formatQuantity(v.volumeCapacity()))
	case suspended:
		return v1alpha1.ReasonSuspended, ", and does not grow while the cluster is suspended: set spec.suspend to false"
	case !v.expandable:
		return v1alpha1.ReasonStorageNotExpandable, fmt.Sprintf(
			", and its storage class %q does not allow it to grow: set allowVolumeExpansion on the class, or remove data", className(v.live))
	case size.Cmp(auto.MaxSize) >= 0:
		return v1alpha1.ReasonStorageAtMaximum, fmt.Sprintf(
			", and has reached spec.storage.autoGrow.maxSize %s: set it to %s or more, or remove data", auto.MaxSize.String(), v.nextSize(auto, size))
	}
	return "", ""
}

// nextSize is the size of the next growth, for people.
func (v memberVolume) nextSize(auto v1alpha1.AutoGrowSpec, size resource.Quantity) string {
	least, _ := v.requiredSize(auto)
	next := max(least, size.Value()+size.Value()/100*int64(auto.StepPercent))
	return formatQuantity(resource.NewQuantity((next+mebibyte-1)/mebibyte*mebibyte, resource.BinarySI))
}

func formatQuantity(q *resource.Quantity) string { return q.String() }

// describeFill says of a volume that is due why it is, without numbers that move.
func (v memberVolume) describeFill(auto v1alpha1.AutoGrowSpec) string {
	if needs := v.neededSpace(); v.lacksSpace(needs) {
		return fmt.Sprintf("volume %s lacks the %s of disk space that its member needs to go on", v.live.Name, formatQuantity(resource.NewQuantity(needs, resource.BinarySI)))
	}
	if !v.isFilled(auto) {
		return fmt.Sprintf("volume %s would be full within %d minutes at the rate at which it fills", v.live.Name, int(agentapi.GrowthLead.Minutes()))
	}
	return fmt.Sprintf("volume %s is filled to %d %% or more", v.live.Name, auto.ThresholdPercent)
}

// requiredSize says whether a volume should grow, and to how many bytes at least.
func (v memberVolume) requiredSize(auto v1alpha1.AutoGrowSpec) (least int64, due bool) {
	if v.status == nil || v.status.VolumeSize <= 0 {
		return 0, false
	}
	if needs := v.neededSpace(); v.lacksSpace(needs) {
		return claimFor(v.status.VolumeUsed + needs), true
	}
	return v.anticipatedSize(), v.isFilled(auto) || v.fillsSoon()
}

// isFilled says whether the volume is filled to the threshold.
func (v memberVolume) isFilled(auto v1alpha1.AutoGrowSpec) bool {
	return v.status.VolumeUsed*100 >= v.fileSystem()*int64(auto.ThresholdPercent)
}

// estimateWritten is what is written to the volume while it grows, at the rate that its
// member reports. What a copy of the data writes ends with the copy.
func (v memberVolume) estimateWritten() int64 {
	if !v.status.Serving {
		return 0
	}
	return v.status.VolumeRate * int64(agentapi.GrowthLead/time.Second)
}

// fillsSoon says whether the volume would be full before it has grown.
func (v memberVolume) fillsSoon() bool {
	written := v.estimateWritten()
	return written > 0 && v.status.VolumeUsed+written >= v.fileSystem()
}

// anticipatedSize is the capacity that lasts for two growths at the rate at which the volume
// fills: at most twice what it has, for no rate lasts for ever. 0 where it does not
// fill soon.
func (v memberVolume) anticipatedSize() int64 {
	if !v.fillsSoon() {
		return 0
	}
	return min(claimFor(v.status.VolumeUsed+2*v.estimateWritten()), 2*v.volumeCapacity().Value())
}

// lacksSpace says whether the volume has less disk space than so much.
func (v memberVolume) lacksSpace(bytes int64) bool {
	return bytes > 0 && v.status.VolumeUsed+bytes > v.fileSystem()
}

// neededSpace is the disk space that a member asks for which waits for it, in bytes.
func (v memberVolume) neededSpace() int64 {
	if v.status == nil || v.status.State != agentapi.StateHeld || v.status.Hold != agentapi.HoldVolumeFull {
		return 0
	}
	return v.status.DiskSpaceNeeded
}

// What a file system keeps of its volume for itself, at most: a tenth and a
// journal.
const (
	keptTenth   = 10
	keptJournal = 64 * mebibyte
)

// fileSystem is the size of the file system by what its member says, and at
// least what the claim's capacity makes of it: what a member said before its
// volume grew must not make it grow again.
func (v memberVolume) fileSystem() int64 {
	capacity := v.volumeCapacity().Value()
	return max(v.status.VolumeSize, capacity-capacity/keptTenth-keptJournal)
}

// claimFor is the capacity whose file system has at least the size.
func claimFor(size int64) int64 {
	return (size+keptJournal)/(keptTenth-1)*keptTenth + keptTenth
}

// isUnbounded says that the claim does not limit the file system: growing it
// changes nothing. A class that hands out folders of one disk is such a one.
func (v memberVolume) isUnbounded() bool { return v.status.VolumeSize > 2*v.volumeCapacity().Value() }

// requestedSize is the size that the claim asks for.
func (v memberVolume) requestedSize() resource.Quantity {
	return v.live.Spec.Resources.Requests[corev1.ResourceStorage]
}

// volumeCapacity that the volume has, or will have while it is being made.
func (v memberVolume) volumeCapacity() *resource.Quantity {
	has, known := v.live.Status.Capacity[corev1.ResourceStorage]
	if !known {
		has = v.requestedSize()
	}
	return &has
}

// isResizing says whether the volume is on its way to a size.
func (v memberVolume) isResizing(size resource.Quantity) bool {
	asked := v.requestedSize()
	return asked.Cmp(*v.volumeCapacity()) > 0 || asked.Cmp(size) < 0 && v.expandable
}

func className(v *corev1.PersistentVolumeClaim) string {
	if v.Spec.StorageClassName == nil {
		return ""
	}
	return *v.Spec.StorageClassName
}

func maxQuantity(a, b resource.Quantity) resource.Quantity {
	if a.Cmp(b) < 0 {
		return b
	}
	return a
}

func minQuantity(a, b resource.Quantity) resource.Quantity {
	if a.Cmp(b) > 0 {
		return b
	}
	return a
}

// GrowthNotes tell of every volume that is about to grow.
func (view *View) GrowthNotes() []engine.Note {
	var notes []engine.Note
	for _, v := range view.Desired.Volumes {
		live := view.Observed.Volumes[v.Ordinal]
		if !v.Member || live == nil {
			continue
		}
		asked := live.Spec.Resources.Requests[corev1.ResourceStorage]
		if v.Size.Cmp(asked) <= 0 {
			continue
		}
		why := "so that all members have as much disk space"
		if g := view.growth; g.why != "" {
			why = "since " + g.why
		} else if v.Size.Cmp(view.Storage.Size) == 0 {
			why = "as spec.storage.size asks for"
		}
		notes = append(notes, engine.Note{Kind: "PersistentVolumeClaim", Name: live.Name, Reason: v1alpha1.ReasonVolumeGrows, Action: "Grow",
			Message: fmt.Sprintf("volume %s grows from %s to %s, %s", live.Name, asked.String(), v.Size.String(), why)})
	}
	return notes
}
