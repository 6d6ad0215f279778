package postgres

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// membersPatience is how long a member that would lead waits for the answers of
// the others.
const membersPatience = 10 * time.Second

// reportRequest reports the request that was carried out last.
func reportRequest(r leaderRecord) func(*agentapi.Status) {
	return func(s *agentapi.Status) {
		if r.Pending == 0 {
			s.Recovered = r.Request
		}
	}
}

// observeLeading collects what only a primary's start is decided from.
func (a *postgresAgent) observeLeading(ctx context.Context, o *observation) error {
	o.Lease = a.readLease(ctx)
	o.Taken, o.Continues, o.PodUID, o.Boot = a.taken, a.led, a.o.Identity.PodUID, a.boot
	if o.Volume.Content != contentData {
		return nil
	}
	record, err := readLeader(a.o.DataDir)
	if err != nil {
		return err
	}
	if o.Leader = record.completeRecord(o.Volume.Control); o.Leader != record {
		if err := writeLeader(a.o.DataDir, o.Leader); err != nil {
			return err
		}
	}
	a.Store.Update(reportRequest(o.Leader))
	config, _ := a.Config.Current()
	if config == nil {
		return nil
	}
	if r := config.OlderData; r != nil && r.Pod == a.o.Identity.Pod && r.ID != "" {
		o.Request = r
	}
	if o.Lease.Claim == leaseclient.ClaimMine && !a.led {
		now := clock.Boottime()
		if a.askedSince == 0 {
			a.askedSince = now
		}
		o.Members, o.Patient = a.askMembers(ctx, config.Members, o.Volume.Control.SystemIdentifier), now-a.askedSince < membersPatience
	}
	return nil
}

// askMembers asks all other members at once how far their data goes.
func (a *postgresAgent) askMembers(ctx context.Context, pods []string, systemIdentifier string) []memberWAL {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var asked sync.WaitGroup
	answers := make([]memberWAL, 0, len(pods))
	for _, pod := range pods {
		if pod != a.o.Identity.Pod {
			answers = append(answers, memberWAL{Pod: pod})
		}
	}
	for i := range answers {
		asked.Go(func() {
			if status, err := a.peers.Status(ctx, answers[i].Pod); err == nil {
				answers[i] = walOf(status, systemIdentifier)
			}
		})
	}
	asked.Wait()
	return answers
}

// walOf is how far the data of a member goes, by what it says.
func walOf(s agentapi.Status, systemIdentifier string) memberWAL {
	m := memberWAL{Pod: s.Pod}
	own := readReplication(s)
	switch {
	case s.SystemIdentifier != "" && s.SystemIdentifier != systemIdentifier:
		m.Known = true // nothing of this database system
	case own.WALEnd != nil:
		m.Known, m.End = true, lsn.Point{Timeline: own.WALEnd.Timeline, Position: own.WALEnd.Position}
		if own.Diverged != nil {
			m.Without = lsn.Point{Timeline: own.Diverged.Timeline, Position: own.Diverged.Position}
		}
	}
	return m
}

// measuredWAL is how far the WAL goes of data that does not run.
type measuredWAL struct {
	key string
	end lsn.Extent
}

// measureWAL finds where the WAL on the volume ends, once for every run; timelines
// from before on do not count.
func (a *postgresAgent) measureWAL(control server.ControlData, before int64) (lsn.Extent, error) {
	key := strings.Join([]string{control.SystemIdentifier, control.State, control.Checkpoint, strconv.FormatInt(control.Timeline, 10), strconv.FormatInt(before, 10)}, " ")
	if a.measured.key == key {
		return a.measured.end, nil
	}
	from, err := wal.ParsePosition(control.Checkpoint)
	if err != nil {
		return lsn.Extent{}, err
	}
	found, err := wal.FindExtent(filepath.Join(a.o.pgdataPath(), "pg_wal"), uint32(control.Timeline), from, uint32(before)) //nolint:gosec // PostgreSQL's are so long
	if err != nil {
		return lsn.Extent{}, fmt.Errorf("find where the WAL ends: %w", err)
	}
	a.measured = measuredWAL{key, lsn.Extent{Point: lsn.Point{Timeline: int64(found.Timeline), Position: found.Position}, Reach: found.Reach}}
	return a.measured.end, nil
}

// observeWAL collects how far the WAL on the volume goes. What a primary has that
// this process has led with since it claimed the Lease needs no measure; a
// replica's that cannot be found out is left to PostgreSQL.
func (a *postgresAgent) observeWAL(o *observation) (err error) {
	if o.Volume.Control.SystemIdentifier != "" && !o.Continues {
		var before int64
		if a.ordinal == 0 {
			// A primary's start recovers no later timeline: what a promotion that was
			// interrupted has left of one is no data.
			before = max(o.Volume.Control.Timeline, o.Volume.Control.RecoveryTimeline) + 1
		}
		o.End, err = a.measureWAL(o.Volume.Control, before)
	}
	a.reportWALEnd(*o)
	if err != nil && a.ordinal != 0 {
		a.log.Warn("how far the data goes is not known", "error", err.Error())
		return nil
	}
	return err
}

// reportWALEnd says how far the data goes that does not run.
func (a *postgresAgent) reportWALEnd(o observation) {
	var end *postgresapi.WALPoint
	switch {
	case o.Volume.Content == contentEmpty:
		end = &postgresapi.WALPoint{}
	case o.Volume.Content == contentData && o.Volume.Control.SystemIdentifier != "" && o.End.Position > 0:
		own := o.findEnd()
		end = &postgresapi.WALPoint{Timeline: own.Timeline, Position: own.Position}
	}
	a.Store.Update(func(s *agentapi.Status) {
		changeReplication(s, func(r *postgresapi.ReplicationStatus) { r.WALEnd = end })
	})
}

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

// bootID of the kernel; empty where it does not say.
func bootID() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
