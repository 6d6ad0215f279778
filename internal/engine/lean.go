package engine

import (
	"crypto/sha256"
	"runtime"
	"strings"
	"sync"
	"unique"
	"weak"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apply"
)

// LeanObject is what the cache keeps of an object. Of pods and endpoint slices, which
// no client applies, it is what engines read: one that needs another field adds it
// here. Other kinds stay whole, since apply compares all of them, but for who
// wrote their status. Strings that many objects have in common are kept once.
//
// It is a TransformFunc of client-go: it may change in, and may be given what
// is lean already.
func LeanObject(in any) (any, error) {
	obj, err := meta.Accessor(in)
	if err != nil {
		return in, nil //nolint:nilerr // the mark of a deleted object, which is no object
	}
	switch whole := in.(type) {
	case *corev1.Pod:
		leanPod(whole)
	case *discoveryv1.EndpointSlice:
		leanSlice(whole)
	default:
		shareManagers(obj)
	}
	obj.SetNamespace(shareString(obj.GetNamespace()))
	obj.SetLabels(shareMap(obj.GetLabels()))
	shareOwners(obj.GetOwnerReferences())
	return in, nil
}

// AnnotationForm stands on members' pods in the cache only: a digest of what the
// pod's template has, too.
const AnnotationForm = "holdfast.dev/cached-form"

func leanPod(pod *corev1.Pod) {
	form := podForm(pod)
	pod.ManagedFields = nil
	pod.Annotations = ownAnnotations(pod.Annotations)
	if form != "" {
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[AnnotationForm] = form
	}
	pod.Spec = corev1.PodSpec{
		NodeName:       shareString(pod.Spec.NodeName),
		InitContainers: leanContainers(pod.Spec.InitContainers),
		Containers:     leanContainers(pod.Spec.Containers),
	}
	old := pod.Status
	pod.Status = corev1.PodStatus{
		Phase: old.Phase, Reason: old.Reason, Message: old.Message, PodIP: old.PodIP,
		Conditions:            old.Conditions,
		InitContainerStatuses: leanStatuses(old.InitContainerStatuses),
		ContainerStatuses:     leanStatuses(old.ContainerStatuses),
	}
}

// podForm of a StatefulSet's pod; empty for one that is lean already, which says
// it.
func podForm(pod *corev1.Pod) string {
	if pod.Spec.RestartPolicy == "" || pod.Labels["statefulset.kubernetes.io/pod-name"] == "" {
		return ""
	}
	form, err := apply.PodDigest(&pod.ObjectMeta, &pod.Spec)
	if err != nil {
		return ""
	}
	return shareString(form)
}

func ownAnnotations(all map[string]string) map[string]string {
	var own map[string]string
	for k, v := range all {
		if strings.HasPrefix(k, v1alpha1.GroupVersion.Group+"/") {
			if own == nil {
				own = map[string]string{}
			}
			own[shareString(k)] = shareString(v)
		}
	}
	return own
}

func leanContainers(all []corev1.Container) []corev1.Container {
	var lean []corev1.Container
	for i := range all {
		lean = append(lean, corev1.Container{Name: shareString(all[i].Name), Image: shareString(all[i].Image)})
	}
	return lean
}

func leanStatuses(all []corev1.ContainerStatus) []corev1.ContainerStatus {
	var lean []corev1.ContainerStatus
	for i := range all {
		s := &all[i]
		lean = append(lean, corev1.ContainerStatus{
			Name: shareString(s.Name), Image: shareString(s.Image), ImageID: shareString(s.ImageID),
			State: s.State, LastTerminationState: s.LastTerminationState,
			Ready: s.Ready, Started: s.Started, RestartCount: s.RestartCount,
		})
	}
	return lean
}

func leanSlice(slice *discoveryv1.EndpointSlice) {
	slice.ManagedFields, slice.Annotations, slice.Ports = nil, nil, nil
	var lean []discoveryv1.Endpoint
	for i := range slice.Endpoints {
		ep := &slice.Endpoints[i]
		to := discoveryv1.Endpoint{Conditions: ep.Conditions}
		if ref := ep.TargetRef; ref != nil {
			to.TargetRef = &corev1.ObjectReference{Kind: shareString(ref.Kind), Name: shareString(ref.Name)}
		}
		lean = append(lean, to)
	}
	slice.Endpoints = lean
}

// shareManagers drops who wrote the status, which apply neither sends nor
// compares, and shares the rest: without the owner's UID, the objects of all clusters have
// the same.
func shareManagers(obj metav1.Object) {
	var kept []metav1.ManagedFieldsEntry
	for _, m := range obj.GetManagedFields() {
		if m.Subresource == "status" {
			continue
		}
		m.FieldsV1 = apply.CompactFields(m.FieldsV1, obj.GetOwnerReferences())
		kept = append(kept, shareEntry(m))
	}
	obj.SetManagedFields(kept)
}

func shareEntry(m metav1.ManagedFieldsEntry) metav1.ManagedFieldsEntry {
	m.Manager, m.APIVersion, m.FieldsType = shareString(m.Manager), shareString(m.APIVersion), shareString(m.FieldsType)
	m.FieldsV1 = shared.share(m.FieldsV1)
	return m
}

// ShareManagedFields makes one in memory of what equal objects of one kind say of their managers. It
// is a transformation of a cache, and drops nothing.
func ShareManagedFields(in any) (any, error) {
	obj, err := meta.Accessor(in)
	if err != nil {
		return in, nil //nolint:nilerr // the mark of a deleted object, which is no object
	}
	managers := obj.GetManagedFields()
	for i := range managers {
		managers[i] = shareEntry(managers[i])
	}
	return in, nil
}

// shared are the sets of fields in the caches of this process.
var shared fieldSets

// fieldSets has each set of fields once, for as long as an object refers to it. Objects of
// one kind mostly have the same.
type fieldSets struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]weak.Pointer[metav1.FieldsV1]
}

// share returns what is equal to f and must not be changed; nil for nil.
func (s *fieldSets) share(f *metav1.FieldsV1) *metav1.FieldsV1 {
	if f == nil {
		return nil
	}
	sum := sha256.Sum256(f.GetRawBytes())
	s.mu.Lock()
	defer s.mu.Unlock()
	if same := s.known[sum].Value(); same != nil {
		return same
	}
	if s.known == nil {
		s.known = map[[sha256.Size]byte]weak.Pointer[metav1.FieldsV1]{}
	}
	s.known[sum] = weak.Make(f)
	runtime.AddCleanup(f, s.forget, sum)
	return f
}

// forget drops a set that no object refers to.
func (s *fieldSets) forget(sum [sha256.Size]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[sum].Value() == nil {
		delete(s.known, sum)
	}
}

func shareOwners(owners []metav1.OwnerReference) {
	for i := range owners {
		o := &owners[i]
		o.APIVersion, o.Kind, o.Name, o.UID = shareString(o.APIVersion), shareString(o.Kind), shareString(o.Name), shareString(o.UID)
	}
}

func shareMap(in map[string]string) map[string]string {
	if in == nil {
		return nil
	}
	out := make(map[string]string, len(in))
	for k, v := range in {
		out[shareString(k)] = shareString(v)
	}
	return out
}

// shareString makes equal strings one in memory.
func shareString[S ~string](s S) S { return unique.Make(s).Value() }
