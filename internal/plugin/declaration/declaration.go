// Package declaration computes what the operator would apply for a cluster,
// with the rights of the user that asks. It acts on nothing.
package declaration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentclient"
	"github.com/holdfast-db/holdfast/internal/apply"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// Declaration is what should exist.
type Declaration struct {
	Objects []runtime.ApplyConfiguration
	// Notes say what could not be known.
	Notes []string
}

// silentAgents stands for the members' agents, which answer the operator only. What
// should exist does not depend on them but while members come or go.
type silentAgents struct{}

func (silentAgents) Watch(types.NamespacedName, types.UID, agentclient.Target) {}

func (silentAgents) Get(types.NamespacedName) map[string]agentclient.Observation { return nil }

// unreadSecrets stands for the Secrets that a cluster names: what the operator took of
// them is in its own.
type unreadSecrets struct{}

func (unreadSecrets) ReadVersions(context.Context, types.NamespacedName, ...string) (map[string]string, error) {
	return nil, nil
}

func (unreadSecrets) Read(context.Context, types.NamespacedName) (*corev1.Secret, error) {
	return nil, errors.New("users' Secrets are not read to detect drift")
}

// FromEngine runs an engine's own observation and plan with the rights of the
// caller, and acts on nothing. The operator's settings are not in the API. The
// hashes that the operator noted on objects show which of the candidates it has. The
// function membersOf returns the members' part of an observation.
func FromEngine[C v1alpha1.Cluster, O any](newEngine func(*memberset.MemberEngine) engine.Engine[C, O], membersOf func(*O) *memberset.Observation,
) func(context.Context, client.Reader, v1alpha1.Cluster) (Declaration, error) {
	return func(ctx context.Context, r client.Reader, cluster v1alpha1.Cluster) (Declaration, error) {
		c, ok := cluster.(C)
		if !ok {
			return Declaration{}, fmt.Errorf("%T is of another kind", cluster)
		}
		e := newEngine(&memberset.MemberEngine{Reader: r, Members: silentAgents{}, Secrets: unreadSecrets{}, Clock: clock.RealClock{}})
		observed, err := e.Observe(ctx, c)
		if err != nil {
			return Declaration{}, err
		}
		o := membersOf(&observed)
		o.Settings.ImageRepository = imageRepository(c.CommonStatus().Image)
		images := agentImages(ctx, r, *o)
		if len(images) == 0 {
			return Declaration{Notes: listUnknowns(c, *o)}, nil
		}
		plan := func() []runtime.ApplyConfiguration { return e.Plan(c, observed, time.Now()).Objects }
		policy := readNetworkPolicy(ctx, r, c)
		err = errors.Join(
			setLikeliest(func(namespace string) { o.Settings.OperatorNamespace = namespace }, operatorNamespaces(ctx, r, policy), notedHash(policy),
				func() (string, error) { return hashOf[*networkingv1ac.NetworkPolicyApplyConfiguration](plan()) }),
			setLikeliest(func(image string) { o.Settings.AgentImage = image }, images, notedHash(o.StatefulSet),
				func() (string, error) { return hashOf[*appsv1ac.StatefulSetApplyConfiguration](plan()) }))
		if err != nil {
			return Declaration{}, err
		}
		return Declaration{plan(), listUnknowns(c, *o)}, nil
	}
}

// setLikeliest sets that candidate with which an object has the hash that the operator
// noted on it; the first one where there is none.
func setLikeliest(set func(string), candidates []string, noted string, hash func() (string, error)) error {
	for _, candidate := range candidates {
		set(candidate)
		got, err := hash()
		if err != nil || got == noted {
			return err
		}
	}
	set(candidates[0])
	return nil
}

// notedHash is the hash that the operator noted on an object; empty without one.
func notedHash[T any, P interface {
	*T
	metav1.Object
}](o P) string {
	if o == nil {
		return ""
	}
	return o.GetAnnotations()[v1alpha1.AnnotationAppliedHash]
}

