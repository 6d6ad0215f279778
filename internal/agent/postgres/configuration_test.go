package postgres

import (
	"log/slog"
	"testing"

	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/archive"
	"github.com/holdfast-db/holdfast/internal/agent/statusserver"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// A client that reads that a configuration is in force reads the archive's status
// of that configuration, too: it is reported before.
func TestArchiveIsReportedBeforeTheConfiguration(t *testing.T) {
	l := &life{postgresAgent: &postgresAgent{Host: &agent.Host{Store: statusserver.NewStore(agentapi.Status{})}}}
	place := &archive.Place{ArchiveConfig: agentapi.ArchiveConfig{Prefix: "before/"}}
	var hashes []string
	l.archive = archive.New(archive.Options{
		Log: slog.New(slog.DiscardHandler), DataDirectory: t.TempDir(),
		Place:  func() (*archive.Place, error) { return place, nil },
		Report: func(*agentapi.ArchiveStatus) { hashes = append(hashes, l.Store.Get().ConfigHash) },
	})
	l.archive.BeginRun(true)
	l.reportInForce("new", nil)
	if len(hashes) != 2 || hashes[1] != "" || l.Store.Get().ConfigHash != "new" {
		t.Errorf("the archive was reported with the configurations %q", hashes)
	}
}
