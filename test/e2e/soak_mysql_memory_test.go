//go:build e2e && soak

package e2e

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-db/holdfast/test/podprocess"
)

// memoryLimit of the members that memoryLimited looks at, in bytes.
const memoryLimit = 1 << 30

// memoryLimited: members with a limit of 1 GiB, whose settings follow from it, take 1 GiB of
// data, give a copy to a new replica, sort 8 MiB in each of twenty sessions, and change
// their primary. None is ended for its memory, and what its processes took at most fits.
func memoryLimited(f *trial) {
	since := f.history.Now()
	f.fillMySQL()
	n := f.c.ordinalOf(f.chooseReplica().Name)
	server := f.c.serverOf(n)
	f.c.loseVolumes(n)
	f.c.awaitOtherServer(n, server)
	f.c.waitReady()
	pods := f.c.listPods()
	f.sortNoise(20)
	for i := range pods {
		f.checkMemory(&pods[i])
	}
	primary := f.leadingPod()
	deletePod(f.c.t, primary, false)
	f.c.awaitNewPod(primary)
	f.endEvent("members of 1 GiB of memory under load", since, true)
	pods = f.c.listPods()
	f.sortNoise(20)
	for i := range pods {
		f.checkMemory(&pods[i])
	}
}

// sortNoise sorts tables in so many sessions of every member at once.
func (f *trial) sortNoise(sessions int) {
	f.c.t.Helper()
	var group errgroup.Group
	for n := range f.c.listPods() {
		for i := range sessions {
			query := fmt.Sprintf("use app; select count(*) from (select noise from app.large_%d where n <= 2000 order by sha2(noise, 256) limit 100000) sorted", i%largeTables)
			group.Go(func() error {
				_, err := queryMySQL(f.c.t.Context(), f.c.namespace, f.c.podName(n), query)
				return err
			})
		}
	}
	must(f.c.t, group.Wait(), "sort")
}

// checkMemory of a member: its processes, and that no container was started again.
func (f *trial) checkMemory(pod *corev1.Pod) {
	f.c.t.Helper()
	for _, s := range pod.Status.ContainerStatuses {
		if s.RestartCount > 0 {
			f.c.t.Errorf("%s of %s was started again %d times: %+v", s.Name, pod.Name, s.RestartCount, s.LastTerminationState)
		}
	}
	processes, err := podprocess.List(podprocess.Proc, string(pod.UID))
	must(f.c.t, err, "list the processes of "+pod.Name)
	var all int64
	for _, p := range processes {
		peak := readPeak(f.c.t, p.PID)
		all += peak
		f.c.t.Logf("%s: %s took at most %d MiB", pod.Name, p.Name, peak>>20)
	}
	if all == 0 || all > memoryLimit {
		f.c.t.Errorf("%s: the processes took at most %d MiB, the limit is %d MiB", pod.Name, all>>20, memoryLimit>>20)
	}
}

// readPeak is the most memory of its own that a process was resident with, in bytes: the
// kernel's VmHWM without the mapped files, which a container can lose at any time.
func readPeak(t *testing.T, pid int) int64 {
	t.Helper()
	file, err := os.Open(filepath.Join(podprocess.Proc, strconv.Itoa(pid), "status"))
	must(t, err, "read a process")
	defer func() { _ = file.Close() }()
	sizes := map[string]int64{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		if name == "VmHWM" || name == "RssFile" {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			must(t, err, "read "+name)
			sizes[name] = n << 10
		}
	}
	return sizes["VmHWM"] - sizes["RssFile"]
}
