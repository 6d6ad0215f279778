package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/holdfast-db/holdfast/internal/agent/elector"
	"github.com/holdfast-db/holdfast/internal/agent/metricfamily"
	"github.com/holdfast-db/holdfast/internal/election"
)

// scraped is an Election as Prometheus reads it.
type scraped struct{ Election }

func (s scraped) Describe(into chan<- *prometheus.Desc) {
	metricfamily.Describe(into, ElectionFamilies...)
}

func (s scraped) Collect(into chan<- prometheus.Metric) {
	s.CollectElection(metricfamily.SendTo(into))
}

// compare reads the metrics and compares those whose names the text has, and that none
// of the absent ones is there.
func compare(t *testing.T, e Election, want string, absent ...string) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(scraped{e})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range families {
		for _, name := range absent {
			if f.GetName() == "holdfast_"+name {
				t.Errorf("%s is there", name)
			}
		}
	}
	for line := range strings.Lines(want) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		name, _, _ = strings.Cut(name, "{")
		lines = append(lines, name)
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(withoutHelp(t, registry, want)), lines...); err != nil {
		t.Error(err)
	}
}

// withoutHelp adds the help and type of each family, of which these tests say nothing.
func withoutHelp(t *testing.T, registry *prometheus.Registry, want string) string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range families {
		header := "# HELP " + f.GetName() + " " + f.GetHelp() + "\n# TYPE " + f.GetName() + " " + strings.ToLower(f.GetType().String()) + "\n"
		for line := range strings.Lines(want) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, f.GetName()+" ") || strings.HasPrefix(line, f.GetName()+"{") {
				text.WriteString(header + line + "\n")
				header = ""
			}
		}
	}
	return text.String()
}

func TestElectionMetrics(t *testing.T) {
	leading := Election{
		View: elector.View{
			Phase: election.Leading, Deadline: 20 * time.Second, Renewed: 12 * time.Second, Fences: 1, Leader: elector.Leader{Term: 7},
			Counts: elector.Counts{Started: 5, Won: 2, Lost: 3, Granted: 4, Refused: 6, Confirmed: 8, Unconfirmed: 9, Promised: 10, Denied: 11},
		},
		Now: 14 * time.Second, FencesBefore: 2, Copies: 1, SynchronousWanted: 1,
	}
	compare(t, leading, `holdfast_pg_term 7
		holdfast_pg_lease_renewed_seconds 2
		holdfast_pg_synchronous_standbys_wanted 1
		holdfast_pg_elections_started_total 5
		holdfast_pg_elections_won_total 2
		holdfast_pg_elections_lost_total 3
		holdfast_pg_votes_total{answer="granted"} 4
		holdfast_pg_votes_total{answer="refused"} 6
		holdfast_pg_failsafe_rounds_total{result="confirmed"} 8
		holdfast_pg_failsafe_rounds_total{result="unconfirmed"} 9
		holdfast_pg_failsafe_answers_total{answer="confirmed"} 10
		holdfast_pg_failsafe_answers_total{answer="refused"} 11
		holdfast_pg_election_stalled 0
		holdfast_pg_candidate_held 0
		holdfast_pg_fences_total 3
		holdfast_pg_data_copies_total 1`, "pg_held")

	held := Election{Hold: "DataDiverged", SynchronousWanted: 1, View: elector.View{Held: "this member is held", Stalled: "no member may lead"}}
	compare(t, held, `holdfast_pg_held{reason="DataDiverged"} 1
		holdfast_pg_candidate_held 1
		holdfast_pg_election_stalled 1`, "pg_term", "pg_lease_renewed_seconds", "pg_synchronous_standbys_wanted")

	// A member whose deadline has passed does not lead, whatever its phase is.
	leading.Now = 20 * time.Second
	compare(t, leading, `holdfast_pg_term 7`, "pg_lease_renewed_seconds", "pg_synchronous_standbys_wanted")
}
