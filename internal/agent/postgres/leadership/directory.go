package leadership

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/election"
)

const (
	// askInterval is between two questions to all members, and askLimit how long they
	// have for one answer.
	askInterval = time.Second
	askLimit    = time.Second
	// silentQuestions is how many questions in turn a silent member has left unanswered.
	silentQuestions = 3
)

// Peers are the other members, which say what they are.
type Peers interface {
	Status(ctx context.Context, pod string) (agentapi.Status, error)
	PostPeer(ctx context.Context, pod, path string, message, into any) error
}

// Directory knows which pod runs on which volume, as the members report it. It is an
// elector.Directory.
type Directory struct {
	pod     string
	members func() []string
	peers   Peers

	mu sync.Mutex
	// volumes are the IDs that the pods reported last, and systems the identifiers of
	// the database systems on them; empty without data.
	volumes, systems map[string]string
	// streams are the names of the streams that those volumes receive, as the pods
	// reported; empty by an agent of an earlier version.
	streams map[string]string
	// ends is how far the WAL of each goes.
	ends map[string]lsn.Point
	// durations of the Lease that each knows.
	durations map[string]election.DurationReport
	// silences are those of the pods that let a question time out last.
	silences map[string]silence
}

// silence is how many questions in turn a pod let time out, and when the first was asked.
type silence struct {
	since     time.Duration
	questions int
}

// NewDirectory is that of a member's pod. The members are the pods of the cluster, as
// configured.
func NewDirectory(pod string, members func() []string, peers Peers) *Directory {
	return &Directory{
		pod: pod, members: members, peers: peers, volumes: map[string]string{}, systems: map[string]string{},
		streams: map[string]string{}, ends: map[string]lsn.Point{}, durations: map[string]election.DurationReport{},
		silences: map[string]silence{},
	}
}

// Follow asks the members again and again, until ctx ends.
func (d *Directory) Follow(ctx context.Context) {
	ticker := time.NewTicker(askInterval)
	defer ticker.Stop()
	for {
		d.askMembers(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// askMembers asks all other members at once.
func (d *Directory) askMembers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	var answers sync.WaitGroup
	asked := clock.Boottime()
	for _, pod := range d.members() {
		if pod == d.pod {
			continue
		}
		answers.Go(func() {
			status, err := d.peers.Status(ctx, pod)
			d.recordSilence(pod, asked, err != nil && (ctx.Err() != nil || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH)))
			if err == nil {
				d.recordStatus(pod, asked, status)
			}
		})
	}
	answers.Wait()
}

// recordSilence counts a question that did not reach the pod, or was not answered in
// time. Any other error, as of a refused connection, shows that its node is reached.
func (d *Directory) recordSilence(pod string, asked time.Duration, lost bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !lost {
		delete(d.silences, pod)
		return
	}
	s := d.silences[pod]
	if s.questions == 0 {
		s.since = asked
	}
	s.questions++
	d.silences[pod] = s
}

// FindSilence finds since when the pod on a volume has let every question time out. One
// that was asked too few since then, as after this process itself stood still, is not
// silent.
func (d *Directory) FindSilence(volume string) (since time.Duration, silent bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	pod, known := d.findPod(volume)
	s := d.silences[pod]
	return s.since, known && s.questions >= silentQuestions
}

func (d *Directory) recordStatus(pod string, asked time.Duration, s agentapi.Status) {
	own := agentapi.ReadEngineStatus[postgresapi.ReplicationStatus](&s)
	if own.Election == nil || own.Election.Volume == "" {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.volumes[pod], d.systems[pod], d.streams[pod] = own.Election.Volume, s.SystemIdentifier, own.Election.Stream
	report := election.DurationReport{Volume: own.Election.Volume, Duration: time.Duration(own.Election.LeaseDuration) * time.Second, Asked: asked}
	if own.Lease != nil {
		report.Term = own.Lease.Term
	}
	d.durations[pod] = report
	if own.WALEnd != nil {
		d.ends[pod] = lsn.Point{Timeline: own.WALEnd.Timeline, Position: own.WALEnd.Position}
	}
}

// ListEnds are how far the WAL of the other members goes, by pod, as they reported.
func (d *Directory) ListEnds() map[string]lsn.Point {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.ends)
}

// ListDurations are the durations of the Lease that the other members know, as they
// reported, by their volumes.
func (d *Directory) ListDurations() []election.DurationReport {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.SortedFunc(maps.Values(d.durations), func(a, b election.DurationReport) int { return cmp.Compare(a.Volume, b.Volume) })
}

// HasNoData reports whether all other members have answered, and none of them has data.
func (d *Directory) HasNoData() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, pod := range d.members() {
		if system, answered := d.systems[pod]; pod != d.pod && (!answered || system != "") {
			return false
		}
	}
	return true
}

// FindPod finds the pod that runs on a volume. It is unknown where two report the same
// one: one volume is a copy of the other.
func (d *Directory) FindPod(volume string) (pod string, known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.findPod(volume)
}

// findPod is called with the lock held. What a pod reported that is not declared any more
// counts only where no declared one reports the volume: it may have moved.
func (d *Directory) findPod(volume string) (pod string, known bool) {
	members := d.members()
	var declared, others []string
	for p, v := range d.volumes {
		switch {
		case v != volume:
		case slices.Contains(members, p):
			declared = append(declared, p)
		default:
			others = append(others, p)
		}
	}
	if len(declared) == 0 {
		declared = others
	}
	if len(declared) != 1 {
		return "", false
	}
	return declared[0], true
}

// ListVolumes are the volumes of the other members by pod, as far as they reported.
func (d *Directory) ListVolumes() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.volumes)
}

// FindStream finds the name of the stream that a volume receives from this member. It is
// unknown where the pod is.
func (d *Directory) FindStream(volume string) (name string, known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	pod, known := d.findPod(volume)
	if !known {
		return "", false
	}
	return d.streamOf(pod), true
}

// streamOf is called with the lock held.
func (d *Directory) streamOf(pod string) string { return cmp.Or(d.streams[pod], pod) }

// ListStreaming lists the declared pods whose volumes receive one of the named streams,
// sorted. A stream of a pod's earlier volume is of none, and neither is that of a copy or
// of a subscriber.
func (d *Directory) ListStreaming(streams []string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var pods []string
	for _, pod := range d.members() {
		if d.volumes[pod] != "" && pod != d.pod && slices.Contains(streams, d.streamOf(pod)) {
			pods = append(pods, pod)
		}
	}
	slices.Sort(pods)
	return pods
}

// NameStream names the stream that this member receives on a volume from a leader: as the
// leader counts it. One whose agent is of an earlier version counts the pod's name.
func (d *Directory) NameStream(leader, volume string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.volumes[leader] != "" && d.streams[leader] == "" {
		return d.pod
	}
	return settings.StreamName(d.pod, volume)
}
