package addons

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

//go:embed flux.yaml
var fluxManifest []byte

// InstallFlux applies Flux's kinds and its kustomize-controller of that image.
func InstallFlux(ctx context.Context, kubeconfig, kubectl string, kinds []byte, image string) error {
	manifest := bytes.Replace(fluxManifest, []byte("image: kustomize-controller\n"), []byte("image: "+image+"\n"), 1)
	if err := applyManifests(ctx, kubeconfig, kubectl, kinds, manifest); err != nil {
		return fmt.Errorf("install Flux: %w", err)
	}
	return nil
}

// FluxReady says by an error what is not ready of Flux.
func FluxReady(ctx context.Context, client kubernetes.Interface) error {
	d, err := client.AppsV1().Deployments("flux-system").Get(ctx, "kustomize-controller", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("kustomize-controller: %w", err)
	}
	s := d.Status
	if s.ObservedGeneration < d.Generation || s.UpdatedReplicas < 1 || s.ReadyReplicas < 1 || s.Replicas != s.UpdatedReplicas {
		return fmt.Errorf("kustomize-controller: %d of %d replicas are ready, %d are of the new image", s.ReadyReplicas, s.Replicas, s.UpdatedReplicas)
	}
	return nil
}
