// Package membership reads and writes what the members of a group of MySQL have recorded
// together, and keeps each reading on the member's volume.
package membership

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/startplan"
)

// Persisted is the record on the member's volume. Several goroutines use it.
type Persisted struct {
	path string

	mu     sync.Mutex
	record group.Record
}

// OpenPersisted reads the record on a volume.
func OpenPersisted(volume string) (*Persisted, error) {
	p := &Persisted{path: filepath.Join(volume, datavolume.RecordName)}
	var err error
	p.record, err = group.LoadRecord(p.path)
	return p, err
}

// Record is the newest one that is on the volume.
func (p *Persisted) Record() group.Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.record
}

// Save replaces the record on the volume.
func (p *Persisted) Save(r group.Record) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.record.IsEqual(r) {
		return nil
	}
	if err := group.SaveRecord(p.path, r); err != nil {
		return err
	}
	p.record = r
	return nil
}

// Lease is where all members keep the record: see leaseclient.MembershipLease.
type Lease interface {
	ReadRecord(ctx context.Context) (leaseclient.MembershipRecord, error)
	WriteRecord(ctx context.Context, next leaseclient.MembershipRecord) error
}

// Store reads and writes the record. Each write is bound to the last reading, so that a
// store is used by one goroutine only.
type Store struct {
	lease Lease
	// cluster is the UID of the cluster's object.
	cluster func() string
	last    leaseclient.MembershipRecord
	// record is what the Lease had then.
	record group.Record
}

// NewStore keeps the record on the Lease, for the cluster with the UID.
func NewStore(lease Lease, cluster func() string) *Store {
	return &Store{lease: lease, cluster: cluster}
}

// Read reads the record. Nothing is kept.
func (s *Store) Read(ctx context.Context) (startplan.Membership, error) {
	read, err := s.lease.ReadRecord(ctx)
	if err != nil {
		return startplan.Membership{}, err
	}
	record, err := group.ParseRecord(read.Group)
	if err != nil {
		return startplan.Membership{}, err
	}
	s.last, s.record = read, record
	return startplan.Membership{Cluster: read.Cluster, Record: record}, nil
}

// ReadAndKeep reads the record of the group that a member's data belongs to, and keeps it
// on the volume before it returns. A lost record is the zero value, and what the volume has
// stays. If the Lease was set back, what the volume has of a newer record is added to it:
// what the volume knows is never forgotten for an older record.
func (s *Store) ReadAndKeep(ctx context.Context, name string, p *Persisted) (group.Record, error) {
	m, err := s.Read(ctx)
	switch {
	case err != nil:
		return group.Record{}, err
	case m.Record.Group == "":
		return group.Record{}, nil
	case m.Record.Group != name:
		return group.Record{}, fmt.Errorf("the record of the members is of the group %s, and the data of %s", m.Record.Group, name)
	}
	record := m.Record.WithNewer(p.Record())
	if len(record.Entries) > 0 {
		err = p.Save(record)
	}
	return record, err
}

// Holds says whether the Lease had exactly this record when it was read or written last.
func (s *Store) Holds(r group.Record) bool { return s.record.IsEqual(r) }

// Write replaces the record that was read last. It fails when another member has written
// since.
func (s *Store) Write(ctx context.Context, next group.Record) error {
	text, err := group.FormatRecord(next)
	if err != nil {
		return err
	}
	record := s.last
	record.SystemIdentifier, record.Group = next.Group, text
	if uid := s.cluster(); uid != "" {
		record.Cluster = uid
	}
	if err := s.lease.WriteRecord(ctx, record); err != nil {
		return err
	}
	s.last, s.record = record, next
	return nil
}
