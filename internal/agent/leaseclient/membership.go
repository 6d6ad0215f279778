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

// startsMost bounds the list: the oldest starts are of members that have left
// the group long ago. The last of each pod stays however old it is, for it says
// which member was lost when the pod's volume is.
const startsMost = 200

// Start is the record that a member was started on a volume.
type Start struct {
	// Member is the ID that the group has given the member.
	Member string `json:"member"`
	Pod    string `json:"pod"`
	// Volume is the random name that the agent has left on the volume.
	Volume string `json:"volume"`
}

// Register is what the members of a group have on record together. The zero
// value is that of a cluster of which nothing is on record.
type Register struct {
	// SystemIdentifier of the data that the cluster was born with.
	SystemIdentifier string
	// Cluster is the UID of the cluster's object that it was last written for:
	// a record may outlive its cluster.
	Cluster string
	// Starts in the order in which they were recorded.
	Starts []Start
}

// Start of a member, if one is on record.
func (r Register) Start(id string) (Start, bool) {
	i := slices.IndexFunc(r.Starts, func(s Start) bool { return s.Member == id })
	if i < 0 {
		return Start{}, false
	}
	return r.Starts[i], true
}

// Last is the member that was started last under the pod; empty for none.
func (r Register) Last(pod string) string {
	for _, s := range slices.Backward(r.Starts) {
		if s.Pod == pod {
			return s.Member
		}
	}
	return ""
}

// WithStart puts a start on record, in place of one of the same member.
func (r Register) WithStart(start Start) Register {
	r.Starts = append(slices.DeleteFunc(slices.Clone(r.Starts), func(s Start) bool { return s.Member == start.Member }), start)
	surplus, all := len(r.Starts)-startsMost, r
	r.Starts = nil
	for _, s := range all.Starts {
		if surplus > 0 && all.Last(s.Pod) != s.Member {
			surplus--
			continue
		}
		r.Starts = append(r.Starts, s)
	}
	return r
}

// Registry keeps the Register on the Lease <cluster>-members. Nobody holds that
// Lease: every write is bound to what was read before it, so that of two that
// disagree one fails.
type Registry struct {
	id     identity.Identity
	name   string
	labels map[string]string
	owners func() []metav1.OwnerReference
	client coordinationclient.LeaseInterface

	mu     sync.Mutex
	object *coordinationv1.Lease // as last read or written; nil when it was missing
}

// NewRegistry makes the Lease with the labels when it is missing. Owners are
// asked at every write whose deletion takes the Lease along.
func NewRegistry(id identity.Identity, labels map[string]string, owners func() []metav1.OwnerReference, client kubernetes.Interface) *Registry {
	return &Registry{
		id: id, name: id.Cluster + "-members", labels: labels, owners: owners,
		client: client.CoordinationV1().Leases(id.Namespace),
	}
}

// Look reads the Register.
func (r *Registry) Look(ctx context.Context) (Register, error) {
	ctx, cancel := context.WithTimeout(ctx, LeaseTimeout)
	defer cancel()
	object, err := r.client.Get(ctx, r.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		object, err = nil, nil
	}
	if err != nil {
		return Register{}, fmt.Errorf("read Lease %s: %w", r.name, err)
	}
	register, err := registerOf(object)
	if err != nil {
		return Register{}, fmt.Errorf("read Lease %s: %w", r.name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.object = object
	return register, nil
}

// Write replaces the Register that was looked at last. It fails when another
// has written since.
func (r *Registry) Write(ctx context.Context, next Register) error {
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

func registerOf(object *coordinationv1.Lease) (Register, error) {
	if object == nil {
		return Register{}, nil
	}
	r := Register{
		SystemIdentifier: object.Annotations[v1alpha1.AnnotationSystemIdentifier],
		Cluster:          object.Annotations[AnnotationCluster],
	}
	if text := object.Annotations[AnnotationStarts]; text != "" {
		if err := json.Unmarshal([]byte(text), &r.Starts); err != nil {
			return Register{}, fmt.Errorf("annotation %s: %w", AnnotationStarts, err)
		}
	}
	return r, nil
}
