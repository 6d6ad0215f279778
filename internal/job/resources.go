package job

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
)

// MemberResources gives a Job what a member has, since the database recovers in
// it, and never less than Jobs have. Without a limit for members there is none.
func MemberResources(member corev1.ResourceRequirements) *corev1ac.ResourceRequirementsApplyConfiguration {
	least := defaultResources()
	if len(member.Requests)+len(member.Limits) == 0 {
		return least
	}
	requests, limits := maps.Clone(*least.Requests), corev1.ResourceList{}
	for name, limit := range member.Limits {
		limits[name] = maxQuantity(limit, (*least.Limits)[name])
		requests[name] = maxQuantity(limit, requests[name]) // as for members that say no request
	}
	for name, request := range member.Requests {
		requests[name] = maxQuantity(request, (*least.Requests)[name])
	}
	ac := corev1ac.ResourceRequirements().WithRequests(requests)
	if len(limits) > 0 {
		ac.WithLimits(limits)
	}
	return ac
}

// RequestMemory gives the program of a pod more memory, in bytes, where that is more than
// Jobs have.
func RequestMemory(pod *corev1ac.PodSpecApplyConfiguration, least int64) {
	r, memory := pod.Containers[0].Resources, *resource.NewQuantity(least, resource.BinarySI)
	for _, list := range []corev1.ResourceList{*r.Requests, *r.Limits} {
		list[corev1.ResourceMemory] = maxQuantity(list[corev1.ResourceMemory], memory)
	}
}

func maxQuantity(a, b resource.Quantity) resource.Quantity {
	if a.Cmp(b) < 0 {
		return b
	}
	return a
}

// defaultResources is what a container of a Job needs: a few parts of a backup are
// in memory at once. A quota may require limits, so there are some.
func defaultResources() *corev1ac.ResourceRequirementsApplyConfiguration {
	return corev1ac.ResourceRequirements().
		WithRequests(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("256Mi")}).
		WithLimits(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi")})
}
