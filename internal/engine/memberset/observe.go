package memberset

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentclient"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// Observation is one cluster as the caches, the members and the member engine's memory
// show it. Its fields are as many as there are sources: what follows from them is
// the View's.
type Observation struct {
	// Settings of the operator, so that Plan needs nothing else.
	Settings objects.Settings
	// StatefulSet of the members; nil while there is none.
	StatefulSet *appsv1.StatefulSet
	// Pods and Volumes of the members, by ordinal. Volumes holds retained ones
	// of former members too.
	Pods map[int]*corev1.Pod
	// Uncreated says of pods that are missing why they cannot be made, by ordinal.
	Uncreated map[int]string
	Volumes   map[int]*corev1.PersistentVolumeClaim
	// BackupVolume is the one that backups are kept on; nil while there is none.
	BackupVolume *corev1.PersistentVolumeClaim
	// Recorded are objects that are the cluster's by what is recorded elsewhere,
	// whatever became of their labels.
	Recorded []types.UID
	// DataSecrets hold trust and credentials, by name.
	DataSecrets map[string]*corev1.Secret
	// Minted is what was made once and cannot be computed again.
	Minted Minted
	// Members is what the agents say, by pod name.
	Members map[string]agentclient.Observation
	// Ended is since when the pods of members that were scaled away are known to be
	// gone, by ordinal, where their volumes are to be deleted.
	Ended map[int]time.Time
	// Asking says whether the members can be asked at all.
	Asking bool
	// Behind are the pods that the Services for clients send these to, by the
	// Service's suffix.
	ServicePods map[string]map[string]bool
	// Altered is what pods have otherwise than their template, by pod name.
	Altered map[string]PodComparison
	// Replaced is when a pod of a name was replaced last, and why.
	Replaced map[string]Replacement
	// StorageClasses by name; nil when the operator may not read them.
	StorageClasses map[string]storagev1.StorageClass
}

// findDataSecrets are those without which the data is of no use, by name.
func findDataSecrets(s objects.Set, secrets []corev1.Secret) map[string]*corev1.Secret {
	found := map[string]*corev1.Secret{}
	for i := range secrets {
		if name := secrets[i].Name; name == s.Named(objects.SuffixCA) || name == s.Named(objects.SuffixInternal) {
			found[name] = &secrets[i]
		}
	}
	return found
}

// Observe reads caches and memory, and never judges.
func (k *MemberEngine) Observe(ctx context.Context, s objects.Set) (Observation, error) {
	o := Observation{Settings: k.Settings}
	in := client.InNamespace(s.Key().Namespace)
	ours := client.MatchingLabels(s.Selector())

	uid := s.Cluster.GetUID()

	var sets appsv1.StatefulSetList
	var pods corev1.PodList
	var secrets corev1.SecretList
	var endpoints discoveryv1.EndpointSliceList
	for _, list := range []client.ObjectList{&sets, &pods, &secrets, &endpoints} {
		// The cache's own objects: an observation is only read.
		if err := k.Reader.List(ctx, list, in, ours, client.UnsafeDisableDeepCopy); err != nil {
			return o, fmt.Errorf("observe %T: %w", list, err)
		}
	}
	volumes, err := k.listVolumes(ctx, s, in, ours, client.UnsafeDisableDeepCopy)
	if err != nil {
		return o, err
	}
	if volumes, err = k.findVolumes(ctx, s, &o, volumes); err != nil {
		return o, err
	}
	volumes = slices.DeleteFunc(volumes, func(v corev1.PersistentVolumeClaim) bool { return hasOtherOwner(&v, uid) })
	secrets.Items = slices.DeleteFunc(secrets.Items, func(v corev1.Secret) bool { return hasOtherOwner(&v, uid) })
	o.takeMembers(s, sets.Items, pods.Items)
	if err := k.findPods(ctx, s, &o); err != nil {
		return o, err
	}
	if err := k.observePods(ctx, s, &o); err != nil {
		return o, err
	}
	o.Volumes = byOrdinal(volumes, func(v *corev1.PersistentVolumeClaim) string { return v.Name }, "data-"+s.Named("-"))
	o.BackupVolume = claimNamed(volumes, s.Named(v1alpha1.SuffixBackups))
	if err := k.observeRecorded(ctx, s, &o); err != nil {
		return o, err
	}
	if err := k.observeUncreated(ctx, s, &o); err != nil {
		return o, err
	}
	o.DataSecrets = findDataSecrets(s, secrets.Items)
	if err := k.observeUserSecrets(ctx, s); err != nil {
		return o, fmt.Errorf("observe what spec.tls names: %w", err)
	}
	o.Minted = k.secretCache.observeSecrets(s, secrets.Items, k.Clock.Now())
	o.ServicePods = map[string]map[string]bool{}
	for _, suffix := range s.Clients {
		o.ServicePods[suffix] = listServicePods(endpoints.Items, s.Named(suffix))
	}

	classes, err := k.observeStorageClasses(ctx)
	if err != nil {
		return o, err
	}
	o.StorageClasses = classes

	now := k.Clock.Now()
	o.Ended = k.endings.observeEndings(s, o, now)
	if target, ok := k.planTarget(s, o); ok {
		target.Since = o.newestProof(now)
		k.Members.Watch(s.Key(), uid, target)
		o.Asking = true
	}
	o.Members = k.Members.Get(s.Key())
	return o, nil
}

