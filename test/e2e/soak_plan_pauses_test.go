//go:build e2e && soak

package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// TestSoakPlanPauses compares how long writes pause in the steps of a plan with the range
// that the plan quoted, twenty times and more for each kind, while a client writes. Nine of
// ten pauses lie in it. It prints each pause, its range, and how long the client's own
// writes paused.
func TestSoakPlanPauses(t *testing.T) {
	runTogether(t, []part{
		{"PausesPostgres", func(t *testing.T) { followEdits(t, pausedPostgres(t)) }},
		{"PausesEtcd", func(t *testing.T) { followEdits(t, pausedEtcd(t)) }},
		{"MySQLPauses", func(t *testing.T) { followEdits(t, pausedMySQL(t)) }},
	})
}

const (
	// leastPauses is how many have to be compared with a range before a share of them says
	// something.
	leastPauses = 20
	// serviceDelay is for the nodes to follow the Service, by docs/guides/plan.md.
	serviceDelay = time.Second
)

// pausedPostgres alternates restarts and requests for another primary, and then restarts a
// single member.
func pausedPostgres(t *testing.T) plannedCluster {
	have := needImages(t, postgres.engine, postgres.line, 1)
	return pausedCluster(postgres, have[len(have)-1], 2, slices.Concat(
		alternate(10), []edit{{name: "one member", spec: `replicas: 1`}}, restarts(10, "alone"),
	))
}

func pausedEtcd(t *testing.T) plannedCluster {
	have := needImages(t, etcd.engine, etcd.line, 1)
	return pausedCluster(etcd, have[len(have)-1], 3, slices.Concat(
		restarts(16, "three"), []edit{{name: "one member", spec: `replicas: 1`}}, restarts(10, "alone"),
	))
}

// pausedMySQL has more requests than restarts: each restart of three servers takes minutes.
func pausedMySQL(t *testing.T) plannedCluster {
	have := needImages(t, mysql.engine, mysql.line, 1)
	return pausedCluster(mysql, have[len(have)-1], 3, slices.Concat(
		alternate(5), switchovers(10, "more"), []edit{{name: "one member", spec: `replicas: 1`}}, restarts(6, "alone"),
	))
}

func pausedCluster(k *kind, version string, members int32, edits []edit) plannedCluster {
	return plannedCluster{
		kind: k, declares: k.name, members: members, writes: true, edits: edits,
		spec: []string{fmt.Sprintf("version: %q, storage: {size: 1Gi}", version), unsaved},
	}
}

// restarts are edits that restart every member.
func restarts(count int, label string) []edit {
	edits := make([]edit, count)
	for i := range edits {
		edits[i] = edit{name: fmt.Sprintf("restart %d", i+1), spec: fmt.Sprintf(`podLabels: {round: "%s-%d"}`, label, i+1)}
	}
	return edits
}

// switchovers are requests for another primary.
func switchovers(count int, id string) []edit {
	edits := make([]edit, count)
	for i := range edits {
		edits[i] = edit{name: fmt.Sprintf("another primary %d", i+1), switchover: fmt.Sprintf("%s-%d", id, i+1)}
	}
	return edits
}

// alternate is so many of both, in turns.
func alternate(count int) []edit {
	var edits []edit
	requests := switchovers(count, "turn")
	for i, restart := range restarts(count, "several") {
		edits = append(edits, restart, requests[i])
	}
	return edits
}

// checkPauses checks that nine of ten pauses were in the range that was quoted.
func (r *planComparison) checkPauses(t *testing.T) {
	t.Helper()
	all := r.inside + r.outside
	if all < leastPauses {
		t.Errorf("%d pauses were quoted before, want %d", all, leastPauses)
	}
	if 10*r.inside < 9*all {
		t.Errorf("%d of %d pauses were in the range that was quoted, want nine of ten", r.inside, all)
	}
}

// plannedPauses are how often the steps of a plan pause writes, by event.
func (p planned) plannedPauses() map[v1alpha1.WritePauseEvent]int {
	want := map[v1alpha1.WritePauseEvent]int{}
	for _, s := range p.Clusters[0].Steps {
		switch {
		case !s.WritesPause:
		case s.Successor:
			want[v1alpha1.WritePauseSwitchover]++
		default:
			want[v1alpha1.WritePauseRestart]++
		}
	}
	return want
}

