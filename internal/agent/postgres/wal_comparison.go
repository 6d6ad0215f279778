package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// walEvidence is a part of a replica's WAL at its end, by content: what distinguishes
// its history from another one of the same timeline. The zero value is none.
type walEvidence struct {
	End  lsn.Point
	From uint64
	// Sums are those of each way that leads there. More than one does where the
	// timeline of End may be an earlier one than that of the data.
	Sums []wal.WayDigest
	// Short is of the last segment alone, for a primary that has dropped the one
	// before; nil where that is all there is.
	Short *walEvidence
}

// findEvidence reads the WAL of a replica that receives none: its last whole
// segment, and what comes after it.
func findEvidence(dir string, end lsn.Point) (walEvidence, error) {
	timeline := uint32(end.Timeline) //nolint:gosec // PostgreSQL's are so long
	from, last, err := wal.LastSegments(dir, timeline, end.Position)
	if err != nil {
		return walEvidence{}, err
	}
	e := walEvidence{End: end, From: from}
	if e.Sums, err = wal.DigestWays(dir, timeline, from, end.Position); err != nil || last == from {
		return e, err
	}
	e.Short = &walEvidence{End: end, From: last}
	e.Short.Sums, err = wal.DigestWays(dir, timeline, last, end.Position)
	return e, err
}

// differsFrom says whether a primary that holds the same part holds another one.
func (e walEvidence) differsFrom(answer postgresapi.WALComparison) bool {
	return answer.Sum != "" && len(e.Sums) > 0 && !slices.ContainsFunc(e.Sums, func(d wal.WayDigest) bool { return d.Sum == answer.Sum })
}

// reduceToOneWay is the evidence with the timeline that the data is on, where only one
// way leads to its end: pg_control may name an earlier one while a replica runs.
func (e walEvidence) reduceToOneWay() (walEvidence, bool) {
	if len(e.Sums) != 1 || e.Short != nil && len(e.Short.Sums) != 1 {
		return e, false
	}
	e.End.Timeline = int64(e.Sums[0].Timeline)
	if e.Short != nil {
		short := *e.Short
		short.End, e.Short = e.End, &short
	}
	return e, true
}

// isDiverged says whether a primary's answer proves that the data which ends with
// this WAL, on just that timeline, holds what the primary's does not.
func (e walEvidence) isDiverged(answer postgresapi.WALComparison) bool {
	switch {
	case e.End.Timeline > answer.Timeline, !answer.Descends:
		return true
	case answer.Left > 0 && e.End.Position > answer.Left:
		return true
	default:
		return e.differsFrom(answer)
	}
}

// isContained says whether a primary's answer leaves nothing of the data that the
// primary lacks.
func (e walEvidence) isContained(answer postgresapi.WALComparison) bool {
	return !e.isDiverged(answer) && (answer.Left > 0 || e.End.Position <= answer.Position)
}

