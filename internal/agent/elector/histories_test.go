package elector

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-db/holdfast/internal/lease"
)

// startTraffic has primaries write and standbys receive until ctx ends.
func (c *cluster) startTraffic(ctx context.Context) {
	for _, m := range c.members {
		go func() {
			for ctx.Err() == nil {
				time.Sleep(300 * time.Millisecond)
				m.judgeServer()
				m.commit()
				m.receiveWAL(ctx)
			}
		}()
	}
}

// commit has a primary write, and report how far.
func (m *member) commit() {
	s := m.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.primary || s.closing || s.lawless {
		return
	}
	s.end++
	s.reports.ReportAcknowledged(s.wal().Flushed)
}

// receiveWAL brings the WAL of the leader to a standby, as the server does.
func (m *member) receiveWAL(ctx context.Context) {
	s := m.server
	s.mu.Lock()
	leader, follows, epoch, own, reports := s.leader, s.follows, s.epoch, slices.Clone(s.forks), s.reports
	s.mu.Unlock()
	i := slices.IndexFunc(m.cluster.members, func(o *member) bool { return o.volumeID == leader.Volume })
	if !follows || i < 0 || m.cluster.members[i] == m || !m.isUp() || !m.cluster.isLinked(m.pod, leader.Pod) {
		return
	}
	source := m.cluster.members[i].server
	source.mu.Lock()
	serves := source.primary && source.lives[len(source.lives)-1].term == leader.Term
	forks, end := slices.Clone(source.forks), source.end
	reached := uint64(0)
	if len(own) > 0 {
		reached = source.endOn(own[len(own)-1].id)
	}
	sourceReports := source.reports
	source.mu.Unlock()
	if !serves {
		return
	}
	limited, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if m.volume.read().Rewinding || !m.isPrefix(own, forks, reached) {
		m.rewind(limited, reports, epoch, forks, end)
		return
	}
	timeline := forks[len(forks)-1].timeline
	if !slices.Contains(m.volume.read().Timelines, timeline) && reports.RecordTimeline(limited, timeline) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch == epoch && s.follows {
		s.forks, s.end = forks, end
		sourceReports.ReportStreamed(timeline)
	}
}

// isPrefix reports whether all that the member holds is part of the source's WAL.
func (m *member) isPrefix(own, source []fork, reached uint64) bool {
	m.server.mu.Lock()
	defer m.server.mu.Unlock()
	for i, f := range own {
		if i < len(source) && source[i].timeline == f.timeline && source[i].id != f.id {
			m.cluster.violate("%s holds another timeline %d than the primary", m.pod, f.timeline)
		}
		if i >= len(source) || source[i] != f {
			return false
		}
	}
	return len(own) > 0 && m.server.end <= reached
}

func (m *member) rewind(ctx context.Context, reports Reports, epoch int, forks []fork, end uint64) {
	s := m.server
	if reports.BeginRewind(ctx) != nil {
		return
	}
	s.mu.Lock()
	if s.epoch != epoch || !s.follows { // what is recorded is repeated later
		s.mu.Unlock()
		return
	}
	s.rewinds++
	s.forks, s.end = forks, end
	w := s.wal()
	s.mu.Unlock()
	_ = reports.EndRewind(ctx, "7", w.Timelines) // after an error it is begun again
}

