package memberset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// Types of the steps that put the deletion policy in force while nothing else of the
// cluster is written: it is suspended, or its volumes cannot be as it declares them.
// The policy is an owner reference, and a client that deletes the cluster goes by what
// the spec says then.
const (
	stepVolumePolicy = "ApplyDeletionPolicyToVolume"
	stepSecretPolicy = "ApplyDeletionPolicyToSecret"
)

// policyStep is the next object of a cluster to which nothing is applied whose owner is
// not what the deletion policy says; nil when all are.
func policyStep(s objects.Set, o Observation) *engine.Step {
	step := func(kind string, obj *metav1.ObjectMeta) *engine.Step {
		return &engine.Step{Type: kind, Target: obj.Name, UID: obj.UID, Suspended: true,
			Message: fmt.Sprintf("spec.deletionPolicy is %s", s.Cluster.Common().DeletionPolicy)}
	}
	for _, n := range slices.Sorted(maps.Keys(o.Volumes)) {
		if v := o.Volumes[n]; o.ownsVolume(v) && !PolicyHolds(s, &v.ObjectMeta) {
			return step(stepVolumePolicy, &v.ObjectMeta)
		}
	}
	if v := o.BackupVolume; v != nil && o.ownsVolume(v) && !PolicyHolds(s, &v.ObjectMeta) {
		return step(stepVolumePolicy, &v.ObjectMeta)
	}
	for _, name := range slices.Sorted(maps.Keys(o.DataSecrets)) {
		if secret := o.DataSecrets[name]; !PolicyHolds(s, &secret.ObjectMeta) {
			return step(stepSecretPolicy, &secret.ObjectMeta)
		}
	}
	return nil
}

// FirstStep is the step that comes before those of an engine: labels, the deletion policy and
// secrets are in order first. With done, no other step is taken, also if this is nil.
// writable says whether volumes may be written: what is applied then has the policy in it.
// Else no volume is to go any more that the policy keeps. Under Delete nothing is done to
// volumes that do not fit the spec.
func (view *View) FirstStep(now time.Time, writable bool) (s *engine.Step, done bool) {
	declared := view.Cluster.Common()
	if declared.Suspend {
		return policyStep(view.Set, view.Observed), true
	}
	s = view.RelabelStep()
	if s == nil && !writable && declared.DeletionPolicy != v1alpha1.DeletionDelete {
		s = policyStep(view.Set, view.Observed)
	}
	if s == nil {
		s = mintStep(view.Set, view.Observed, now)
	}
	return s, s != nil
}

// PolicyHolds says whether an object that holds data, trust or credentials goes
// with the cluster exactly when the deletion policy says so.
func PolicyHolds(s objects.Set, obj *metav1.ObjectMeta) bool {
	if obj.DeletionTimestamp != nil {
		return true // it goes whatever its owner
	}
	owned := false
	for _, owner := range obj.OwnerReferences {
		owned = owned || owner.UID == s.Cluster.GetUID()
	}
	return owned == goesWithCluster(s, obj)
}

// goesWithCluster says whether an object that holds data, trust or credentials is to go with
// the cluster.
func goesWithCluster(s objects.Set, obj *metav1.ObjectMeta) bool {
	if s.Cluster.Common().DeletionPolicy != v1alpha1.DeletionDelete {
		return false
	}
	return !strings.HasPrefix(obj.Name, "data-"+s.Named("-")) || isMembers(obj) || isDeletable(s, obj)
}

// applyPolicy changes nothing but the owner of an object: all else that the
// operator applied to it stays as it is.
func (k *MemberEngine) applyPolicy(ctx context.Context, s objects.Set, step engine.Step) error {
	if err := k.CheckUnchanged(ctx, s); err != nil {
		return err
	}
	var obj client.Object = &corev1.PersistentVolumeClaim{}
	if step.Type == stepSecretPolicy {
		obj = &corev1.Secret{}
	}
	err := k.Writer.Get(ctx, types.NamespacedName{Namespace: s.Key().Namespace, Name: step.Target}, obj)
	if apierrors.IsNotFound(err) || err == nil && obj.GetUID() != step.UID {
		return nil // the next pass looks again
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", step.Target, err)
	}
	body, err := encodeOwner(s, obj)
	if err != nil {
		return fmt.Errorf("take %s as it was applied: %w", step.Target, err)
	}
	err = k.Writer.Patch(ctx, obj, client.RawPatch(types.ApplyPatchType, body), client.FieldOwner(v1alpha1.FieldManager), client.ForceOwnership)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("apply the deletion policy to %s: %w", step.Target, err)
	}
	if !PolicyHolds(s, metaOf(obj)) {
		return errors.New("another field manager holds the owner references of " + step.Target)
	}
	return nil
}

func ownersOf(s objects.Set, obj *metav1.ObjectMeta) []*metav1ac.OwnerReferenceApplyConfiguration {
	if goesWithCluster(s, obj) {
		return s.DataOwners()
	}
	return nil
}

// metaOf is what the deletion policy looks at in an object.
func metaOf(obj client.Object) *metav1.ObjectMeta {
	return &metav1.ObjectMeta{
		Name: obj.GetName(), Labels: obj.GetLabels(), Annotations: obj.GetAnnotations(),
		OwnerReferences: obj.GetOwnerReferences(), DeletionTimestamp: obj.GetDeletionTimestamp(),
	}
}

// encodeOwner is what the operator applied to an object, with the owner that the
// deletion policy asks for.
func encodeOwner(s objects.Set, obj client.Object) ([]byte, error) {
	switch obj := obj.(type) {
	case *corev1.PersistentVolumeClaim:
		ac, err := corev1ac.ExtractPersistentVolumeClaim(obj, v1alpha1.FieldManager)
		if err != nil {
			return nil, err
		}
		ac.OwnerReferences = nil
		return json.Marshal(ac.WithOwnerReferences(ownersOf(s, &obj.ObjectMeta)...).WithUID(obj.UID).WithResourceVersion(obj.ResourceVersion))
	case *corev1.Secret:
		ac, err := corev1ac.ExtractSecret(obj, v1alpha1.FieldManager)
		if err != nil {
			return nil, err
		}
		ac.OwnerReferences = nil
		return json.Marshal(ac.WithOwnerReferences(ownersOf(s, &obj.ObjectMeta)...).WithUID(obj.UID).WithResourceVersion(obj.ResourceVersion))
	}
	return nil, fmt.Errorf("%T holds no data", obj)
}