// listUnknowns say what only the operator or the members know.
func listUnknowns(c v1alpha1.Cluster, o memberset.Observation) []string {
	var list []string
	for suffix, data := range map[string]map[string][]byte{v1alpha1.SuffixCA: o.Minted.CA, v1alpha1.SuffixInternal: o.Minted.Internal, objects.SuffixTLS: o.Minted.TLS} {
		if data == nil && (suffix != v1alpha1.SuffixCA || c.Common().TLS.CASecretRef == nil) {
			list = append(list, fmt.Sprintf("Secret/%s%s is missing: only the operator can say what it held; it puts it back, or makes a new one", c.GetName(), suffix))
		}
	}
	slices.Sort(list)
	if have, want := int(c.CommonStatus().Replicas), c.Common().DesiredReplicas(); have != want {
		list = append(list, fmt.Sprintf("the cluster is on its way from %d to %d members, one after the other: their number is compared as it is now", have, want))
	}
	return list
}

// imageRepository is the repository of an image reference, without tag and digest.
func imageRepository(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if colon := strings.LastIndex(image, ":"); colon > strings.LastIndex(image, "/") {
		image = image[:colon]
	}
	return image
}

// agentImages are what the operator may inject, the likeliest first: what its
// own Deployment says, where one may read it, and what is in use.
func agentImages(ctx context.Context, r client.Reader, o memberset.Observation) []string {
	var images []string
	add := func(image string) {
		if image != "" && !slices.Contains(images, image) {
			images = append(images, image)
		}
	}
	var operators appsv1.DeploymentList
	if err := r.List(ctx, &operators, client.MatchingLabels(objects.OperatorLabels())); err == nil {
		for i := range operators.Items {
			for _, container := range operators.Items[i].Spec.Template.Spec.Containers {
				for _, env := range container.Env {
					if env.Name == "HOLDFAST_AGENT_IMAGE" {
						add(env.Value)
					}
				}
			}
		}
	}
	installers := func(spec corev1.PodSpec) {
		for _, container := range spec.InitContainers {
			if len(container.Args) > 1 && container.Args[0] == "agent" && container.Args[1] == "install" {
				add(container.Image)
			}
		}
	}
	if o.StatefulSet != nil {
		installers(o.StatefulSet.Spec.Template.Spec)
	}
	for _, pod := range o.Pods {
		installers(pod.Spec)
	}
	return images
}

// readNetworkPolicy reads a cluster's; nil where there is none, or it may not be read.
func readNetworkPolicy(ctx context.Context, r client.Reader, c client.Object) *networkingv1.NetworkPolicy {
	policy := &networkingv1.NetworkPolicy{}
	if r.Get(ctx, client.ObjectKeyFromObject(c), policy) != nil {
		return nil
	}
	return policy
}

// operatorNamespaces are where the operator may be, the likeliest first: whom the cluster's
// NetworkPolicy lets in, where there is a Deployment of an operator, and the usual one. The
// last one is empty, as for an operator outside of the cluster.
func operatorNamespaces(ctx context.Context, r client.Reader, policy *networkingv1.NetworkPolicy) []string {
	var namespaces []string
	add := func(namespace string) {
		if !slices.Contains(namespaces, namespace) {
			namespaces = append(namespaces, namespace)
		}
	}
	if policy != nil {
		for _, rule := range policy.Spec.Ingress {
			for _, peer := range rule.From {
				if peer.NamespaceSelector != nil && peer.PodSelector != nil && maps.Equal(peer.PodSelector.MatchLabels, objects.OperatorLabels()) {
					add(peer.NamespaceSelector.MatchLabels[corev1.LabelMetadataName])
				}
			}
		}
	}
	var operators appsv1.DeploymentList
	if err := r.List(ctx, &operators, client.MatchingLabels(objects.OperatorLabels())); err == nil {
		for i := range operators.Items {
			add(operators.Items[i].Namespace)
		}
	}
	add("holdfast-system")
	add("")
	return namespaces
}

// hashOf is the hash of the only object of a type; empty where there is none.
func hashOf[T runtime.ApplyConfiguration](objects []runtime.ApplyConfiguration) (string, error) {
	for _, ac := range objects {
		if found, is := ac.(T); is {
			return apply.Hash(found)
		}
	}
	return "", nil
}