// serveComparison answers what this member's WAL has to do with a part of another's,
// while it leads.
func (a *postgresAgent) serveComparison(w http.ResponseWriter, r *http.Request) {
	timeline, err := strconv.ParseInt(r.URL.Query().Get("timeline"), 10, 32)
	from, fromErr := strconv.ParseUint(r.URL.Query().Get("from"), 10, 64)
	to, toErr := strconv.ParseUint(r.URL.Query().Get("to"), 10, 64)
	if err != nil || fromErr != nil || toErr != nil || timeline < 0 || to < from || to-from > postgresapi.ComparisonMost {
		http.Error(w, "timeline, from and to must be a part of the WAL", http.StatusBadRequest)
		return
	}
	a.refreshPosition(r.Context())
	status := a.Store.Get()
	// An old position is the least that this member holds, which will do.
	if status.Role != v1alpha1.RolePrimary || !status.Serving || readReplication(status).Timeline < 1 {
		http.Error(w, "this member does not lead", http.StatusServiceUnavailable)
		return
	}
	answer, err := compareWith(filepath.Join(a.o.pgdataPath(), "pg_wal"), postgresapi.WALPoint{Timeline: readReplication(status).Timeline, Position: status.Position}, timeline, from, to)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

// compareWith compares a part of a timeline's WAL with a directory that goes as
// far as own.
func compareWith(dir string, own postgresapi.WALPoint, timeline int64, from, to uint64) (postgresapi.WALComparison, error) {
	answer := postgresapi.WALComparison{WALPoint: own, Descends: timeline == own.Timeline || timeline == 0}
	current := uint32(own.Timeline) //nolint:gosec // PostgreSQL's are so long
	histories, err := wal.ReadHistories(dir)
	if err != nil {
		return answer, err
	}
	limit := own.Position
	for _, turn := range histories[current] {
		if int64(turn.Timeline) == timeline {
			answer.Descends, answer.Left, limit = true, turn.Position, turn.Position
		}
	}
	if answer.Descends && to <= limit {
		// Where it is not all there any more, the answer has no sum.
		answer.Sum, _ = wal.DigestRange(dir, current, from, to)
	}
	return answer, nil
}

// askComparison compares evidence with the primary's WAL, of a timeline or, for
// 0, as the primary has it. The evidence is returned that the answer is about.
func (a *postgresAgent) askComparison(ctx context.Context, primary string, timeline int64, e walEvidence) (walEvidence, postgresapi.WALComparison, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	answer, err := a.askPeerComparison(ctx, primary, timeline, e.From, e.End.Position)
	if err == nil && answer.Sum == "" && e.Short != nil {
		e = *e.Short
		answer, err = a.askPeerComparison(ctx, primary, timeline, e.From, e.End.Position)
	}
	return e, answer, err
}

// askPeerComparison asks a peer that leads what its WAL has to do with a part of the own: of
// a timeline, or, for 0, of its own way. The deadline is the context's; the error
// is errors.ErrUnsupported of an agent that is too old to know.
func (a *postgresAgent) askPeerComparison(ctx context.Context, pod string, timeline int64, from, to uint64) (postgresapi.WALComparison, error) {
	var answer postgresapi.WALComparison
	query := url.Values{}
	query.Set("timeline", strconv.FormatInt(timeline, 10))
	query.Set("from", strconv.FormatUint(from, 10))
	query.Set("to", strconv.FormatUint(to, 10))
	return answer, a.peers.AskPeer(ctx, pod, postgresapi.ComparisonPath+"?"+query.Encode(), &answer)
}

// compareAtRest compares the WAL of data that does not run with the primary's,
// and marks data whose history is another. It says whether that data holds nothing
// that the primary lacks, as far as a primary can prove.
func (a *postgresAgent) compareAtRest(ctx context.Context, o observation) (bool, error) {
	a.evidence, a.compared, a.comparedAt = walEvidence{}, comparedWAL{}, 0
	if o.Volume.Content != contentData || o.End.Position == 0 {
		return false, nil
	}
	if mark, err := readDivergedMark(a.o.DataDir); mark != nil || err != nil {
		return false, err // what was found stays as it is, however far the primary goes
	}
	evidence, err := findEvidence(filepath.Join(a.o.pgdataPath(), "pg_wal"), o.End.Point)
	if err != nil {
		a.log.Warn("the WAL cannot be compared", "error", err.Error())
		return false, nil
	}
	a.evidence = evidence
	if !o.PrimaryKnown || o.PrimarySystemIdentifier != o.Volume.Control.SystemIdentifier {
		return false, nil
	}
	evidence, answer, err := a.askComparison(ctx, o.Primary, o.End.Timeline, evidence)
	switch {
	case errors.Is(err, errors.ErrUnsupported): // of an older agent: positions are all there is
		return !isAhead(o.End.Point, o.PrimaryEnd), nil
	case err != nil:
		a.log.Info("the WAL is not compared yet", "primary", o.Primary, "error", err.Error())
		return false, nil
	case evidence.isDiverged(answer):
		a.evidence = walEvidence{}
		return false, a.markDiverged(evidence, answer)
	case evidence.isContained(answer):
		a.evidence = walEvidence{}
		return true, nil
	}
	return false, nil // the primary has not come so far yet, and may come to differ
}

// markDiverged marks data whose history is not the primary's.
func (a *postgresAgent) markDiverged(e walEvidence, answer postgresapi.WALComparison) error {
	m := divergedMark{Own: e.End, Primary: lsn.Point{Timeline: answer.Timeline, Position: answer.Position}, Left: answer.Left, Differs: e.differsFrom(answer)}
	a.log.Error("the data is of another history than the primary's", "own", m.Own.String(), "primary", m.Primary.String(), "left", answer.Left, "differs", m.Differs)
	return writeDivergedMark(a.o.DataDir, m)
}

// ownWAL is how far the data of a running replica goes.
type ownWAL struct {
	lsn.Point
	// Known says that it was found out.
	Known bool
	// Half says that all of it is replayed, and that half a record follows.
	Half bool
}

// lastRecord is where the WAL of a replica ended when it was followed last.
type lastRecord struct {
	received, replayed int64
	end                wal.Extent
}

// mostFollowed is the most WAL that is followed to its last record while a replica
// runs: PostgreSQL's longest record fits in.
const mostFollowed = 1<<30 + 64<<20

// findOwnEnd finds how far the data of a running replica goes. What it has
// received of a record that is not complete is nothing that it holds; what it
// receives just now comes in place of what it had.
func (l *life) findOwnEnd(observed serverObservation) ownWAL {
	own := ownWAL{Point: lsn.Point{Timeline: observed.Timeline, Position: uint64(observed.Position)}, Known: true}
	switch {
	case observed.Receiving:
		return own
	case observed.Received-observed.Position > mostFollowed:
		own.Known = false // it has much to replay before it could serve
		return own
	case l.last.received != observed.Received || l.last.replayed != observed.Position && l.last.end.Position <= own.Position:
		end, err := wal.FindEnd(filepath.Join(l.o.pgdataPath(), "pg_wal"), uint32(observed.Timeline), own.Position, uint64(observed.Received)) //nolint:gosec // PostgreSQL's are so long
		if err != nil {
			l.log.Warn("where the last record ends is not known", "error", err.Error())
			own.Known = false
			return own
		}
		l.last = lastRecord{observed.Received, observed.Position, end}
	}
	own.Half = l.last.end.Position == own.Position && l.last.end.Reach > own.Position
	own.Position = max(own.Position, l.last.end.Position)
	return own
}

// comparisonPause is between two comparisons of one replica.
const comparisonPause = 2 * time.Second

// comparedWAL is how far a replica's WAL was compared, and with the primary of
// which pod.
type comparedWAL struct {
	position uint64
	with     string
}

// watchHistory compares the WAL of a running replica with the primary's when it
// receives nothing, and when it begins to: what it has by then is not replaced
// yet by what it receives. It ends the run of one that diverged.
func (l *life) watchHistory(ctx context.Context, at time.Duration, own ownWAL, receiving, serving bool) {
	if !serving {
		l.compared = comparedWAL{} // what serves next may be of another history
	}
	if !receiving {
		l.readEvidence(own)
	}
	if len(l.evidence.Sums) == 0 || !serving || at-l.comparedAt < comparisonPause {
		return
	}
	l.comparedAt = at
	result, err := l.compareEvidence(ctx, l.knownPrimary(), receiving)
	switch {
	case errors.Is(err, errors.ErrUnsupported): // of an older agent: positions are all there is
		l.compared, l.evidence = comparedWAL{own.Position, l.follower.primaryUID}, walEvidence{}
	case err != nil:
		l.log.Info("the WAL is not compared yet", "primary", l.knownPrimary(), "error", err.Error())
	case result == comparisonSame:
		l.compared, l.evidence = comparedWAL{l.evidence.End.Position, l.follower.primaryUID}, walEvidence{}
	case result == comparisonDiverged:
		select {
		case l.restart <- struct{}{}:
		default:
		}
	}
}

// readEvidence reads the end of the WAL of a replica that receives nothing. What
// was read before it received anything stays until it is compared: what it receives
// comes in place of the last segment.
func (l *life) readEvidence(own ownWAL) {
	if !own.Known || len(l.evidence.Sums) > 0 || own.Position == 0 || l.isCompared(own) {
		return
	}
	if evidence, err := findEvidence(filepath.Join(l.o.pgdataPath(), "pg_wal"), own.Point); err == nil {
		l.evidence = evidence
	}
}

// isCompared says whether what a replica holds was compared with the primary that
// answered last.
func (l *life) isCompared(own ownWAL) bool {
	return own.Known && l.compared == comparedWAL{own.Position, l.follower.primaryUID}
}

// comparison is what comes of a comparison.
type comparison int

const (
	// comparisonOpen: the primary does not hold that part, or not yet.
	comparisonOpen comparison = iota
	// comparisonSame: the primary holds all that the replica does.
	comparisonSame
	// comparisonDiverged: the data is marked.
	comparisonDiverged
)

// compareEvidence compares what was read of a replica's WAL while it runs. That
// the primary has dropped the part settles it for one that receives.
func (a *postgresAgent) compareEvidence(ctx context.Context, primary string, receiving bool) (comparison, error) {
	evidence, certain := a.evidence.reduceToOneWay()
	timeline := int64(0)
	if certain {
		timeline = evidence.End.Timeline
	}
	evidence, answer, err := a.askComparison(ctx, primary, timeline, evidence)
	switch {
	case err != nil:
		return comparisonOpen, err
	case evidence.differsFrom(answer), certain && evidence.isDiverged(answer):
		return comparisonDiverged, a.markDiverged(evidence, answer)
	case answer.Sum == "" && (!receiving || !evidence.isContained(answer)):
		return comparisonOpen, nil
	}
	return comparisonSame, nil
}

// mayBeReplaced says whether a replica's data, which receives nothing, holds
// nothing that the primary lacks, so that a copy may take its place, and how far
// it goes. Data that does is marked. Where proof is wanted, a part that the primary
// has dropped is none. The error is errors.ErrUnsupported where the primary's agent
// is older and compares nothing.
func (a *postgresAgent) mayBeReplaced(ctx context.Context, primary agentapi.Status, proof bool) (bool, lsn.Point, error) {
	control, err := a.programs.ReadControlData(ctx, a.o.pgdataPath())
	if err != nil {
		return false, lsn.Point{}, err
	}
	a.measured = measuredWAL{}
	end, err := a.measureWAL(control, 0)
	a.measured = measuredWAL{}
	if err != nil {
		return false, lsn.Point{}, err
	}
	if len(a.evidence.Sums) > 0 {
		// It was read before anything came in its place.
		if result, err := a.compareEvidence(ctx, primary.Pod, true); err != nil || result != comparisonSame {
			return false, end.Point, err
		}
	}
	evidence, err := findEvidence(filepath.Join(a.o.pgdataPath(), "pg_wal"), end.Point)
	if err != nil {
		return false, end.Point, err
	}
	evidence, answer, err := a.askComparison(ctx, primary.Pod, end.Timeline, evidence)
	switch {
	case err != nil:
		return false, end.Point, err
	case evidence.isDiverged(answer):
		return false, end.Point, a.markDiverged(evidence, answer)
	case control.End().Newer(end.Point), proof && answer.Sum == "" && answer.Left == 0:
		return false, end.Point, nil // the WAL here, or there, is not whole
	}
	return evidence.isContained(answer), end.Point, nil
}
