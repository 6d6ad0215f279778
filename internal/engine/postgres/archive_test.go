package postgres

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
)

func archives() *v1alpha1.ClusterBackup {
	return &v1alpha1.ClusterBackup{Continuous: true, Destination: &v1alpha1.BackupDestination{
		URL: "s3://acme/pg/", Endpoint: "https://minio", Region: "eu", PathStyle: true, CredentialsSecretRef: &v1alpha1.SecretReference{Name: "keys"}}}
}

func TestArchiveConfig(t *testing.T) {
	store := agentapi.BackupStore{URL: "s3://acme/pg", Endpoint: "https://minio", Region: "eu", PathStyle: true}
	budget := resource.MustParse("64Mi")
	cases := []struct {
		name   string
		change func(b *v1alpha1.ClusterBackup)
		want   *agentapi.ArchiveConfig
	}{
		{"a fifth of the volume", func(*v1alpha1.ClusterBackup) {}, &agentapi.ArchiveConfig{Store: store, Prefix: "shop/orders/cluster-uid/wal/", Secret: "keys", Budget: 1 << 30 / 5}},
		{"a budget of its own", func(b *v1alpha1.ClusterBackup) { b.WALBudget = &budget }, &agentapi.ArchiveConfig{Store: store, Prefix: "shop/orders/cluster-uid/wal/", Secret: "keys", Budget: 64 << 20}},
		{"an identity of the pod", func(b *v1alpha1.ClusterBackup) { b.Destination.CredentialsSecretRef = nil }, &agentapi.ArchiveConfig{Store: store, Prefix: "shop/orders/cluster-uid/wal/", Budget: 1 << 30 / 5}},
		{"off", func(b *v1alpha1.ClusterBackup) { b.Continuous = false }, nil},
		{"no backups at all", func(b *v1alpha1.ClusterBackup) { b.Enabled = new(false) }, nil},
		{"no destination", func(b *v1alpha1.ClusterBackup) { b.Destination = nil }, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := settled(t, 1)
			w.c.Spec.Backup = archives()
			c.change(w.c.Spec.Backup)
			if diff := cmp.Diff(c.want, membersOf(w.c).Archive()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Only who archives with keys of a Secret has new pods for it.
func TestArchiveRollsOutKeysAlone(t *testing.T) {
	w := settled(t, 1)
	before := membersOf(w.c).RolloutHash("image")
	w.c.Spec.Backup = archives()
	with := membersOf(w.c).RolloutHash("image")
	w.c.Spec.Backup.Destination.CredentialsSecretRef.Name = "others"
	other := membersOf(w.c).RolloutHash("image")
	w.c.Spec.Backup.Destination.CredentialsSecretRef = nil
	identity := membersOf(w.c).RolloutHash("image")
	w.c.Spec.Backup = archives()
	w.c.Spec.Backup.Continuous = false
	if off := membersOf(w.c).RolloutHash("image"); with == before || with == other || identity != before || off != before {
		t.Errorf("%s, with keys %s, with others %s, without %s, off %s", before, with, other, identity, off)
	}
}

func TestArchiveFacts(t *testing.T) {
	at := now.Add(-time.Hour)
	last := func(at time.Time) *v1alpha1.LastBackup {
		return &v1alpha1.LastBackup{Name: "b", Time: metav1.NewTime(at)}
	}
	gap := &agentapi.ArchiveGap{From: "000000010000000000000003", To: "000000010000000000000005", After: "000000010000000000000002", Begun: at.Add(-time.Hour), Ended: at}
	within := *gap
	within.Ended = at.Add(300 * time.Millisecond)
	justNow := *gap
	justNow.Ended = now.Add(200 * time.Millisecond)
	open := &agentapi.ArchiveGap{From: "000000010000000000000003", Begun: at}
	const lacks = "Degraded ArchiveGap: the archive lacks the WAL from 000000010000000000000003 to 000000010000000000000005: no moment after 2026-03-01T10:00:00Z can be restored, until backup orders-gap-f12131da, or another that is begun now, is complete"
	cases := []struct {
		name   string
		says   *agentapi.ArchiveStatus
		last   *v1alpha1.LastBackup
		want   []string
		demand *engine.Demand
	}{
		{"an agent that is older", nil, nil,
			[]string{"Degraded ArchiveFailing: WAL is not archived: the agent of member orders-0 has the version v1, which knows of no archive; set the annotation holdfast.dev/update-agents=ID to have the operator's own in all members"}, nil},
		{"it gets on", &agentapi.ArchiveStatus{Last: "x", Waiting: 3, Oldest: at}, last(now.Add(time.Minute)), nil, nil},
		{"late", &agentapi.ArchiveStatus{Late: true, Oldest: at, Waiting: 1, Error: "no route to host"}, nil,
			[]string{"Degraded ArchiveFailing: WAL is not archived since 2026-03-01T11:00:00Z: no route to host"}, nil},
		{"late for no reason", &agentapi.ArchiveStatus{Late: true, Oldest: at}, nil,
			[]string{"Degraded ArchiveFailing: WAL is not archived since 2026-03-01T11:00:00Z"}, nil},
		{"wrong keys", &agentapi.ArchiveStatus{Error: "wrong keys.", Permanent: true}, nil, []string{"Degraded ArchiveFailing: WAL is not archived: wrong keys"}, nil},
		{"discarded", &agentapi.ArchiveStatus{Late: true, Oldest: now, Error: "full", Gap: open}, nil,
			[]string{"Degraded ArchiveGap: spec.backup.walBudget is used up: WAL from 000000010000000000000003 on is discarded, so that the database goes on, and no moment after 2026-03-01T11:00:00Z can be restored until the archive goes on and another backup is complete: full. Raise spec.backup.walBudget, or make the store of spec.backup.destination take WAL again"}, nil},
		{"discarded for disk space", &agentapi.ArchiveStatus{Gap: open, GapCause: agentapi.GapDiskSpace}, nil,
			[]string{"Degraded ArchiveGap: volume data-orders-0 is short of disk space while the store of spec.backup.destination takes WAL too slowly or not at all: WAL from 000000010000000000000003 on is discarded, so that the database goes on, and no moment after 2026-03-01T11:00:00Z can be restored until the archive goes on and another backup is complete. Raise spec.storage.size, or make the store of spec.backup.destination take WAL again"}, nil},
		{"a gap", &agentapi.ArchiveStatus{Gap: gap}, nil, []string{lacks}, &engine.Demand{Name: "orders-gap-f12131da", Since: at}},
		{"a gap after the last backup", &agentapi.ArchiveStatus{Gap: gap}, last(at.Add(-time.Minute)), []string{lacks}, &engine.Demand{Name: "orders-gap-f12131da", Since: at}},
		{"a gap that ended in the second of the last backup", &agentapi.ArchiveStatus{Gap: &within}, last(at), []string{lacks},
			&engine.Demand{Name: "orders-gap-f12131da", Since: at.Add(time.Second)}},
		{"a gap that ended in the second before", &agentapi.ArchiveStatus{Gap: &within}, last(at.Add(time.Second)), nil, nil},
		{"a gap that ended in this second", &agentapi.ArchiveStatus{Gap: &justNow}, nil, []string{lacks}, nil},
		{"a gap before the last backup", &agentapi.ArchiveStatus{Gap: gap}, last(at.Add(time.Minute)), nil, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := settled(t, 2)
			w.c.Spec.Backup = archives()
			for n := range 2 {
				w.member(n)
			}
			w.status(0).Archive, w.status(0).AgentVersion, w.c.Status.LastBackup = c.says, "v1", c.last
			w.status(1).Archive = &agentapi.ArchiveStatus{Late: true} // no replica's word counts
			p := w.plan()
			var got []string
			for _, f := range p.Facts {
				if f.Type == v1alpha1.ConditionDegraded || f.Type == v1alpha1.ConditionStalled || f.Type == v1alpha1.ConditionReconciling {
					got = append(got, f.Type+" "+f.Reason+": "+f.Message)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("facts (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.demand, p.Demand); diff != "" {
				t.Errorf("demand (-want +got):\n%s", diff)
			}
			if p.Step != nil {
				t.Errorf("step %v", p.Step)
			}
			if waits := c.says != nil && c.says.Gap == &justNow; waits && p.Recheck != memberset.ArchiveRecheck {
				t.Errorf("checks again in %s", p.Recheck)
			}
		})
	}
	for name, change := range map[string]func(w *world){
		"no archive is declared":         func(w *world) { w.c.Spec.Backup = nil; w.member(0) },
		"the primary is to be restarted": func(w *world) { w.status(0).PendingRestart = []string{"archive_mode"} },
	} {
		w := settled(t, 1)
		w.c.Spec.Backup = archives()
		w.member(0)
		change(w)
		for _, f := range w.plan().Facts {
			if f.Reason == v1alpha1.ReasonArchiveFailing {
				t.Errorf("%s: %s", name, f.Message)
			}
		}
	}
}

// The archive begins with what the store has taken first, and anew after a hole;
// without a backup since, one is wanted.
func TestArchiveStatus(t *testing.T) {
	at := func(ago time.Duration) *metav1.Time { return new(metav1.NewTime(now.Add(-ago))) }
	was := func(state string, since *metav1.Time) *v1alpha1.ArchiveStatus {
		return &v1alpha1.ArchiveStatus{URL: "s3://acme/pg", Endpoint: "https://minio", State: state, Since: since, RestorableFrom: since}
	}
	elsewhere := was(v1alpha1.ArchiveArchiving, at(time.Hour))
	elsewhere.URL = "s3://acme/other"
	stored := &agentapi.ArchiveStatus{Last: "000000010000000000000003"}
	storedAt := func(ago time.Duration) *agentapi.ArchiveStatus {
		return &agentapi.ArchiveStatus{Last: stored.Last, LastTime: now.Add(-ago)}
	}
	moved := func(ago time.Duration, since *metav1.Time) *v1alpha1.ArchiveStatus {
		st := was(v1alpha1.ArchiveWaiting, since)
		if st.MovedAt, st.RestorableFrom = at(ago), nil; since != nil {
			st.State = v1alpha1.ArchiveArchiving
		}
		return st
	}
	hole := &agentapi.ArchiveGap{From: "a", To: "b", Ended: now.Add(-time.Minute + 300*time.Millisecond)}
	begun := &v1alpha1.ArchiveStatus{URL: "s3://acme/pg", Endpoint: "https://minio", State: v1alpha1.ArchiveArchiving, Since: at(0)}
	holed := was(v1alpha1.ArchiveArchiving, at(time.Hour))
	holed.Since = at(59 * time.Second)
	const first = "orders-first-48a535"
	cases := []struct {
		name   string
		was    *v1alpha1.ArchiveStatus
		change func(w *world)
		says   *agentapi.ArchiveStatus
		backup time.Duration // ago; 0 for none
		want   *v1alpha1.ArchiveStatus
		demand string
	}{
		{"nothing is stored yet", nil, nil, &agentapi.ArchiveStatus{}, 0, was(v1alpha1.ArchiveWaiting, nil), ""},
		{"the first is stored", was(v1alpha1.ArchiveWaiting, nil), nil, stored, 0, begun, ""},
		{"once that is recorded", was(v1alpha1.ArchiveArchiving, at(time.Hour)), nil, stored, 0, was(v1alpha1.ArchiveArchiving, at(time.Hour)), first},
		{"of a cluster that was made again", was(v1alpha1.ArchiveArchiving, at(time.Hour)), func(w *world) { w.c.UID = "another" }, stored, 0, was(v1alpha1.ArchiveArchiving, at(time.Hour)), "orders-first-48469b"},
		{"of an archive that began again", was(v1alpha1.ArchiveArchiving, at(time.Minute)), nil, stored, 0, was(v1alpha1.ArchiveArchiving, at(time.Minute)), "orders-first-a947aa"},
		{"one from the second before neither", was(v1alpha1.ArchiveArchiving, at(time.Hour)), nil, stored, time.Hour + time.Second, was(v1alpha1.ArchiveArchiving, at(time.Hour)), first},
		{"one from the same second does", was(v1alpha1.ArchiveArchiving, at(time.Hour)), nil, stored, time.Hour, was(v1alpha1.ArchiveArchiving, at(time.Hour)), ""},
		{"one since does", was(v1alpha1.ArchiveArchiving, at(time.Hour)), nil, stored, time.Minute, was(v1alpha1.ArchiveArchiving, at(time.Hour)), ""},
		{"an agent that began anew", was(v1alpha1.ArchiveArchiving, at(time.Hour)), nil, &agentapi.ArchiveStatus{}, time.Minute, was(v1alpha1.ArchiveArchiving, at(time.Hour)), ""},
		{"it fails", was(v1alpha1.ArchiveArchiving, at(time.Hour)), nil, &agentapi.ArchiveStatus{Last: "x", Late: true}, 0, was(v1alpha1.ArchiveFailing, at(time.Hour)), ""},
		{"it fails from the first", nil, nil, &agentapi.ArchiveStatus{Error: "wrong keys"}, 0, was(v1alpha1.ArchiveFailing, nil), ""},
		{"that is fixed", was(v1alpha1.ArchiveFailing, nil), nil, &agentapi.ArchiveStatus{}, 0, was(v1alpha1.ArchiveWaiting, nil), ""},
		{"WAL is discarded", was(v1alpha1.ArchiveArchiving, at(time.Hour)), nil, &agentapi.ArchiveStatus{Last: "x", Gap: &agentapi.ArchiveGap{From: "a"}}, 0, was(v1alpha1.ArchiveFailing, at(time.Hour)), ""},
		{"after a hole it begins anew", was(v1alpha1.ArchiveArchiving, at(time.Hour)), nil, &agentapi.ArchiveStatus{Last: "x", Gap: hole}, 2 * time.Minute, holed, "orders-gap-453b7aa6"},
		{"a hole from before counts no more", was(v1alpha1.ArchiveArchiving, at(time.Second)), nil, &agentapi.ArchiveStatus{Last: "x", Gap: hole}, time.Millisecond, was(v1alpha1.ArchiveArchiving, at(time.Second)), ""},
		{"elsewhere before", elsewhere, nil, stored, time.Minute, moved(0, nil), ""},
		{"nothing was stored since it moved", moved(time.Minute, nil), nil, storedAt(time.Minute), 0, moved(time.Minute, nil), ""},
		{"the first since it moved", moved(time.Minute, nil), nil, storedAt(time.Second), 0, moved(time.Minute, at(0)), ""},
		{"once that is recorded, too", moved(time.Hour, at(time.Hour)), nil, &agentapi.ArchiveStatus{}, 0, moved(time.Hour, at(time.Hour)), first},
		{"an older agent", nil, nil, nil, 0, was(v1alpha1.ArchiveFailing, nil), ""},
		{"settings that are not taken up yet", nil, func(w *world) { w.status(0).PendingRestart = []string{"archive_mode"} }, stored, 0, was(v1alpha1.ArchiveWaiting, nil), ""},
		{"a primary that does not report", was(v1alpha1.ArchiveArchiving, at(time.Hour)), func(w *world) { w.status(0).Role = v1alpha1.RoleReplica }, stored, time.Minute, was(v1alpha1.ArchiveArchiving, at(time.Hour)), ""},
		{"turned off", was(v1alpha1.ArchiveArchiving, at(time.Hour)), func(w *world) { w.c.Spec.Backup.Continuous = false }, stored, 0, nil, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := settled(t, 1)
			w.c.Spec.Backup = archives()
			w.member(0)
			w.status(0).Archive, w.c.Status.Archive = c.says, c.was
			if c.change != nil {
				c.change(w)
			}
			if c.backup > 0 {
				w.c.Status.LastBackup = &v1alpha1.LastBackup{Name: "b", Time: *at(c.backup)}
			}
			p := w.plan()
			if diff := cmp.Diff(c.want, p.Report.Archive); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			got := ""
			if p.Demand != nil {
				got = p.Demand.Name
				if c.want.Since == nil || c.want.Since.Sub(p.Demand.Since) >= time.Second {
					t.Errorf("%+v", p.Demand)
				}
			}
			begins := c.want != nil && (c.want.State == v1alpha1.ArchiveWaiting || c.want.Since != nil && (c.was == nil || !c.want.Since.Equal(c.was.Since)))
			if soon := p.Recheck == memberset.ArchiveRecheck; soon != begins {
				t.Errorf("checks again in %s", p.Recheck)
			}
			if got != c.demand {
				t.Errorf("demand %q, want %q", got, c.demand)
			}
		})
	}
}
