package metrics

import (
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/elector"
	"github.com/holdfast-db/holdfast/internal/agent/metricfamily"
)

// What a member's part in the election has come to. Counters begin anew with the agent.
var (
	termMetric      = metricfamily.NewGauge("holdfast_pg_term", "Term of the primary's Lease, as the member read it last; missing before that.")
	renewedMetric   = metricfamily.NewGauge("holdfast_pg_lease_renewed_seconds", "Time since the last successful renewal of the Lease was sent; only of the primary.")
	startedMetric   = metricfamily.NewCounter("holdfast_pg_elections_started_total", "Candidacies of the member that began.")
	wonMetric       = metricfamily.NewCounter("holdfast_pg_elections_won_total", "Candidacies of the member that won a term.")
	lostMetric      = metricfamily.NewCounter("holdfast_pg_elections_lost_total", "Candidacies of the member that ended without a term.")
	votesMetric     = metricfamily.NewCounter("holdfast_pg_votes_total", "Answers to requests for a vote: granted or refused.", "answer")
	roundsMetric    = metricfamily.NewCounter("holdfast_pg_failsafe_rounds_total", "Rounds in which a primary without the API server asked the other members: confirmed by all, or unconfirmed.", "result")
	promisesMetric  = metricfamily.NewCounter("holdfast_pg_failsafe_answers_total", "Answers to a primary without the API server: confirmed or refused.", "answer")
	stalledMetric   = metricfamily.NewGauge("holdfast_pg_election_stalled", "Whether no member can be elected, or this one cannot take part.")
	candidateMetric = metricfamily.NewGauge("holdfast_pg_candidate_held", "Whether the member neither votes nor leads for now.")
	fencesMetric    = metricfamily.NewCounter("holdfast_pg_fences_total", "How often the database was stopped by force since the pod began, as its Lease was not renewed in time.")
	heldMetric      = metricfamily.NewGauge("holdfast_pg_held", "1 while the member's data is held, by reason; missing otherwise.", "reason")
	copiesMetric    = metricfamily.NewCounter("holdfast_pg_data_copies_total", "Copies of the primary's data that were put in place.")
	wantedMetric    = metricfamily.NewGauge("holdfast_pg_synchronous_standbys_wanted", "Standbys that have to flush a commit, as declared; only of a primary in synchronous mode.")
)

// ElectionFamilies are what CollectElection sends.
var ElectionFamilies = []metricfamily.Family{
	termMetric, renewedMetric, startedMetric, wonMetric, lostMetric, votesMetric, roundsMetric, promisesMetric,
	stalledMetric, candidateMetric, fencesMetric, heldMetric, copiesMetric, wantedMetric,
}

// Election is what a member knows of its part.
type Election struct {
	View elector.View
	// Now is by the clock of the View.
	Now time.Duration
	// FencesBefore counts the fences of earlier agents in this pod.
	FencesBefore int64
	// Hold is why the data is held; empty for no reason.
	Hold string
	// Copies counts the copies that were put in place.
	Copies int64
	// SynchronousWanted is how many standbys have to flush a commit; 0 in asynchronous
	// mode.
	SynchronousWanted int
}

// CollectElection sends what the election is and was.
func (e Election) CollectElection(send metricfamily.Send) {
	v, n := e.View, e.View.Counts
	if v.Leader.Term > 0 {
		send(termMetric, float64(v.Leader.Term))
	}
	leads := v.IsLeading(e.Now)
	if leads {
		send(renewedMetric, (e.Now - v.Renewed).Seconds())
	}
	if leads && e.SynchronousWanted > 0 {
		send(wantedMetric, float64(e.SynchronousWanted))
	}
	send(startedMetric, float64(n.Started))
	send(wonMetric, float64(n.Won))
	send(lostMetric, float64(n.Lost))
	send(votesMetric, float64(n.Granted), "granted")
	send(votesMetric, float64(n.Refused), "refused")
	send(roundsMetric, float64(n.Confirmed), "confirmed")
	send(roundsMetric, float64(n.Unconfirmed), "unconfirmed")
	send(promisesMetric, float64(n.Promised), "confirmed")
	send(promisesMetric, float64(n.Denied), "refused")
	send(stalledMetric, metricfamily.BoolValue(v.Stalled != ""))
	send(candidateMetric, metricfamily.BoolValue(v.Held != ""))
	send(fencesMetric, float64(e.FencesBefore+v.Fences))
	if e.Hold != "" {
		send(heldMetric, 1, e.Hold)
	}
	send(copiesMetric, float64(e.Copies))
}
