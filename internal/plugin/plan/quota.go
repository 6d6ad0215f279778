package plan

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/internal/forecast"
)

// usage is what volumes and pods of a cluster take of a namespace's quotas.
type usage map[corev1.ResourceName]resource.Quantity

func defaultStorage() resource.Quantity { return resource.MustParse("10Gi") }

// add more of a resource.
func (u usage) add(name corev1.ResourceName, more resource.Quantity) {
	sum := u[name].DeepCopy()
	sum.Add(more)
	u[name] = sum
}

// usageOf a world, at rest.
func usageOf(w *forecast.World) usage {
	u := usage{}
	one := resource.MustParse("1")
	volumes := slices.Collect(maps.Values(w.Observed.Volumes))
	if v := w.Observed.BackupVolume; v != nil {
		volumes = append(volumes, v)
	}
	for _, v := range volumes {
		size := v.Spec.Resources.Requests[corev1.ResourceStorage]
		u.add(corev1.ResourceRequestsStorage, size)
		u.add(corev1.ResourcePersistentVolumeClaims, one)
		if class := v.Spec.StorageClassName; class != nil && *class != "" {
			u.add(corev1.ResourceName(*class+".storageclass.storage.k8s.io/requests.storage"), size)
			u.add(corev1.ResourceName(*class+".storageclass.storage.k8s.io/persistentvolumeclaims"), one)
		}
	}
	for _, pod := range w.Observed.Pods {
		u.add(corev1.ResourcePods, one)
		for i := range pod.Spec.Containers {
			asks := pod.Spec.Containers[i].Resources
			for name, quantity := range asks.Requests {
				u.add(name, quantity)
				u.add("requests."+name, quantity)
			}
			for name, quantity := range asks.Limits {
				u.add("limits."+name, quantity)
			}
		}
	}
	return u
}

// quotas of namespaces, with what the clusters that were planned before take more of them.
type quotas struct {
	read  map[string][]corev1.ResourceQuota
	notes map[string]string
	taken map[string]usage
}

// load reads the quotas of a namespace once.
func (q *quotas) load(ctx context.Context, r client.Reader, namespace string) {
	if q.read == nil {
		q.read, q.notes, q.taken = map[string][]corev1.ResourceQuota{}, map[string]string{}, map[string]usage{}
	}
	if _, done := q.taken[namespace]; done {
		return
	}
	q.taken[namespace] = usage{}
	var list corev1.ResourceQuotaList
	if err := r.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		q.notes[namespace] = "the namespace's quotas could not be read"
		return
	}
	q.read[namespace] = list.Items
}

// judgeQuota compares what a cluster takes more, or less, with the quotas of its namespace.
func (p *Planner) judgeQuota(ctx context.Context, c Cluster, before, after usage) (Cluster, error) {
	if p.Client == nil {
		return c, nil
	}
	p.quotas.load(ctx, p.Client, c.Namespace)
	taken := p.quotas.taken[c.Namespace]
	if note := p.quotas.notes[c.Namespace]; note != "" && c.Changes() {
		c.Unknown = append(c.Unknown, note)
	}
	names := map[corev1.ResourceName]bool{}
	for name := range before {
		names[name] = true
	}
	for name := range after {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		more := after[name].DeepCopy()
		more.Sub(before[name])
		if more.IsZero() {
			continue
		}
		taken.add(name, more)
		for i := range p.quotas.read[c.Namespace] {
			c.compareQuota(&p.quotas.read[c.Namespace][i], name, taken[name], more)
		}
	}
	return c, nil
}

// compareQuota says what becomes of one resource of one quota.
func (c *Cluster) compareQuota(q *corev1.ResourceQuota, name corev1.ResourceName, taken, more resource.Quantity) {
	hard, limited := q.Spec.Hard[name]
	if !limited {
		return
	}
	have := q.Status.Used[name].DeepCopy()
	want := have.DeepCopy()
	want.Add(taken)
	have = want.DeepCopy()
	have.Sub(more)
	text := fmt.Sprintf("ResourceQuota %s: %s %s → %s of %s", q.Name, name, have.String(), want.String(), hard.String())
	c.Quota = append(c.Quota, text)
	if want.Cmp(hard) > 0 && more.Sign() > 0 {
		c.refuse("QuotaExceeded", text+": raise the quota, or ask for less")
	}
}
