//go:build postgres

package postgres

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/primarylease"
	"github.com/holdfast-db/holdfast/internal/lease"
)

// leaseStore is the Lease of a world, as the API server keeps it.
type leaseStore struct {
	mu      sync.Mutex
	there   bool
	version int
	record  lease.Record
	facts   primarylease.Facts
	// away says that the API server does not answer.
	away bool
}

// change edits the Lease as a client of the API server does.
func (s *leaseStore) change(edit func(there *bool, r *lease.Record, f *primarylease.Facts)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	edit(&s.there, &s.record, &s.facts)
}

func (s *leaseStore) read() (lease.Record, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record, s.there
}

// memberLease is the Lease as one member's client sees it.
type memberLease struct {
	store   *leaseStore
	cluster func() string

	mu    sync.Mutex
	facts primarylease.Facts
}

var errAway = errors.New("the API server is away")

func (m *memberLease) ReadLease(context.Context) (lease.Reading, error) {
	s := m.store
	s.mu.Lock()
	defer s.mu.Unlock()
	r := lease.Reading{Sent: clock.Boottime(), Received: clock.Boottime()}
	switch {
	case s.away:
		r.Answer = lease.Unanswered
		return r, errAway
	case !s.there:
		r.Answer = lease.Missing
		m.see(primarylease.Facts{})
		return r, nil
	}
	r.Answer, r.Record, r.Version = lease.Done, s.record, s.current()
	m.see(s.facts)
	return r, nil
}

// current is called with the lock held.
func (s *leaseStore) current() lease.Version {
	return lease.Version{UID: "lease", Resource: strconv.Itoa(s.version)}
}

func (m *memberLease) WriteLease(_ context.Context, base lease.Version, r lease.Record) (lease.Answer, lease.Version, error) {
	s := m.store
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.away:
		return lease.Unanswered, lease.Version{}, errAway
	case s.there && s.current() != base, !s.there && base != lease.Version{}:
		return lease.Conflict, lease.Version{}, errors.New("conflict")
	}
	s.version++
	s.there, s.record = true, r
	s.facts.Known, s.facts.HasRecord, s.facts.HolderUID, s.facts.Renewed = true, true, r.HolderUID, time.Now()
	s.facts.Earlier.SystemIdentifier, s.facts.Earlier.HolderPod = r.SystemIdentifier, r.HolderPod
	s.facts.Cluster = m.cluster()
	m.see(s.facts)
	return lease.Done, s.current(), nil
}

func (m *memberLease) see(f primarylease.Facts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.facts = f
}

// SetTiming changes nothing: it answers at once.
func (m *memberLease) SetTiming(lease.Timing) {}

func (m *memberLease) ReadFacts() primarylease.Facts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.facts
}