// takeMembers finds the StatefulSet that is the cluster's own, and its pods.
// Where there is none, pods are an earlier cluster's, about to go.
func (o *Observation) takeMembers(s objects.Set, sets []appsv1.StatefulSet, pods []corev1.Pod) {
	for i := range sets {
		if sets[i].Name == s.Named("") && !hasOtherOwner(&sets[i], s.Cluster.GetUID()) {
			o.StatefulSet = &sets[i]
		}
	}
	pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return o.StatefulSet == nil || hasOtherOwner(&p, o.StatefulSet.UID) })
	o.Pods = byOrdinal(pods, func(p *corev1.Pod) string { return p.Name }, s.Named("-"))
}

// listVolumes of a cluster. Until status records whose data this is, the API
// server is asked: a cache that lags shows volumes that are gone, and what they
// say of a bootstrap would be believed for good; and none yet that were just put back.
func (k *MemberEngine) listVolumes(ctx context.Context, s objects.Set, options ...client.ListOption) ([]corev1.PersistentVolumeClaim, error) {
	from := k.Reader
	if k.Writer != nil && s.Cluster.CommonStatus().SystemIdentifier == "" {
		from = k.Writer
	}
	var list corev1.PersistentVolumeClaimList
	if err := from.List(ctx, &list, options...); err != nil {
		return nil, fmt.Errorf("observe volumes: %w", err)
	}
	return list.Items, nil
}

// claimNamed finds a volume by its name; nil where there is none.
func claimNamed(volumes []corev1.PersistentVolumeClaim, name string) *corev1.PersistentVolumeClaim {
	for i := range volumes {
		if volumes[i].Name == name {
			return &volumes[i]
		}
	}
	return nil
}

// hasOtherOwner says that an object is controlled by another owner than uid: by an
// earlier cluster of the same name, whose deletion is not done yet. What that
// one was says nothing about this one.
func hasOtherOwner(obj client.Object, uid types.UID) bool {
	owner := metav1.GetControllerOf(obj)
	return owner != nil && owner.UID != uid
}

// observeStorageClasses reads the classes where the operator may.
func (k *MemberEngine) observeStorageClasses(ctx context.Context) (map[string]storagev1.StorageClass, error) {
	var list storagev1.StorageClassList
	if err := k.Reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsForbidden(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("observe storage classes: %w", err)
	}
	classes := make(map[string]storagev1.StorageClass, len(list.Items))
	for _, class := range list.Items {
		classes[class.Name] = class
	}
	return classes, nil
}

// planTarget says which members to ask, and with which certificate.
func (k *MemberEngine) planTarget(s objects.Set, o Observation) (agentclient.Target, bool) {
	credentials, ok := k.secretCache.clientCredentials(s, o.Minted, k.Clock.Now())
	if !ok {
		return agentclient.Target{}, false
	}
	t := agentclient.Target{TLS: credentials}
	t.HoursOf, t.HoursSince = findHours(s.Cluster, k.Clock.Now())
	for _, pod := range o.Pods {
		if pod.Status.PodIP == "" {
			continue
		}
		t.Members = append(t.Members, agentclient.Member{
			Pod: pod.Name, UID: pod.UID,
			Address:    objects.HostPort(pod.Status.PodIP, agentapi.StatusPort),
			ServerName: s.PodHost(pod.Name),
		})
	}
	return t, true
}

// byOrdinal sorts what is named after a member by the member's ordinal.
func byOrdinal[T any](items []T, name func(*T) string, prefix string) map[int]*T {
	out := make(map[int]*T, len(items))
	for i := range items {
		rest, found := strings.CutPrefix(name(&items[i]), prefix)
		if !found {
			continue
		}
		if n, err := strconv.Atoi(rest); err == nil && n >= 0 && strconv.Itoa(n) == rest {
			out[n] = &items[i]
		}
	}
	return out
}

// listServicePods names the pods that a Service sends clients to.
func listServicePods(list []discoveryv1.EndpointSlice, service string) map[string]bool {
	pods := map[string]bool{}
	for i := range list {
		if list[i].Labels[discoveryv1.LabelServiceName] != service {
			continue
		}
		for _, ep := range list[i].Endpoints {
			ready := ep.Conditions.Ready == nil || *ep.Conditions.Ready
			if ready && ep.TargetRef != nil && ep.TargetRef.Kind == "Pod" {
				pods[ep.TargetRef.Name] = true
			}
		}
	}
	return pods
}
