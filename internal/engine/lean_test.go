package engine

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// metadata as the API server has it.
func metadata() metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: "orders-0", Namespace: "shop", UID: "uid", ResourceVersion: "42", Generation: 3,
		CreationTimestamp: metav1.Unix(1, 0), DeletionTimestamp: new(metav1.Unix(2, 0)), Finalizers: []string{"example.com/wait"},
		Labels:          map[string]string{v1alpha1.LabelCluster: "orders", "team": "shop"},
		Annotations:     map[string]string{v1alpha1.AnnotationRollout: "hash", "example.com/note": "long"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "orders", UID: "set", Controller: new(true)}},
		ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: v1alpha1.FieldManager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)},
			{Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{"f:status":{}}`)},
			{Manager: "kubectl-edit", Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "scale", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)},
		},
	}
}

// container with what a member's container has.
func container(name string) corev1.Container {
	return corev1.Container{
		Name: name, Image: "example.com/" + name + ":1", Args: []string{"agent"}, Env: []corev1.EnvVar{{Name: "POD", Value: "orders-0"}},
		VolumeMounts:   []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
		ReadinessProbe: &corev1.Probe{PeriodSeconds: 1}, SecurityContext: &corev1.SecurityContext{ReadOnlyRootFilesystem: new(true)},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
	}
}

func status(name string) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: name, Image: "example.com/" + name + ":1", ImageID: "sha256:1", ContainerID: "containerd://1", RestartCount: 2, Ready: true, Started: new(true),
		State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}},
		VolumeMounts:         []corev1.VolumeMountStatus{{Name: "data", MountPath: "/data"}}, Resources: &corev1.ResourceRequirements{},
	}
}

func TestLeanKeepsWhatIsRead(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metadata(),
		Spec: corev1.PodSpec{
			NodeName: "node-1", InitContainers: []corev1.Container{container("install")}, Containers: []corev1.Container{container("postgres")},
			Volumes: []corev1.Volume{{Name: "data"}}, ServiceAccountName: "orders", Tolerations: []corev1.Toleration{{Key: "k"}}, Affinity: &corev1.Affinity{},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, Reason: "Evicted", Message: "why", PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}, HostIP: "10.0.0.2",
			Conditions:            []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, Reason: "r", Message: "m"}},
			InitContainerStatuses: []corev1.ContainerStatus{status("install")}, ContainerStatuses: []corev1.ContainerStatus{status("postgres")},
		},
	}
	kept := pod.DeepCopy()
	kept.ManagedFields, kept.Annotations = nil, map[string]string{v1alpha1.AnnotationRollout: "hash"}
	kept.Spec = corev1.PodSpec{
		NodeName:       "node-1",
		InitContainers: []corev1.Container{{Name: "install", Image: "example.com/install:1"}},
		Containers:     []corev1.Container{{Name: "postgres", Image: "example.com/postgres:1"}},
	}
	kept.Status.PodIPs, kept.Status.HostIP = nil, ""
	for _, s := range []*corev1.ContainerStatus{&kept.Status.InitContainerStatuses[0], &kept.Status.ContainerStatuses[0]} {
		s.ContainerID, s.VolumeMounts, s.Resources = "", nil, nil
	}

	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metadata(), AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: new(int32(5432))}},
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{"10.0.0.1"}, NodeName: new("node-1"), Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true)},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "orders-0", Namespace: "shop", UID: "uid"},
		}, {Conditions: discoveryv1.EndpointConditions{Ready: new(false)}}},
	}
	keptSlice := slice.DeepCopy()
	keptSlice.ManagedFields, keptSlice.Annotations, keptSlice.Ports = nil, nil, nil
	keptSlice.Endpoints[0].Addresses, keptSlice.Endpoints[0].NodeName = nil, nil
	keptSlice.Endpoints[0].TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: "orders-0"}

	set := &appsv1.StatefulSet{
		ObjectMeta: metadata(), Spec: appsv1.StatefulSetSpec{Template: corev1.PodTemplateSpec{Spec: *pod.Spec.DeepCopy()}},
		Status: appsv1.StatefulSetStatus{ObservedGeneration: 3},
	}
	keptSet := set.DeepCopy()
	keptSet.ManagedFields = append(keptSet.ManagedFields[:1], keptSet.ManagedFields[2])

	for _, tc := range []struct {
		name     string
		in, want runtime.Object
	}{
		{"a pod", pod, kept},
		{"a pod that is lean already", kept.DeepCopy(), kept},
		{"an endpoint slice", slice, keptSlice},
		{"an object that is applied", set, keptSet},
		{"an empty object", &corev1.Secret{}, &corev1.Secret{}},
	} {
		got, err := LeanObject(tc.in)
		if diff := cmp.Diff(any(tc.want), got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", tc.name, err, diff)
		}
	}
}

// The mark of an object whose deletion the watch missed is no object.
func TestLeanLeavesOtherThingsAlone(t *testing.T) {
	gone := cache.DeletedFinalStateUnknown{Key: "shop/orders-0"}
	if got, err := LeanObject(gone); err != nil || got != any(gone) {
		t.Errorf("%v, %v", got, err)
	}
}

// What is said of who wrote an object is in memory once for all clusters.
func TestLeanSharesFieldsOfAllOwners(t *testing.T) {
	var kept []*metav1.FieldsV1
	for _, uid := range []string{"one", "other"} {
		set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{
			OwnerReferences: []metav1.OwnerReference{{UID: types.UID(uid)}},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: v1alpha1.FieldManager, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"` + uid + `\"}":{}}}}`)}},
		}}
		if _, err := LeanObject(set); err != nil {
			t.Fatal(err)
		}
		kept = append(kept, set.ManagedFields[0].FieldsV1)
	}
	if kept[0] != kept[1] {
		t.Errorf("%s and %s are kept both", kept[0], kept[1])
	}
}
