//go:build e2e || soak

package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/test/faultplan"
	"github.com/holdfast-db/holdfast/test/podprocess"
)

// chaosFault is a kind of fault.
type chaosFault struct {
	kind string
	// alone overlaps with no other fault. Wide concerns every cluster of the machine.
	// Loses may lose acknowledged writes in synchronous mode, too.
	alone, wide, loses bool
	// begin returns what it did, and how the fault ends, if it does not end by itself.
	begin func(*chaos, targets, faultplan.Fault) (what string, heal func() error, err error)
}

// orderedFaults are all kinds, in the order that a seed refers to.
func orderedFaults() []chaosFault {
	return []chaosFault{
		{kind: "pod deleted", begin: onePod(func(_ *chaos, pod *corev1.Pod, _ faultplan.Fault) (string, func() error, error) {
			return "with grace", nil, requestWithin(func(ctx context.Context) error { return env.client.Delete(ctx, pod, onlyThis(pod)) })
		})},
		{kind: "pod deleted by force", begin: onePod(func(_ *chaos, pod *corev1.Pod, _ faultplan.Fault) (string, func() error, error) {
			return "without grace", nil, requestWithin(func(ctx context.Context) error {
				return env.client.Delete(ctx, pod, onlyThis(pod), client.GracePeriodSeconds(0))
			})
		})},
		{kind: "processes killed", begin: onePod(killProcesses)},
		{kind: "processes frozen", begin: onePod(freezeProcesses)},
		{kind: "pod cut off", begin: onePod(cutOff)},
		{kind: "API server not reached", begin: cutFromAPI},
		{kind: "switchover", begin: onePod(requestLeader)},
		{kind: "Lease lost", alone: true, loses: true, begin: loseLease},
		{kind: "volume frozen", begin: onePod(freezeVolume)},
		{kind: "node cut off", wide: true, begin: onePod(func(_ *chaos, pod *corev1.Pod, _ faultplan.Fault) (string, func() error, error) {
			heal, err := beginToolFault([]string{"cut", pod.Spec.NodeName}, []string{"heal", pod.Spec.NodeName})
			return pod.Spec.NodeName, heal, err
		})},
		{kind: "API server stopped", wide: true, begin: func(*chaos, targets, faultplan.Fault) (string, func() error, error) {
			heal, err := beginToolFault([]string{"pause", "kube-apiserver"}, []string{"resume", "kube-apiserver"})
			return "for all", heal, err
		}},
		{kind: "operator stopped", wide: true, alone: true, begin: stopOperator},
	}
}

// chaosFaults are those of a run, by kind. Volumes are frozen only where they can be.
func chaosFaults(o chaosOptions) map[string]chaosFault {
	chosen := map[string]chaosFault{}
	for _, f := range orderedFaults() {
		if f.wide && !o.wide || f.loses && o.synchronous || f.kind == "volume frozen" && !o.freezable {
			continue
		}
		chosen[f.kind] = f
	}
	return chosen
}

// aloneKinds overlap with no other one.
func aloneKinds() []string {
	var kinds []string
	for _, f := range orderedFaults() {
		if f.alone {
			kinds = append(kinds, f.kind)
		}
	}
	return kinds
}

// targets are the members' pods, and which of them leads.
type targets struct {
	pods    []corev1.Pod
	primary types.UID
}

// listTargets is what there is before a step. What cannot be read is not there.
func (c *chaos) listTargets() (t targets) {
	err := requestWithin(func(ctx context.Context) (err error) {
		if t.pods, err = memberPods(ctx, c.namespace, c.name); err != nil {
			return err
		}
		leads, err := readLeadership(ctx, c.namespace, c.name)
		t.primary = leads.holder
		return err
	})
	if err != nil {
		c.note("targets: %v", err)
	}
	return t
}

// choose is the pod that a fault strikes.
func (t targets) choose(f faultplan.Fault) (*corev1.Pod, error) {
	running := slices.DeleteFunc(slices.Clone(t.pods), func(p corev1.Pod) bool { return p.Status.PodIP == "" || p.Spec.NodeName == "" })
	for i := range running {
		if f.Primary && running[i].UID == t.primary {
			return &running[i], nil
		}
	}
	if len(running) == 0 {
		return nil, errNoTarget
	}
	return &running[f.Pick%len(running)], nil
}

// onePod is a fault of the pod that was drawn.
func onePod(begin func(*chaos, *corev1.Pod, faultplan.Fault) (string, func() error, error)) func(*chaos, targets, faultplan.Fault) (string, func() error, error) {
	return func(c *chaos, t targets, f faultplan.Fault) (string, func() error, error) {
		pod, err := t.choose(f)
		if err != nil {
			return "", nil, err
		}
		what, heal, err := begin(c, pod, f)
		role := "a replica"
		if pod.UID == t.primary {
			role = "the primary"
		}
		return fmt.Sprintf("%s (%s): %s", pod.Name, role, what), heal, err
	}
}

func onlyThis(pod *corev1.Pod) client.Preconditions { return client.Preconditions{UID: &pod.UID} }

