package mysql

import (
	"context"

	"github.com/holdfast-db/holdfast/internal/agent/mysql/archiver"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/serving"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// newArchiver makes the archiver of the member's binlogs.
func (a *mysqlAgent) newArchiver() *archiver.Archiver {
	return archiver.New(archiver.Options{
		Log: a.o.Log, Volume: a.o.DataDir, DataDirectory: a.o.mysqlDir(), CredentialsDir: a.o.StoreDir,
		Place: a.findArchivePlace, Space: a.measureSpace,
		Report: func(status *agentapi.ArchiveStatus) {
			a.Store.Update(func(s *agentapi.Status) { s.Archive = status })
		},
	})
}

// findArchivePlace says where binlogs are archived; nil for nowhere.
func (a *mysqlAgent) findArchivePlace() (*archiver.Place, error) {
	mark, err := datavolume.ReadMark(a.o.DataDir)
	if err != nil {
		return nil, err
	}
	return archiver.FindPlace(a.currentConfig(), mark.Group)
}

// archiveRole is what the archiver must know of the member during a run of the server.
type archiveRole struct{ run *serverRun }

// IsPrimary implements archiver.Role: clients are let in only once all is applied that the
// primary before had.
func (r archiveRole) IsPrimary() bool {
	m := r.run.member
	return m.isPrimary() && m.isPrepared() && !m.current().SuperReadOnly && m.claim() == 0
}

// AskPrimary implements archiver.Role.
func (r archiveRole) AskPrimary(ctx context.Context) *agentapi.ArchiveStatus {
	primary, known := r.run.member.current().View.Primary()
	if !known || serving.IsPrimary(r.run.member.current()) {
		return nil
	}
	for _, p := range r.run.peers.askAll(ctx, group.Record{}) {
		if p.UUID == primary.UUID {
			return p.Status.Archive
		}
	}
	return nil
}
