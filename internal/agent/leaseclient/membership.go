package leaseclient

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/identity"
)

// AnnotationStarts lists, as JSON, which volume each member of a group was
// started on.
const AnnotationStarts = "holdfast.dev/starts"

// AnnotationGroup is what the members have recorded of their group, as JSON whose form
// their engine alone knows.
const AnnotationGroup = "holdfast.dev/group"

// maxStarts bounds the list: the oldest starts are of members that have left
// the group long ago. The last of each pod stays however old it is, for it says
// which member was lost when the pod's volume is.
const maxStarts = 200

// Start is the record that a member was started on a volume.
type Start struct {
	// Member is the ID that the group has given the member.
	Member string `json:"member"`
	Pod    string `json:"pod"`
	// Volume is the random name that the agent has left on the volume.
	Volume string `json:"volume"`
}

// MembershipRecord is what the members of a group have recorded together. The zero
// value is that of a cluster of which nothing is recorded.
type MembershipRecord struct {
	// SystemIdentifier of the data that the cluster was bootstrapped with.
	SystemIdentifier string
	// Cluster is the UID of the cluster's object that it was last written for:
	// a record may outlive its cluster.
	Cluster string
	// Starts in the order in which they were recorded.
	Starts []Start
	// Group is JSON of the engine's; empty for an engine that records nothing more. It is
	// kept as it is.
	Group string
}

// FindStart finds the start of a member, if one is recorded.
func (r MembershipRecord) FindStart(id string) (Start, bool) {
	i := slices.IndexFunc(r.Starts, func(s Start) bool { return s.Member == id })
	if i < 0 {
		return Start{}, false
	}
	return r.Starts[i], true
}

// FindLastMember finds the member that was started last under the pod; empty for none.
func (r MembershipRecord) FindLastMember(pod string) string {
	for _, s := range slices.Backward(r.Starts) {
		if s.Pod == pod {
			return s.Member
		}
	}
	return ""
}

// WithStart adds a start, in place of one of the same member.
func (r MembershipRecord) WithStart(start Start) MembershipRecord {
	r.Starts = append(slices.DeleteFunc(slices.Clone(r.Starts), func(s Start) bool { return s.Member == start.Member }), start)
	surplus, all := len(r.Starts)-maxStarts, r
	r.Starts = nil
	for _, s := range all.Starts {
		if surplus > 0 && all.FindLastMember(s.Pod) != s.Member {
			surplus--
			continue
		}
		r.Starts = append(r.Starts, s)
	}
	return r
}

// MembershipLease keeps the MembershipRecord on the Lease <cluster>-members, which
// has no holder: every write is bound to what was read before it, so that of two
// that disagree one fails.
type MembershipLease struct {
	id     identity.Identity
	name   string
	labels map[string]string
	owners func() []metav1.OwnerReference
	client coordinationclient.LeaseInterface

	mu     sync.Mutex
	object *coordinationv1.Lease // as last read or written; nil when it was missing
}

// NewMembershipLease makes the Lease with the labels when it is missing. Owners are
// asked at every write whose deletion takes the Lease along.
func NewMembershipLease(id identity.Identity, labels map[string]string, owners func() []metav1.OwnerReference, client kubernetes.Interface) *MembershipLease {
	return &MembershipLease{
		id: id, name: id.Cluster + "-members", labels: labels, owners: owners,
		client: client.CoordinationV1().Leases(id.Namespace),
	}
}

// ReadRecord reads the MembershipRecord.
func (r *MembershipLease) ReadRecord(ctx context.Context) (MembershipRecord, error) {
	ctx, cancel := context.WithTimeout(ctx, LeaseTimeout)
	defer cancel()
	object, err := r.client.Get(ctx, r.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		object, err = nil, nil
	}
	if err != nil {
		return MembershipRecord{}, fmt.Errorf("read Lease %s: %w", r.name, err)
	}
	record, err := membershipOf(object)
	if err != nil {
		return MembershipRecord{}, fmt.Errorf("read Lease %s: %w", r.name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.object = object
	return record, nil
}

// WriteRecord replaces the MembershipRecord that was read last. It fails when another
// has written since.
func (r *MembershipLease) WriteRecord(ctx context.Context, next MembershipRecord) error {
	ctx, cancel := context.WithTimeout(ctx, LeaseTimeout)
	defer cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	object := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: r.name, Namespace: r.id.Namespace, Labels: r.labels}}
	if r.object != nil {
		object = r.object.DeepCopy()
	}
	starts, err := json.Marshal(next.Starts)
	if err != nil {
		return fmt.Errorf("write Lease %s: %w", r.name, err)
	}
	if object.Annotations == nil {
		object.Annotations = map[string]string{}
	}
	maps.Copy(object.Annotations, map[string]string{
		v1alpha1.AnnotationSystemIdentifier: next.SystemIdentifier,
		AnnotationCluster:                   next.Cluster,
		AnnotationStarts:                    string(starts),
	})
	if next.Group != "" {
		object.Annotations[AnnotationGroup] = next.Group
	} else {
		delete(object.Annotations, AnnotationGroup)
	}
	object.OwnerReferences = r.owners()
	if r.object == nil {
		object, err = r.client.Create(ctx, object, metav1.CreateOptions{FieldManager: v1alpha1.AgentFieldManager})
	} else {
		object, err = r.client.Update(ctx, object, metav1.UpdateOptions{FieldManager: v1alpha1.AgentFieldManager})
	}
	if err != nil {
		return fmt.Errorf("write Lease %s: %w", r.name, err)
	}
	r.object = object
	return nil
}

func membershipOf(object *coordinationv1.Lease) (MembershipRecord, error) {
	if object == nil {
		return MembershipRecord{}, nil
	}
	r := MembershipRecord{
		SystemIdentifier: object.Annotations[v1alpha1.AnnotationSystemIdentifier],
		Cluster:          object.Annotations[AnnotationCluster],
		Group:            object.Annotations[AnnotationGroup],
	}
	if text := object.Annotations[AnnotationStarts]; text != "" {
		if err := json.Unmarshal([]byte(text), &r.Starts); err != nil {
			return MembershipRecord{}, fmt.Errorf("annotation %s: %w", AnnotationStarts, err)
		}
	}
	return r, nil
}