func killProcesses(_ *chaos, pod *corev1.Pod, f faultplan.Fault) (string, func() error, error) {
	role := chooseOf(f, podprocess.Postmaster, podprocess.Agent, podprocess.Guard, podprocess.Backends)
	return string(role), nil, podprocess.Kill(podprocess.Proc, string(pod.UID), role)
}

func freezeProcesses(_ *chaos, pod *corev1.Pod, f faultplan.Fault) (string, func() error, error) {
	role := chooseOf(f, podprocess.All, podprocess.Agent, podprocess.Guard, podprocess.Postmaster, podprocess.Backends, podprocess.WALReceiver)
	heal := func() error { return podprocess.Continue(podprocess.Proc, string(pod.UID)) }
	_, err := podprocess.Freeze(podprocess.Proc, string(pod.UID), role)
	if role == podprocess.WALReceiver && errors.Is(err, podprocess.ErrNotFound) { // of a primary
		role = podprocess.Backends
		_, err = podprocess.Freeze(podprocess.Proc, string(pod.UID), role)
	}
	if err != nil {
		return string(role), nil, errors.Join(err, heal())
	}
	return string(role), heal, nil
}

func cutOff(_ *chaos, pod *corev1.Pod, f faultplan.Fault) (string, func() error, error) {
	way := chooseOf(f, bothWays, outgoing, incoming)
	begin, end := podCut(pod, way)
	heal, err := beginToolFault(begin, end)
	return string(way), heal, err
}

// cutFromAPI keeps one member from the API server, or all of them.
func cutFromAPI(_ *chaos, t targets, f faultplan.Fault) (string, func() error, error) {
	pod, err := t.choose(f)
	if err != nil {
		return "", nil, err
	}
	pods := []corev1.Pod{*pod}
	if f.Variant%2 == 0 {
		pods = t.pods
	}
	var names []string
	var heals []func() error
	for i := range pods {
		if pods[i].Status.PodIP == "" {
			continue
		}
		begin, end := podCut(&pods[i], bothWays, apiServerAddress)
		heal, beginErr := beginToolFault(begin, end)
		err = errors.Join(err, beginErr)
		if heal != nil {
			heals = append(heals, heal)
		}
		names = append(names, pods[i].Name)
	}
	return strings.Join(names, ", "), func() error {
		var errs []error
		for _, heal := range heals {
			errs = append(errs, heal())
		}
		return errors.Join(errs...)
	}, err
}

// requestLeader requests a switchover to the pod; to the one that leads for a test of
// its refusal.
func requestLeader(c *chaos, pod *corev1.Pod, f faultplan.Fault) (string, func() error, error) {
	id := fmt.Sprintf("chaos-%d-%d", f.Pick, len(c.events))
	return id, nil, requestWithin(func(ctx context.Context) error { return c.annotateSwitchover(ctx, id, pod.Name) })
}

// loseLease deletes the Lease while its holder renews it, or empties it. Only that holder
// writes it again: without one, a person would have to decide. So it ends when that is done.
func loseLease(c *chaos, _ targets, f faultplan.Fault) (string, func() error, error) {
	first := ""
	isRenewed := func(l *coordinationv1.Lease) bool {
		first = cmp.Or(first, l.ResourceVersion)
		return hasHolder(l) && l.ResourceVersion != first
	}
	if c.awaitLease(leaseDuration/2, isRenewed) != nil {
		return "", nil, errNoTarget
	}
	heal := func() error {
		if err := c.awaitLease(failoverTimeout, hasHolder); err != nil {
			return fmt.Errorf("the holder does not write the Lease again: %w", err)
		}
		return nil
	}
	if f.Variant%2 == 0 {
		return "deleted", heal, requestWithin(c.deleteLease)
	}
	return "emptied", heal, requestWithin(c.emptyLease)
}

func hasHolder(l *coordinationv1.Lease) bool { return ptr.Deref(l.Spec.HolderIdentity, "") != "" }

// awaitLease waits until the Lease is as it should be.
func (c *chaos) awaitLease(limit time.Duration, is func(*coordinationv1.Lease) bool) error {
	return wait.PollUntilContextTimeout(context.Background(), 100*time.Millisecond, limit, true, func(ctx context.Context) (bool, error) {
		l := c.leaseObject()
		err := env.client.Get(ctx, client.ObjectKeyFromObject(l), l)
		return err == nil && is(l), nil
	})
}

// stopOperator has no operator run for a time.
func stopOperator(c *chaos, _ targets, _ faultplan.Fault) (string, func() error, error) {
	replicas := installedReplicas(c.t)
	set := func(n int32) error {
		return requestWithin(func(ctx context.Context) error { return installed.setReplicas(ctx, n) })
	}
	return "scaled to 0", func() error { return set(replicas) }, set(0)
}

// chooseOf is the variant that was drawn.
func chooseOf[T any](f faultplan.Fault, of ...T) T { return of[f.Variant%len(of)] }

// beginToolFault runs a command of test/cluster, and later the one that ends it.
func beginToolFault(begin, end []string) (heal func() error, err error) {
	heal = func() error { return runClusterTool(context.Background(), end...) }
	if err := runClusterTool(context.Background(), begin...); err != nil {
		return nil, errors.Join(err, heal())
	}
	return heal, nil
}
