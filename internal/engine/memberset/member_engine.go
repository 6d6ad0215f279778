// Package memberset is what the members of a cluster are, whichever the
// database: a StatefulSet with a volume for each, what stands around it, and
// what agents report. An engine says how its kind differs, and
// judges what only it knows.
package memberset

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/internal/agentclient"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
	"github.com/holdfast-db/holdfast/internal/pki"
)

// Members is where an engine learns what members say of themselves.
type Members interface {
	Watch(cluster types.NamespacedName, owner types.UID, t agentclient.Target)
	Get(cluster types.NamespacedName) map[string]agentclient.Observation
}

// MemberEngine observes the members of all clusters of one kind, and does to them
// what is the same for every kind.
type MemberEngine struct {
	objects.Settings
	// Reader reads from the cache.
	Reader client.Reader
	// Writer writes to the API server, which only Act does, and reads from it.
	// Nil where only what is declared is wanted.
	Writer client.Client
	// Members answers what the members' agents say.
	Members Members
	// Secrets answers what Secrets of users hold.
	Secrets Secrets
	// Clock is the time by which certificates are issued.
	Clock clock.PassiveClock

	secretCache secretCache
	endings     endings
	claims      volumeCache
	pods        podCache
}

// Forget drops what is remembered of a cluster that is gone.
func (k *MemberEngine) Forget(cluster types.NamespacedName) {
	k.claims.forgetCluster(k.secretCache.clusterUID(cluster))
	k.secretCache.forgetCluster(cluster)
	k.endings.forgetCluster(cluster)
	k.pods.forgetCluster(cluster)
}

// Credentials are the operator's own for a cluster's databases, and whom it
// trusts there: clients may be shown another certificate than members are. None
// while there is no CA.
func (k *MemberEngine) Credentials(s objects.Set) (agentclient.ClientTLS, bool) {
	now := k.Clock.Now()
	m := k.secretCache.observeSecrets(s, nil, now)
	credentials, ok := k.secretCache.clientCredentials(s, m, now)
	credentials.CAPEM = pki.JoinBundle(credentials.CAPEM, pki.ClientRoots(m.TLS))
	return credentials, ok
}

// Types of the steps that touch a member.
const (
	StepReplaceMember = "ReplaceMember"
	StepDeleteVolume  = "DeleteVolume"
)

// Act does a step that this package planned.
func (k *MemberEngine) Act(ctx context.Context, s objects.Set, step engine.Step) error {
	meta := metav1.ObjectMeta{Namespace: s.Key().Namespace, Name: step.Target}
	switch step.Type {
	case StepReplaceMember:
		err := k.removeObserved(ctx, &corev1.Pod{ObjectMeta: meta}, step)
		if err == nil {
			k.pods.recordReplacement(s, step, k.Clock.Now())
		}
		return err
	case StepDeleteVolume:
		if err := k.CheckUnchanged(ctx, s); err != nil {
			return err
		}
		if err := k.checkPodEnded(ctx, s, step.Subject); err != nil {
			k.endings.forgetVolume(s.Key(), step.UID)
			return err
		}
		return k.removeObserved(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: meta}, step)
	case StepDiscardVolume, StepDiscardPod, stepForcePod:
		return k.actDiscard(ctx, s, step)
	case stepRelabelPod:
		return k.relabelPod(ctx, s, step)
	case stepVolumePolicy, stepSecretPolicy:
		return k.applyPolicy(ctx, s, step)
	}
	return secretMinter{k}.mintSecret(ctx, s, step)
}

// CheckUnchanged makes sure that the cluster's live object says what the step was
// planned from: a cache may be behind, and what is deleted is gone.
func (k *MemberEngine) CheckUnchanged(ctx context.Context, s objects.Set) error {
	var live metav1.PartialObjectMetadata
	live.SetGroupVersionKind(s.GVK)
	if err := k.Writer.Get(ctx, s.Key(), &live); err != nil {
		return fmt.Errorf("read the cluster again: %w", err)
	}
	if live.UID != s.Cluster.GetUID() || live.Generation != s.Cluster.GetGeneration() || live.DeletionTimestamp != nil {
		return errors.New("the cluster has changed since the step was planned")
	}
	return nil
}

// checkPodEnded makes sure that there is no pod of a name: a cache that lags, or a label
// that was taken, hides one that runs.
func (k *MemberEngine) checkPodEnded(ctx context.Context, s objects.Set, pod string) error {
	var live metav1.PartialObjectMetadata
	live.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	err := k.Writer.Get(ctx, types.NamespacedName{Namespace: s.Key().Namespace, Name: pod}, &live)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("look for pod %s: %w", pod, err)
	}
	return fmt.Errorf("pod %s exists: its volume is not deleted while it does", pod)
}

// removeObserved deletes exactly the object that was observed. That it is gone, or
// another one by now, is an answer: the next pass looks again.
func (k *MemberEngine) removeObserved(ctx context.Context, obj client.Object, step engine.Step) error {
	only := client.Preconditions{UID: &step.UID}
	if step.ResourceVersion != "" {
		only.ResourceVersion = &step.ResourceVersion
	}
	err := k.Writer.Delete(ctx, obj, only)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete %s: %w", step.Target, err)
	}
	return nil
}