// beginFault does something to a member or between members, and returns what ends it.
func (c *cluster) beginFault(rng *rand.Rand) (end func()) {
	m := c.members[rng.IntN(len(c.members))]
	change := func(begin, end func(*fakeLease)) func() {
		m.lease.set(begin)
		return func() { m.lease.set(end) }
	}
	switch rng.IntN(11) {
	case 0, 1:
		m.crash()
		time.Sleep(8 * time.Second) // the guard has ended its server
		return func() { m.restart(rng.IntN(2) == 0) }
	case 2:
		m.end()
		return func() { m.restart(rng.IntN(2) == 0) }
	case 3, 4:
		m.volume.hang()
		return m.volume.release
	case 5:
		m.volume.fail(errors.New("no space left on device"))
		return func() { m.volume.fail(nil) }
	case 6:
		return change(func(l *fakeLease) { l.cut = true }, func(l *fakeLease) { l.cut = false })
	case 7:
		delay := time.Duration(rng.IntN(2000)) * time.Millisecond
		return change(func(l *fakeLease) { l.delay, l.lossy = delay, delay < 500*time.Millisecond }, func(l *fakeLease) { l.delay, l.lossy = 0, false })
	case 8: // its pod is deleted by force
		m.lease.set(func(l *fakeLease) { l.alien = true })
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = m.running().RequestSwitchover(ctx, "")
		return func() { m.lease.set(func(l *fakeLease) { l.alien = false }) }
	case 9:
		for _, o := range c.members {
			c.setLink(m, o, o == m)
		}
		return func() {
			for _, o := range c.members {
				c.setLink(m, o, true)
			}
		}
	}
	for _, o := range c.members {
		o.lease.set(func(l *fakeLease) { l.cut = true })
	}
	return func() {
		for _, o := range c.members {
			o.lease.set(func(l *fakeLease) { l.cut = false })
		}
	}
}

// restart starts an agent that ended, in the container that started again.
func (m *member) restart(newPod bool) {
	m.restarting.Lock()
	defer m.restarting.Unlock()
	if !m.isUp() {
		m.server.kill()
		m.start(newPod)
	}
}

// runFaults does one fault after the other. Several run beside each other.
func (c *cluster) runFaults(rng *rand.Rand, n int) {
	for range n {
		time.Sleep(time.Duration(rng.IntN(6000)) * time.Millisecond)
		if leaders := c.leaders(); len(leaders) == 1 && rng.IntN(6) == 0 {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			_ = leaders[0].running().RequestSwitchover(ctx, "")
			cancel()
		}
		end := c.beginFault(rng)
		time.Sleep(time.Duration(rng.IntN(15000)) * time.Millisecond)
		end()
	}
}

// Members that run the protocol with volumes that hang and fail, a Lease that is not
// reached, crashes and partitions: no two are primaries at once, no term and no timeline
// is used twice, and one leads when the faults end. The protocol itself is simulated
// with far more histories in its own package; here it is about what carries it out.
func TestRule11HistoriesOfThreeElectors(t *testing.T) {
	const histories = 200
	elections := 0
	for seed := range uint64(histories) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { elections += runHistory(t, seed) })
		})
	}
	t.Logf("%d elections in %d histories", elections, histories)
	if elections < histories*2 {
		t.Errorf("%d elections in %d histories test too little", elections, histories)
	}
}

// runHistory runs one history, and counts its elections.
func runHistory(t *testing.T, seed uint64) (elections int) {
	rng := rand.New(rand.NewPCG(seed, 3))
	r := testRecord
	if rng.IntN(2) == 0 {
		r.Quorum = &lease.Quorum{Volumes: r.Volumes, Write: 2}
	}
	c := newCluster(t, 3, r)
	ctx, cancel := context.WithCancel(t.Context())
	defer func() {
		cancel()
		c.stopAll()
	}()
	for _, m := range c.members {
		if rng.IntN(3) == 0 {
			m.volume.setSlow(time.Duration(rng.IntN(700)) * time.Millisecond)
		}
		m.start(true)
	}
	c.startTraffic(ctx)
	var faults sync.WaitGroup
	for worker := range uint64(2) {
		own := rand.New(rand.NewPCG(seed, 10+worker))
		faults.Go(func() { c.runFaults(own, 8) })
	}
	faults.Wait()
	for _, m := range c.members {
		m.volume.setSlow(0)
		m.restart(false) // the guard may have ended it
	}
	c.awaitLeader(90 * time.Second)
	c.judgeLives()
	for _, m := range c.members {
		elections += len(m.server.listLives())
	}
	return elections
}
