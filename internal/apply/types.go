// Package apply is the only writer of owned objects. It applies them
// server-side under the field manager holdfast, detects what another client
// changed, says who, when and which field, and puts it back.
package apply

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// Request is one cluster's set of objects.
type Request struct {
	// Owner is the cluster's object, as read from the cache.
	Owner client.Object
	// Objects are desired, in the order in which they are applied. Each is a
	// fresh apply configuration with kind, namespace, name, labels and, where
	// garbage collection is meant to take it, a controller reference to Owner.
	Objects []runtime.ApplyConfiguration
	// Complete permits pruning of objects that Owner controls and that Objects
	// no longer holds; never of a PersistentVolumeClaim, a Lease, or a Secret
	// whose label app.kubernetes.io/component is ca or internal.
	Complete bool
	// Labels of what Owner controls, by which it is found to be pruned. Default:
	// holdfast.dev/cluster, with the owner's name.
	Labels map[string]string
	// Recorded are objects that are the owner's by what is recorded elsewhere,
	// whatever became of their labels.
	Recorded []types.UID
	// ByReference says that objects are the owner's only by their controller
	// reference, whatever their labels say. Another client may take it at any time,
	// as an orphaning deletion of the owner does. So an object without it is
	// never written, and an apply fails where the object is not as it was compared, or
	// was made by another client since it was found missing. All are custom resources.
	ByReference bool
	// Claims are the PersistentVolumeClaims, by name, by whose state Objects were
	// made. One that is gone or another by now is left as it is: what is desired
	// would say of an empty volume what was true of the other.
	Claims map[string]types.UID
	// Drift mode and what to ignore.
	Drift v1alpha1.DriftSpec
	// Suspend turns every write off: drift is still detected (by dry run)
	// and reported.
	Suspend bool
}

// ObjectID names an object within a cluster's namespace.
type ObjectID struct {
	GVK             schema.GroupVersionKind
	Namespace, Name string
}

// String is Kind/name, as status and events show it.
func (o ObjectID) String() string { return o.GVK.Kind + "/" + o.Name }

// Result is what a Sync found and did.
type Result struct {
	// Changed are the objects whose content a write of this pass changed
	// (created, updated, pruned).
	Changed []Change
	// Settled says that the cache shows every object at least as new as what
	// the API server answered to our last write of it. While it is false,
	// nothing that was observed may be called rolled out.
	Settled bool
	// Generations of the objects that are as desired, or whose differences are in
	// Standing or Contested, as the API server last returned them: of our writes,
	// and of what was compared since.
	Generations map[ObjectID]int64
	// Outdated says that one of the Claims is no longer what Objects were made
	// by: they are to be made anew, and nothing that was observed holds.
	Outdated bool
	// Drifts that this pass detected, newest first.
	Drifts []Drift
	// Contested are objects that still differ from what was sent after the
	// last applies; they are in backoff.
	Contested []Contest
	// Standing are drifts that stay because of Report mode or suspension.
	Standing []Drift
	// Tolerated are fields that no manager owns and that stay.
	Tolerated []Tolerated
	// RetryAfter is when to call Sync again for the sake of backoffs and the
	// daily backstop; 0 when nothing is due before the next event.
	RetryAfter time.Duration
}

// Change is one write.
type Change struct {
	Object ObjectID
	// Created, otherwise updated or pruned.
	Created, Pruned bool
	// UID, ResourceVersion and Generation as the API server returned them.
	UID             types.UID
	ResourceVersion string
	Generation      int64
}

// Drift is one change that another client made to an owned object.
type Drift struct {
	Time   metav1.Time
	Object ObjectID
	// Path of the field, such as .spec.ports[name="client"].port; empty
	// when the whole object is meant.
	Path string
	// Manager, Subresource and ManagerTime are what the API server recorded of
	// the manager that holds the path now; a client chose the name.
	Manager, Subresource string
	ManagerTime          *metav1.Time
	// Operation: Apply, Update, removed, deleted, admission or unattributed.
	Operation string
	// Action: Reverted, Reported or Contested.
	Action string
}

// Contest is an object that something else keeps changing.
type Contest struct {
	Object ObjectID
	// Paths that differ after our apply.
	Paths []string
	// Manager that fights back, where the API server knows; empty, with
	// Admission, where the API server itself changes what is sent.
	Manager   string
	Admission bool
	// Since when, and when it is tried again.
	Since, Next time.Time
}

// Values of Drift.Operation beside the API server's Apply and Update.
const (
	OperationRemoved      = "removed"
	OperationDeleted      = "deleted"
	OperationUnattributed = "unattributed"
	// OperationAdmission is what the API server made of our own apply.
	OperationAdmission = "admission"
	// OperationAlterSystem is a statement of a client in the database of a member.
	OperationAlterSystem = "ALTER SYSTEM"
)

// Values of Drift.Action.
const (
	ActionReverted  = "Reverted"
	ActionReported  = "Reported"
	ActionContested = "Contested"
)

// ConflictError says that an object of a name that we need belongs to
// another owner. It is never taken over.
type ConflictError struct {
	Object ObjectID
	// Owner says whose it is, as far as its metadata shows.
	Owner string
}

// Error implements error.
func (e *ConflictError) Error() string {
	return e.Object.String() + " exists and belongs to " + e.Owner
}
