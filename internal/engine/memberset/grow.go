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
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/memberapi"
)

const mebibyte = 1 << 20

// memberVolume is a member's claim, and what its agent says of the volume.
type memberVolume struct {
	live *corev1.PersistentVolumeClaim
	// said is nil while the agent is silent.
	said *memberapi.Status
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

// growth of the volumes of the members that there are.
func (s Set) growth(o Observation) growth {
	volumes := map[int]memberVolume{}
	for n, live := range o.Volumes {
		if live.Labels[v1alpha1.LabelMember] == strconv.Itoa(n) {
			volumes[n] = memberVolume{live: live, said: o.Member(n), expandable: growable(o, className(live))}
		}
	}
	return grow(s.Storage, s.Cluster.Common().Suspend, volumes)
}

// grow says how large the volumes should be. They grow together, and only by
// what members say: one that is silent asks for nothing, nor does one whose
// volume is about to have more room. It holds up no other: it may wait for a
// node that is gone, while the primary's volume fills.
func grow(storage v1alpha1.StorageSpec, suspended bool, volumes map[int]memberVolume) growth {
	g := growth{size: storage.Size, stuck: map[int]condition.Fact{}}
	if storage.AutoGrow == nil {
		return g
	}
	auto := growthRules(storage)
	g.itself = true
	for _, v := range volumes {
		g.size = larger(g.size, v.asked())
	}
	g.size = smaller(g.size, auto.MaxSize)
	var due []int
	target := g.size.Value() + g.size.Value()/100*int64(auto.StepPercent)
	for _, n := range slices.Sorted(maps.Keys(volumes)) {
		if least, isDue := volumes[n].due(auto); isDue && !volumes[n].resizing(g.size) {
			due, target = append(due, n), max(target, least)
		}
	}
	for _, n := range due {
		switch reason, message := volumes[n].hindered(auto, suspended, g.size); {
		case reason != "" && !volumes[n].filled(auto) && !volumes[n].lacks(volumes[n].needs()):
			// It fills fast and has room still: a rate comes and goes.
		case reason != "":
			g.stuck[n] = condition.Fact{Type: v1alpha1.ConditionDegraded, Status: metav1.ConditionTrue, Reason: reason,
				Message: volumes[n].full(auto) + message}
		case g.why == "":
			g.why = volumes[n].full(auto)
		}
	}
	if g.why != "" {
		mebibytes := (target + mebibyte - 1) / mebibyte
		g.size = smaller(*resource.NewQuantity(mebibytes*mebibyte, resource.BinarySI), auto.MaxSize)
	}
	return g
}

// held says of a member that waits for room what becomes of it, and whether
// it is mended without a person.
func (g growth) held(ordinal int, m *memberapi.Status) (message string, mends bool) {
	stuck, isStuck := g.stuck[ordinal]
	switch {
	case m.Hold != memberapi.HoldVolumeFull || !isStuck && (!g.itself || m.VolumeSize <= 0):
		return m.Message, false
	case isStuck:
		return stuck.Message, false
	}
	return "waits for its volume to grow by itself", true
}

// roomFor says what gives room to a member that runs on a full volume, and whether
// that comes without a person.
func (g growth) roomFor(ordinal int) (remedy string, grows bool) {
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
	auto.MaxSize = larger(auto.MaxSize, storage.Size)
	if auto.ThresholdPercent == 0 {
		auto.ThresholdPercent = 80
	}
	if auto.StepPercent == 0 {
		auto.StepPercent = 20
	}
	return auto
}

// hindered says why a volume that is due cannot grow.
func (v memberVolume) hindered(auto v1alpha1.AutoGrowSpec, suspended bool, size resource.Quantity) (reason, message string) {
	switch {
	case v.unbounded():
		return v1alpha1.ReasonStorageUnbounded, fmt.Sprintf(
			", and its file system is not limited to the volume's %s: growing it gives no room. Make room on what it shares, or use a storage class that limits volumes", quantity(v.capacity()))
	case suspended:
		return v1alpha1.ReasonSuspended, ", and does not grow while the cluster is suspended: set spec.suspend to false"
	case !v.expandable:
		return v1alpha1.ReasonStorageNotExpandable, fmt.Sprintf(
			", and its storage class %q does not allow it to grow: set allowVolumeExpansion on the class, or remove data", className(v.live))
	case size.Cmp(auto.MaxSize) >= 0:
		return v1alpha1.ReasonStorageAtMaximum, fmt.Sprintf(
			", and has reached spec.storage.autoGrow.maxSize %s: set it to %s or more, or remove data", auto.MaxSize.String(), v.wants(auto, size))
	}
	return "", ""
}

// wants is the size of the next growth, for people.
func (v memberVolume) wants(auto v1alpha1.AutoGrowSpec, size resource.Quantity) string {
	least, _ := v.due(auto)
	next := max(least, size.Value()+size.Value()/100*int64(auto.StepPercent))
	return quantity(resource.NewQuantity((next+mebibyte-1)/mebibyte*mebibyte, resource.BinarySI))
}

func quantity(q *resource.Quantity) string { return q.String() }

// full says of a volume that is due why it is, without numbers that move.
func (v memberVolume) full(auto v1alpha1.AutoGrowSpec) string {
	if needs := v.needs(); v.lacks(needs) {
		return fmt.Sprintf("volume %s lacks the %s of room that its member needs to go on", v.live.Name, quantity(resource.NewQuantity(needs, resource.BinarySI)))
	}
	if !v.filled(auto) {
		return fmt.Sprintf("volume %s would be full within %d minutes at the rate at which it fills", v.live.Name, int(memberapi.GrowthLead.Minutes()))
	}
	return fmt.Sprintf("volume %s is filled to %d %% or more", v.live.Name, auto.ThresholdPercent)
}

// due says whether a volume should grow, and to how many bytes at least.
func (v memberVolume) due(auto v1alpha1.AutoGrowSpec) (least int64, due bool) {
	if v.said == nil || v.said.VolumeSize <= 0 {
		return 0, false
	}
	if needs := v.needs(); v.lacks(needs) {
		return claimFor(v.said.VolumeUsed + needs), true
	}
	return v.ahead(), v.filled(auto) || v.fillsSoon()
}

// filled says whether the volume is filled to the threshold.
func (v memberVolume) filled(auto v1alpha1.AutoGrowSpec) bool {
	return v.said.VolumeUsed*100 >= v.fileSystem()*int64(auto.ThresholdPercent)
}

// written is what is written to the volume while it grows, at the rate that its
// member reports. What a copy of the data writes ends with the copy.
func (v memberVolume) written() int64 {
	if !v.said.Serving {
		return 0
	}
	return v.said.VolumeRate * int64(memberapi.GrowthLead/time.Second)
}

// fillsSoon says whether the volume would be full before it has grown.
func (v memberVolume) fillsSoon() bool {
	written := v.written()
	return written > 0 && v.said.VolumeUsed+written >= v.fileSystem()
}

// ahead is the capacity that lasts for two growths at the rate at which the volume
// fills: at most twice what it has, for no rate lasts for ever. 0 where it does not
// fill soon.
func (v memberVolume) ahead() int64 {
	if !v.fillsSoon() {
		return 0
	}
	return min(claimFor(v.said.VolumeUsed+2*v.written()), 2*v.capacity().Value())
}

// lacks says whether the volume has less room than so much.
func (v memberVolume) lacks(room int64) bool {
	return room > 0 && v.said.VolumeUsed+room > v.fileSystem()
}

// needs is the room that a member asks for which waits for it, in bytes.
func (v memberVolume) needs() int64 {
	if v.said == nil || v.said.State != memberapi.StateHeld || v.said.Hold != memberapi.HoldVolumeFull {
		return 0
	}
	return v.said.RoomNeeded
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
	capacity := v.capacity().Value()
	return max(v.said.VolumeSize, capacity-capacity/keptTenth-keptJournal)
}

// claimFor is the capacity whose file system has at least the size.
func claimFor(size int64) int64 {
	return (size+keptJournal)/(keptTenth-1)*keptTenth + keptTenth
}

// unbounded says that the claim does not limit the file system: growing it
// changes nothing. A class that hands out folders of one disk is such a one.
func (v memberVolume) unbounded() bool { return v.said.VolumeSize > 2*v.capacity().Value() }

// asked is the size that the claim asks for.
func (v memberVolume) asked() resource.Quantity {
	return v.live.Spec.Resources.Requests[corev1.ResourceStorage]
}

// capacity that the volume has, or will have while it is being made.
func (v memberVolume) capacity() *resource.Quantity {
	has, known := v.live.Status.Capacity[corev1.ResourceStorage]
	if !known {
		has = v.asked()
	}
	return &has
}

// resizing says whether the volume is on its way to a size.
func (v memberVolume) resizing(size resource.Quantity) bool {
	asked := v.asked()
	return asked.Cmp(*v.capacity()) > 0 || asked.Cmp(size) < 0 && v.expandable
}

func className(v *corev1.PersistentVolumeClaim) string {
	if v.Spec.StorageClassName == nil {
		return ""
	}
	return *v.Spec.StorageClassName
}

func larger(a, b resource.Quantity) resource.Quantity {
	if a.Cmp(b) < 0 {
		return b
	}
	return a
}

func smaller(a, b resource.Quantity) resource.Quantity {
	if a.Cmp(b) > 0 {
		return b
	}
	return a
}

// GrowthNotes tell of every volume that is about to grow.
func (j *Judgement) GrowthNotes() []engine.Note {
	var notes []engine.Note
	for _, v := range j.Desired.Volumes {
		live := j.Seen.Volumes[v.Ordinal]
		if !v.Member || live == nil {
			continue
		}
		asked := live.Spec.Resources.Requests[corev1.ResourceStorage]
		if v.Size.Cmp(asked) <= 0 {
			continue
		}
		why := "so that all members have as much room"
		if g := j.growth(j.Seen); g.why != "" {
			why = "since " + g.why
		} else if v.Size.Cmp(j.Storage.Size) == 0 {
			why = "as spec.storage.size asks for"
		}
		notes = append(notes, engine.Note{Kind: "PersistentVolumeClaim", Name: live.Name, Reason: v1alpha1.ReasonVolumeGrows, Action: "Grow",
			Message: fmt.Sprintf("volume %s grows from %s to %s, %s", live.Name, asked.String(), v.Size.String(), why)})
	}
	return notes
}
