package mysql

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// archiving is a settled cluster that archives its binlog, as its primary reports that.
func archiving(t *testing.T, says *agentapi.ArchiveStatus) *world {
	w := settled(t, 3)
	w.c.Spec.Backup = &v1alpha1.ClusterBackup{
		Enabled: new(true), Continuous: true, Destination: &v1alpha1.BackupDestination{URL: "s3://acme/my"},
	}
	w.takeUp()
	w.status(0).Archive = says
	return w
}

// What the primary says of the archive becomes conditions in MySQL's words, a state, and the
// backup that the archive needs.
func TestArchiveOfTheBinlog(t *testing.T) {
	begun, ended := now.Add(-2*time.Hour), now.Add(-time.Hour)
	open := &agentapi.ArchiveGap{From: "N:3", Begun: begun}
	closed := &agentapi.ArchiveGap{From: "N:3", To: "N:9", Begun: begun, Ended: ended}
	cases := []struct {
		name  string
		says  *agentapi.ArchiveStatus
		state string
		// fact and demand are parts of texts; empty for none.
		fact, demand string
	}{
		{"it gets on", &agentapi.ArchiveStatus{Last: "a/binlog.000003", LastTime: now}, v1alpha1.ArchiveArchiving, "", ""},
		{"nothing is stored yet", &agentapi.ArchiveStatus{}, v1alpha1.ArchiveWaiting, "", ""},
		{"the store is away", &agentapi.ArchiveStatus{Late: true, Oldest: begun, Error: "no route to host"}, v1alpha1.ArchiveFailing,
			"ArchiveFailing: the binlog is not archived since 2026-03-01T10:00:00Z: no route to host", ""},
		{"the budget is used up", &agentapi.ArchiveStatus{Late: true, Error: "full", Gap: open, GapCause: agentapi.GapBudget}, v1alpha1.ArchiveFailing,
			"ArchiveGap: spec.backup.walBudget is used up: the binlog from N:3 on is discarded", ""},
		{"a gap that has ended", &agentapi.ArchiveStatus{Last: "a/binlog.000009", LastTime: now, Gap: closed}, v1alpha1.ArchiveArchiving,
			"ArchiveGap: the archive lacks the binlog from N:3 to N:9", "orders-gap-"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := archiving(t, c.says)
			p := w.plan()
			if p.Report.Archive == nil || p.Report.Archive.State != c.state {
				t.Fatalf("%+v", p.Report.Archive)
			}
			found := ""
			for _, f := range p.Facts {
				if strings.HasPrefix(f.Reason, "Archive") {
					found += f.Reason + ": " + f.Message
				}
			}
			if !strings.Contains(found, c.fact) || c.fact == "" && found != "" {
				t.Errorf("facts: %s", found)
			}
			if demand := p.Demand; (demand != nil) != (c.demand != "") || demand != nil && !strings.HasPrefix(demand.Name, c.demand) {
				t.Errorf("demand: %+v", demand)
			}
		})
	}
}

// An archive that has begun needs a backup that it goes on from, once that is recorded.
func TestFirstBackupOfAnArchive(t *testing.T) {
	w := archiving(t, &agentapi.ArchiveStatus{Last: "a/binlog.000003", LastTime: now})
	p := planCluster(w.c, w.o, now)
	w.c.Status.Archive = p.Report.Archive
	again := planCluster(w.c, w.o, now.Add(time.Minute))
	if p.Demand != nil || again.Demand == nil || !strings.HasPrefix(again.Demand.Name, "orders-first-") {
		t.Fatalf("%+v, then %+v", p.Demand, again.Demand)
	}
	w.c.Status.LastBackup = &v1alpha1.LastBackup{Name: again.Demand.Name, Time: metav1.NewTime(now.Add(time.Minute))}
	if last := planCluster(w.c, w.o, now.Add(2*time.Minute)); last.Demand != nil {
		t.Errorf("%+v", last.Demand)
	}
}

// Members learn where the binlog goes.
func TestArchiveInTheConfiguration(t *testing.T) {
	w := archiving(t, nil)
	if at := membersOf(w.c).Archive(); at == nil || at.Prefix != "shop/orders/cluster-uid/wal/" {
		t.Errorf("%+v", at)
	}
	w.c.Spec.Backup.Continuous = false
	if at := membersOf(w.c).Archive(); at != nil {
		t.Errorf("%+v", at)
	}
}
