//go:build mysql

package mysql

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/mysqltest"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backup"
)

// joinThird has the third member join the group.
func (w *world) joinThird(t *testing.T) {
	t.Helper()
	w.next.JoinGroupNamed(groupName)
	if err := w.next.CloneFrom(w.primary); err != nil {
		t.Fatal(err)
	}
	w.next.Start()
	if err := w.next.Group().Join(t.Context(), groupName, true); err != nil {
		t.Fatal(err)
	}
	await(t, w.next, func(o group.Observation) bool { return o.State == group.Online })
}

// holdApplier has a member receive rows of app.t and not apply them, until it is released.
func holdApplier(t *testing.T, m *mysqltest.Member) (release func()) {
	t.Helper()
	conn, err := m.DB.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(t.Context(), "LOCK TABLES app.t READ"); err != nil {
		t.Fatal(err)
	}
	return func() {
		_, _ = conn.ExecContext(context.WithoutCancel(t.Context()), "UNLOCK TABLES")
		_ = conn.Close()
	}
}

// A row is acknowledged once a majority has received it. Where the primary is lost before
// another member has applied the row, a backup waits for it: a copy without it is none.
func TestRealBackupHasWhatWasOnlyReceived(t *testing.T) {
	w := newWorld(t)
	w.joinThird(t)
	release := []func(){holdApplier(t, w.secondary), holdApplier(t, w.next)}
	defer func() { release[0](); release[1]() }()
	w.primary.Exec("INSERT INTO app.t (x) VALUES ('acknowledged')")
	acknowledged := executedBy(t, w.primary)
	w.primary.Kill()
	var leader, donor *mysqltest.Member
	await(t, w.secondary, func(o group.Observation) bool {
		leader, donor = w.next, w.secondary
		p, ok := o.View.Primary()
		if ok && p.UUID == o.UUID {
			leader, donor = w.secondary, w.next
		}
		return ok && len(o.View.Members) == 2
	})
	source := w.source(t, "copier")
	source.Members = []agentapi.BackupSource{sourceOf(w.primary), sourceOf(leader), sourceOf(donor)}
	held, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	if _, err := source.CopyMember(held, sourceOf(donor), io.Discard); err == nil || backup.InVain(err) || held.Err() == nil {
		t.Fatalf("without the row: %v", err)
	}
	release[slices.Index([]*mysqltest.Member{w.secondary, w.next}, donor)]()
	facts, err := source.CopyMember(t.Context(), sourceOf(donor), io.Discard)
	if err != nil || !parseSet(t, facts.End).Contains(acknowledged) {
		t.Fatalf("%+v, which is to have %s: %v", facts, acknowledged, err)
	}
}

// Only the primary can tell what was acknowledged: without its answer there is no copy.
func TestRealBackupNeedsAnAnswerOfThePrimary(t *testing.T) {
	w := newWorld(t)
	elsewhere := sourceOf(w.primary)
	elsewhere.Address = sourceOf(w.next).Address // no server listens there
	for name, c := range map[string]struct {
		members []agentapi.BackupSource
		says    string
	}{
		"a primary that does not answer": {[]agentapi.BackupSource{sourceOf(w.secondary), elsewhere}, "did not answer which transactions it has"},
		"a primary that is not asked":    {[]agentapi.BackupSource{sourceOf(w.secondary)}, "is none of the members"},
	} {
		source, out := w.source(t, "copier"), &bytes.Buffer{}
		source.Members = c.members
		_, err := source.CopyMember(t.Context(), sourceOf(w.secondary), out)
		if err == nil || backup.InVain(err) || !strings.Contains(err.Error(), c.says) || out.Len() > 0 {
			t.Errorf("%s: %v, %d bytes", name, err, out.Len())
		}
	}
}