// comparePauses compares how often writes paused with the plan, by what the operator
// measured beside what was recorded before. It returns what to print of them.
func (c *committed) comparePauses(p timedPlan, recorded []v1alpha1.WritePause, r *planComparison) string {
	c.t.Helper()
	want := p.plannedPauses()
	missing := func(measured map[v1alpha1.WritePauseEvent][]v1alpha1.WritePause) bool {
		return slices.ContainsFunc(v1alpha1.WritePauseEvents, func(e v1alpha1.WritePauseEvent) bool {
			return len(measured[e]) < min(want[e], v1alpha1.MaxWritePauses)
		})
	}
	measured := c.readNewPauses(recorded)
	for deadline := time.Now().Add(settlePeriod); missing(measured) && time.Now().Before(deadline); measured = c.readNewPauses(recorded) {
		time.Sleep(pollInterval) // the end of a pause may be recorded after the edit is rolled out
	}
	text := ""
	for _, event := range v1alpha1.WritePauseEvents {
		if got := len(measured[event]); got != min(want[event], v1alpha1.MaxWritePauses) {
			c.t.Errorf("%d pauses by %s, planned %d: %+v", got, event, want[event], measured[event])
		}
		for _, one := range measured[event] {
			text += fmt.Sprintf("  %s %.1f s%s", event, one.Duration.Seconds(), r.judgePause(p, one))
		}
	}
	return text + c.compareGap(p, r)
}

// readNewPauses are the pauses that the status has beside those recorded, by event.
func (c *committed) readNewPauses(recorded []v1alpha1.WritePause) map[v1alpha1.WritePauseEvent][]v1alpha1.WritePause {
	c.t.Helper()
	found := map[v1alpha1.WritePauseEvent][]v1alpha1.WritePause{}
	for _, one := range c.getCluster().CommonStatus().WritePauses {
		known := slices.ContainsFunc(recorded, func(r v1alpha1.WritePause) bool { return r.Event == one.Event && r.Time.Equal(&one.Time) })
		if !known {
			found[one.Event] = append(found[one.Event], one)
		}
	}
	return found
}

// quotedFor is what a plan quotes of an event; nil where it was never measured.
func (p planned) quotedFor(event v1alpha1.WritePauseEvent) *quotedPause {
	quoted := p.Clusters[0].Pauses
	if i := slices.IndexFunc(quoted, func(q quotedPause) bool { return q.Event == event }); i >= 0 {
		return &quoted[i]
	}
	return nil
}

// judgePause says whether a pause is in the range that the plan quoted.
func (r *planComparison) judgePause(p timedPlan, one v1alpha1.WritePause) string {
	quoted := p.quotedFor(one.Event)
	if quoted == nil {
		return " (never measured before)"
	}
	if s := one.Duration.Seconds(); s >= quoted.Least && s <= quoted.Most {
		r.inside++
		return fmt.Sprintf(" (quoted %.0f–%.0f s)", quoted.Least, quoted.Most)
	}
	r.outside++
	return fmt.Sprintf(" (OUTSIDE of the quoted %.0f–%.0f s)", quoted.Least, quoted.Most)
}

// compareGap says for how long a client's writes were not acknowledged. Where the edit has
// one pause, it counts whether that is within what was quoted, and the Service's delay.
func (c *committed) compareGap(p timedPlan, r *planComparison) string {
	c.t.Helper()
	if c.writer == nil {
		return ""
	}
	w := c.writer.withTest(c.t)
	w.goesOn()
	gap := w.takeGap()
	text := fmt.Sprintf("  a client's writes %.1f s", gap.Seconds())
	want := p.plannedPauses()
	if want[v1alpha1.WritePauseSwitchover]+want[v1alpha1.WritePauseRestart] != 1 {
		return text
	}
	for event := range want {
		quoted := p.quotedFor(event)
		if quoted == nil {
			continue
		}
		r.gaps++
		if gap.Seconds() <= quoted.Most+serviceDelay.Seconds() {
			r.bounded++
		}
	}
	return text
}
