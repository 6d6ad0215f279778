package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestOwnImage(t *testing.T) {
	pod := func(containers ...corev1.Container) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "holdfast-system", Name: "holdfast-1"},
			Spec:       corev1.PodSpec{Containers: containers},
		}
	}
	for name, test := range map[string]struct {
		pod             *corev1.Pod
		podName, podsNS string
		want            string
	}{
		"the image of the container named manager": {
			pod:     pod(corev1.Container{Name: "manager", Image: "mirror.example/holdfast:v2"}),
			podName: "holdfast-1", podsNS: "holdfast-system", want: "mirror.example/holdfast:v2",
		},
		"a sidecar that was injected before it is not taken": {
			pod:     pod(corev1.Container{Name: "proxy", Image: "proxy:1"}, corev1.Container{Name: "manager", Image: "holdfast:v2"}),
			podName: "holdfast-1", podsNS: "holdfast-system", want: "holdfast:v2",
		},
		"no container of that name": {
			pod: pod(corev1.Container{Name: "other", Image: "holdfast:v2"}), podName: "holdfast-1", podsNS: "holdfast-system",
		},
		"the pod is not there":      {pod: pod(), podName: "holdfast-2", podsNS: "holdfast-system"},
		"the pod's name is unknown": {pod: pod(), podsNS: "holdfast-system"},
		"its namespace is unknown":  {pod: pod(), podName: "holdfast-1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("POD_NAME", test.podName)
			t.Setenv("POD_NAMESPACE", test.podsNS)
			image, err := ownImage(t.Context(), fake.NewClientBuilder().WithObjects(test.pod).Build())
			if image != test.want {
				t.Errorf("image %q, want %q", image, test.want)
			}
			if (test.want == "") != errors.Is(err, errNoImage) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// Members let the operator's pods in from its namespace: it is known in any pod, and there
// is none outside of a cluster.
func TestOwnNamespace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "namespace")
	check := func(env, want string) {
		t.Helper()
		t.Setenv("POD_NAMESPACE", env)
		if got := ownNamespace(file); got != want {
			t.Errorf("with POD_NAMESPACE=%s the namespace is %q, want %q", env, got, want)
		}
	}
	check("", "")
	check("holdfast-shard-a", "holdfast-shard-a")
	if err := os.WriteFile(file, []byte("databases-operator\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	check("", "databases-operator")
	check("holdfast-shard-a", "holdfast-shard-a")
}
