//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// freezer is the container that can freeze the store beside it.
const freezer = "freezer"

// makeFreezable lets a store's pod be frozen: it then takes connections and requests,
// and answers none.
func makeFreezable(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	pod.Spec.ShareProcessNamespace = ptr.To(true)
	have := imageVersions("postgres", "17")
	helper := pod.Spec.Containers[0].DeepCopy()
	helper.Name, helper.Image = freezer, imageRef(t, "postgres", have[len(have)-1])
	helper.Command, helper.Args, helper.Env, helper.VolumeMounts = []string{"sleep", "infinity"}, nil, nil, nil
	helper.ReadinessProbe = nil
	store := &pod.Spec.Containers[0]
	// A frozen store stays behind its Service.
	store.StartupProbe, store.ReadinessProbe = store.ReadinessProbe, nil
	store.StartupProbe.FailureThreshold = 60
	pod.Spec.Containers = append([]corev1.Container{*helper}, pod.Spec.Containers...)
}

// newFreezableStore starts one that can be frozen.
func newFreezableStore(t *testing.T, size string) *store {
	t.Helper()
	return newStoreOf(t, "", size, makeFreezable)
}

// signalStore sends a signal to the store's process.
func (s *store) signalStore(signal string) {
	s.t.Helper()
	script := `for p in /proc/[0-9]*; do if tr '\0' ' ' < $p/cmdline | grep -q -- '--iam-[d]ir'; then kill -` + signal + ` ${p#/proc/}; n=1; fi; done; [ -n "$n" ]`
	_, err := runCommand(inContainer(s.t.Context(), freezer), s.namespace, storeName, "", "sh", "-c", script)
	must(s.t, err, "send the store "+signal)
}

// slowStore: a store that takes requests and answers none, and a volume with 45 MiB
// left. The database goes on, says what keeps its volume full, and the archive goes
// on when the store does.
func slowStore(t *testing.T) {
	s := newFreezableStore(t, "2Gi")
	c := newSubject(t, postgres, 1, "storage: {size: 512Mi, storageClass: sized}")
	s.giveKeys(c.namespace)
	c.waitReady()
	at := fmt.Sprintf("url: 's3://%s/slow', endpoint: '%s', pathStyle: true, credentialsSecretRef: {name: keys}", bucket, s.endpointURL())
	c.changeSpec("backup: {enabled: true, continuous: true, schedule: '0 0 1 1 *', destination: {" + at + "}}")
	c.waitReady()
	archive := fmt.Sprintf("slow/%s/%s/%s/wal/", c.namespace, c.name, c.getCluster().GetUID())
	s.waitStored(archive + storedSegment(c.closeSegment()))
	c.madeBackup("-first-")
	c.waitReady()
	begun := c.postmasterStart()

	w := c.startWriter()
	s.signalStore("STOP")
	(&cluster{c}).fillVolume(0, 91)
	for range 8 {
		c.closeSegment()
		time.Sleep(5 * time.Second) // an application that writes 3 MB a second
	}
	c.waitCondition(archiveTimeout, v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonArchiveGap, "disk space", "spec.backup.destination", "spec.storage.size")
	w.goesOn()
	if now := c.postmasterStart(); now != begun {
		t.Errorf("the database was started at %s, and again at %s", begun, now)
	}

	s.signalStore("CONT")
	s.waitStored(archive + storedSegment(c.closeSegment()))
	if len(s.listKeys(archive+"gaps/")) > 0 {
		(&cluster{c}).emptyVolume(0)
		c.madeBackup("-gap-")
	}
	c.waitReady()
	w.stopWriting()
	if now := c.postmasterStart(); now != begun {
		t.Errorf("the database was started at %s, and again at %s", begun, now)
	}
}

// postmasterStart is when the database of the first member was started.
func (c *subject) postmasterStart() string {
	c.t.Helper()
	out, err := runLocalQuery(c.t.Context(), c.namespace, c.podName(leading), "app", "select pg_postmaster_start_time()")
	must(c.t, err, "ask when the database was started")
	return strings.TrimSpace(out)
}

// fullVolume: a heap that cannot be extended is reported at once and without
// moving back and forth, and no longer when the volume has grown.
func fullVolume(t *testing.T) {
	c := newCluster(t, 2, func(obj *v1alpha1.PostgresCluster) {
		obj.Spec.Storage = v1alpha1.StorageSpec{Size: resource.MustParse("512Mi"), StorageClass: "sized"}
	})
	c.waitReady()
	c.runSQL(leading, "create table heap (id int, content text)")
	before := c.allIncarnations()
	c.fillVolume(0, 100)
	fails := func(ctx context.Context) error {
		_, err := runLocalQuery(ctx, c.namespace, c.podName(0), "app", "insert into heap select i, repeat(md5(i::text), 30) from generate_series(1, 2000) i")
		return err
	}
	eventually(t, stalledTimeout, "writes fail for want of disk space", func(ctx context.Context) error {
		if err := fails(ctx); err != nil && strings.Contains(err.Error(), "No space left on device") {
			return nil
		}
		return fmt.Errorf("they do not")
	})
	c.waitCondition(stalledTimeout, v1alpha1.ConditionAvailable, metav1.ConditionFalse, v1alpha1.ReasonVolumeFull, c.volumeName(0))
	c.waitStalled(v1alpha1.ReasonVolumeFull, "spec.storage.size", "spec.storage.autoGrow.maxSize", c.volumeName(0))
	mark := c.markPlace()
	for range 20 { // as an application does that is not stopped
		_ = fails(t.Context())
		time.Sleep(time.Second)
	}
	var said []string
	for _, status := range c.sinceMark(mark) {
		for _, kind := range []string{v1alpha1.ConditionAvailable, v1alpha1.ConditionReady} {
			cond := meta.FindStatusCondition(status.GetConditions(), kind)
			if text := kind + " " + string(cond.Status) + " " + cond.Message; !slices.Contains(said, text) {
				said = append(said, text)
			}
		}
	}
	if len(said) > 2 {
		t.Errorf("the status moves while nothing does:\n%s", strings.Join(said, "\n"))
	}

	c.editCluster(func(obj *v1alpha1.PostgresCluster) { obj.Spec.Storage.Size = resource.MustParse("1Gi") })
	c.waitReady()
	eventually(t, stalledTimeout, "writes go on", fails)
	if now := c.allIncarnations(); now != before {
		t.Errorf("members were restarted: %s, before %s", now, before)
	}
	c.waitReplayed(1)
	if one, two := c.runSQL(leading, "select md5(string_agg(id || content, '' order by id, ctid)) from heap"), c.runSQL(1, "select md5(string_agg(id || content, '' order by id, ctid)) from heap"); one != two {
		t.Errorf("the members differ: %s and %s", one, two)
	}
}
