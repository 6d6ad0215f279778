package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/internal/startup"
)

// managerContainer is the operator's container in its own pod; injected
// sidecars have other names.
const managerContainer = "manager"

// errNoImage says what is missing where the operator does not know its own image.
var errNoImage = errors.New("cannot tell the operator's own image, whose binary members run: set --agent-image, or POD_NAME and POD_NAMESPACE in the operator's pod")

// namespaceFile is where Kubernetes tells a pod its namespace, if the pod has a
// ServiceAccount.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// ownNamespace is the namespace of the operator's pods; empty outside of the cluster.
func ownNamespace(file string) string {
	if namespace := os.Getenv("POD_NAMESPACE"); namespace != "" {
		return namespace
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// ownImage is the image that this very process runs from, as its pod names it.
// It is read rather than declared twice, so that whatever sets the image of the
// Deployment sets the members' as well.
func ownImage(ctx context.Context, reader client.Reader) (string, error) {
	key := client.ObjectKey{Namespace: os.Getenv("POD_NAMESPACE"), Name: os.Getenv("POD_NAME")}
	if key.Name == "" || key.Namespace == "" {
		return "", &startup.Permanent{Err: errNoImage}
	}
	pod := &corev1.Pod{}
	if err := reader.Get(ctx, key, pod); err != nil {
		return "", fmt.Errorf("%w (reading the pod: %w)", errNoImage, err)
	}
	for _, c := range pod.Spec.Containers {
		if c.Name == managerContainer && c.Image != "" {
			return c.Image, nil
		}
	}
	return "", &startup.Permanent{Err: fmt.Errorf("%w (pod %s has no container %s)", errNoImage, key, managerContainer)}
}
