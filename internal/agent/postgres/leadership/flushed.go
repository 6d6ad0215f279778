package leadership

import (
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// flushedWAL is how far the WAL of a primary is on its disk, for renewals of the
// Lease.
type flushedWAL struct {
	mu sync.Mutex
	at lsn.Point
}

func (w *flushedWAL) setPosition(p lsn.Point) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = p
}

// annotateRenewal edits the annotations of the Lease. What it says of another timeline
// is no measure of this one.
func (w *flushedWAL) annotateRenewal(boot string) func(map[string]string) {
	return func(annotations map[string]string) {
		w.mu.Lock()
		at := w.at
		w.mu.Unlock()
		if at.Position == 0 {
			return
		}
		timeline := strconv.FormatInt(at.Timeline, 10)
		if annotations[leaseclient.AnnotationTimeline] != timeline {
			delete(annotations, leaseclient.AnnotationCheckpoint)
		}
		annotations[leaseclient.AnnotationTimeline] = timeline
		annotations[leaseclient.AnnotationFlushed] = wal.FormatPosition(at.Position)
		annotations[leaseclient.AnnotationBoot] = boot
	}
}

// readBootID reads the boot ID of the kernel; empty where it does not say.
func readBootID() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
