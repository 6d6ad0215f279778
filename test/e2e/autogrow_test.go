//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// volumesGrowThemselves fills volumes that are really full when they are full:
// past the threshold by an application's rows, up to the last byte while
// nothing may grow, and at the maximum.
func volumesGrowThemselves(t *testing.T) {
	c := newCluster(t, 2, func(obj *v1alpha1.PostgresCluster) {
		obj.Spec.Storage = v1alpha1.StorageSpec{
			Size: resource.MustParse("512Mi"), StorageClass: "sized",
			AutoGrow: &v1alpha1.AutoGrowSpec{MaxSize: resource.MustParse("3Gi")},
		}
	})
	declared := c.waitReady().Generation
	w := c.startWriter()

	pods, mark := [2]string{c.podIncarnation(0), c.podIncarnation(1)}, c.markPlace()
	c.runSQL(leading, "create table filler (id int, content text)")
	eventually(t, readyTimeout, "the volumes grow as rows are written", func(ctx context.Context) error {
		if sizes := c.claimSizes(); sizes[0] > 512<<20 && sizes[1] == sizes[0] {
			return nil
		}
		_, err := runLocalQuery(ctx, c.namespace, c.podName(leading), "app", "insert into filler select i, repeat(md5(i::text), 30) from generate_series(1, 8000) i")
		if err == nil {
			err = fmt.Errorf("they are of %v", c.claimSizes())
		}
		return err
	})
	c.waitGrown()
	waitEvent(t, c.subject, v1alpha1.ReasonVolumeGrows, c.volumeName(0), "from 512Mi")
	for _, status := range c.sinceMark(mark) {
		// So much at once makes a replica fall behind on a busy machine, and
		// Ready says that. It says nothing of a volume.
		ready := meta.FindStatusCondition(status.GetConditions(), v1alpha1.ConditionReady)
		if ready == nil || status.GetGeneration() != declared || ready.Status != "True" && isAboutVolumes(ready) {
			t.Errorf("a volume that grew by itself shows in Ready: %+v", ready)
		}
	}
	if now := [2]string{c.podIncarnation(0), c.podIncarnation(1)}; now != pods {
		t.Errorf("growing touched the pods: %v, before %v", now, pods)
	}
	w.goesOn()

	// Nothing grows while the cluster is suspended, so the volume fills up.
	c.editCluster(func(obj *v1alpha1.PostgresCluster) { obj.Spec.Suspend = true })
	primary := c.findLeading()
	c.fillVolume(primary, 100)
	eventually(t, stalledTimeout, "the database stops on its full volume", func(ctx context.Context) error {
		// What fails does so because the disk is full; the WAL has to go on to a new file.
		_, err := runLocalQuery(ctx, c.namespace, c.podName(primary), "app", "select pg_switch_wal(); insert into filler select i, repeat(md5(i::text), 30) from generate_series(1, 20000) i")
		for _, m := range c.getCluster().Status.Members {
			if m.Name == c.podName(primary) && m.State == string(agentapi.StateHeld) {
				return nil
			}
		}
		return fmt.Errorf("it still runs: %w", err)
	})
	c.waitStalled(v1alpha1.ReasonVolumeFull, "spec.suspend")
	before := c.claimSizes()
	c.editCluster(func(obj *v1alpha1.PostgresCluster) { obj.Spec.Suspend = false })
	c.waitReady()
	w.goesOn()
	if after := c.claimSizes(); after[0] <= before[0] || after[1] != after[0] {
		t.Errorf("the volumes were of %v, and are of %v", before, after)
	}
	c.emptyVolume(0)
	w.stopWriting()
	c.waitReplayed(1)
	w.checkMember(1)

	// At the maximum the cluster serves, and says so.
	c.waitGrown()
	most := *resource.NewQuantity(c.claimSizes()[0], resource.BinarySI)
	c.editCluster(func(obj *v1alpha1.PostgresCluster) { obj.Spec.Storage.AutoGrow.MaxSize = most })
	c.waitReady()
	c.fillVolume(1, 90)
	c.waitCondition(stalledTimeout, v1alpha1.ConditionDegraded, "True", v1alpha1.ReasonStorageAtMaximum, "spec.storage.autoGrow.maxSize "+most.String(), c.volumeName(1))
	must(t, rolledOut(c.getCluster()), "a cluster at the maximum is ready")
	c.emptyVolume(1)
	c.waitFor(stalledTimeout, "there is disk space again", func(obj *v1alpha1.PostgresCluster) error {
		if cond := meta.FindStatusCondition(obj.Status.Conditions, v1alpha1.ConditionDegraded); cond != nil {
			return fmt.Errorf("%s: %s", cond.Reason, cond.Message)
		}
		return rolledOut(obj)
	})
}

// isAboutVolumes: a condition says something of volumes or of disk space.
func isAboutVolumes(cond *metav1.Condition) bool {
	said := strings.ToLower(cond.Reason + " " + cond.Message)
	return slices.ContainsFunc([]string{"volume", "storage", "resiz", "full", "disk", "grow"}, func(word string) bool {
		return strings.Contains(said, word)
	})
}

// claimSizes are the sizes in bytes that the claims of both members ask for.
func (c *cluster) claimSizes() [2]int64 {
	c.t.Helper()
	var sizes [2]int64
	for n := range sizes {
		var claim corev1.PersistentVolumeClaim
		c.readObject(&claim, c.volumeName(n))
		sizes[n] = claim.Spec.Resources.Requests.Storage().Value()
	}
	return sizes
}

// waitGrown waits until the members see volumes of the size that was asked for.
func (c *cluster) waitGrown() {
	c.t.Helper()
	eventually(c.t, readyTimeout, "the volumes have their size", func(ctx context.Context) error {
		for n, want := range c.claimSizes() {
			out, err := runCommand(ctx, c.namespace, c.podName(n), "", "df", "-B1", "--output=size", agentapi.DataDir)
			if err != nil {
				return err
			}
			if fields := strings.Fields(out); fields[len(fields)-1] != fmt.Sprint(want) {
				return fmt.Errorf("%s has %s, want %d", c.podName(n), fields[len(fields)-1], want)
			}
		}
		return nil
	})
}

// fillerFile is what fill writes: a name that no agent takes for data.
const fillerFile = agentapi.DataDir + "/.filler"

// fillVolume fills a member's volume to a share of it, in percent, or until nothing
// more fits.
func (c *cluster) fillVolume(ordinal, percent int) {
	c.t.Helper()
	script := fmt.Sprintf(`bytes() { df -B1 --output="$1" %[1]s | tail -n 1; }
head -c $(($(bytes size) * %[2]d / 100 - $(bytes used))) /dev/zero > %[3]s || true`, agentapi.DataDir, percent, fillerFile)
	_, err := runCommand(c.t.Context(), c.namespace, c.podName(ordinal), "", "sh", "-c", script)
	must(c.t, err, "fill the volume of "+c.podName(ordinal))
}

// emptyVolume takes away what fill wrote.
func (c *cluster) emptyVolume(ordinal int) {
	c.t.Helper()
	_, err := runCommand(c.t.Context(), c.namespace, c.podName(ordinal), "", "rm", fillerFile)
	must(c.t, err, "remove the filler of "+c.podName(ordinal))
}
