package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/memberapi"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// walEvidence is a part of a replica's WAL at its end, by content: what tells
// its history from another one of the same timeline. The zero value is none.
type walEvidence struct {
	End  point
	From uint64
	// Sums are those of each way that leads there. More than one does where the
	// timeline of End may be an earlier one than that of the data.
	Sums []string
	// Short is of the last segment alone, for a primary that has dropped the one
	// before; nil where that is all there is.
	Short *walEvidence
}

// findEvidence reads the WAL of a replica that receives none: its last whole
// segment, and what comes after it.
func findEvidence(dir string, end point) (walEvidence, error) {
	timeline := uint32(end.Timeline) //nolint:gosec // PostgreSQL's are so long
	from, last, err := wal.LastSegments(dir, timeline, end.Position)
	if err != nil {
		return walEvidence{}, err
	}
	e := walEvidence{End: end, From: from}
	if e.Sums, err = wal.Digests(dir, timeline, from, end.Position); err != nil || last == from {
		return e, err
	}
	e.Short = &walEvidence{End: end, From: last}
	e.Short.Sums, err = wal.Digests(dir, timeline, last, end.Position)
	return e, err
}

// differs says whether a primary that holds the same part holds another one.
func (e walEvidence) differs(answer memberapi.WALComparison) bool {
	return answer.Sum != "" && len(e.Sums) > 0 && !slices.Contains(e.Sums, answer.Sum)
}

// diverged says whether a primary's answer proves that the data which ends with
// this WAL, on just that timeline, holds what the primary's does not.
func (e walEvidence) diverged(answer memberapi.WALComparison) bool {
	switch {
	case e.End.Timeline > answer.Timeline, !answer.Descends:
		return true
	case answer.Left > 0 && e.End.Position > answer.Left:
		return true
	default:
		return e.differs(answer)
	}
}

// contained says whether a primary's answer leaves nothing of the data that the
// primary lacks.
func (e walEvidence) contained(answer memberapi.WALComparison) bool {
	return !e.diverged(answer) && (answer.Left > 0 || e.End.Position <= answer.Position)
}

// compareWAL answers what this member's WAL has to do with a part of another's,
// while it leads.
func (a *agent) compareWAL(w http.ResponseWriter, r *http.Request) {
	timeline, err := strconv.ParseInt(r.URL.Query().Get("timeline"), 10, 32)
	from, fromErr := strconv.ParseUint(r.URL.Query().Get("from"), 10, 64)
	to, toErr := strconv.ParseUint(r.URL.Query().Get("to"), 10, 64)
	if err != nil || fromErr != nil || toErr != nil || timeline < 0 || to < from || to-from > memberapi.ComparisonMost {
		http.Error(w, "timeline, from and to must be a part of the WAL", http.StatusBadRequest)
		return
	}
	a.refreshPosition(r.Context())
	status := a.Store.Get()
	if status.Role != v1alpha1.RolePrimary || !status.Serving || status.PositionOld || status.Timeline < 1 {
		http.Error(w, "this member does not lead", http.StatusServiceUnavailable)
		return
	}
	answer, err := compareWith(filepath.Join(a.o.pgdata(), "pg_wal"), memberapi.WALPoint{Timeline: status.Timeline, Position: status.Position}, timeline, from, to)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

// compareWith compares a part of a timeline's WAL with a directory that goes as
// far as own.
func compareWith(dir string, own memberapi.WALPoint, timeline int64, from, to uint64) (memberapi.WALComparison, error) {
	answer := memberapi.WALComparison{WALPoint: own, Descends: timeline == own.Timeline || timeline == 0}
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
		answer.Sum, _ = wal.Digest(dir, current, from, to)
	}
	return answer, nil
}

// askComparison compares evidence with the primary's WAL, of a timeline or, for
// 0, as the primary has it. The evidence is returned that the answer is about.
func (a *agent) askComparison(ctx context.Context, primary string, timeline int64, e walEvidence) (walEvidence, memberapi.WALComparison, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	answer, err := a.peers.CompareWAL(ctx, primary, timeline, e.From, e.End.Position)
	if err == nil && answer.Sum == "" && e.Short != nil {
		e = *e.Short
		answer, err = a.peers.CompareWAL(ctx, primary, timeline, e.From, e.End.Position)
	}
	return e, answer, err
}

// compareAtRest compares the WAL of data that does not run with the primary's,
// and marks data whose history is another.
func (a *agent) compareAtRest(ctx context.Context, f facts) error {
	a.evidence, a.compared, a.comparedAt = walEvidence{}, 0, 0
	if f.Volume.Content != contentData || f.End.Position == 0 {
		return nil
	}
	if mark, err := readAhead(a.o.DataDir); mark != nil || err != nil {
		return err // what was found stays as it is, however far the primary goes
	}
	evidence, err := findEvidence(filepath.Join(a.o.pgdata(), "pg_wal"), f.End.point)
	if err != nil {
		a.log.Warn("the WAL cannot be compared", "error", err.Error())
		return nil
	}
	a.evidence = evidence
	if !f.PrimaryKnown || f.PrimarySystemIdentifier != f.Volume.Control.SystemIdentifier {
		return nil
	}
	evidence, answer, err := a.askComparison(ctx, f.Primary, f.End.Timeline, evidence)
	if err != nil {
		a.log.Info("the WAL is not compared yet", "primary", f.Primary, "error", err.Error())
		return nil
	}
	a.evidence, a.compared = walEvidence{}, evidence.End.Position
	if !evidence.diverged(answer) {
		return nil
	}
	return a.markDiverged(evidence, answer)
}

// markDiverged marks data whose history is not the primary's.
func (a *agent) markDiverged(e walEvidence, answer memberapi.WALComparison) error {
	m := aheadMark{Own: e.End, Primary: point{answer.Timeline, answer.Position}, Left: answer.Left, Differs: e.differs(answer)}
	a.log.Error("the data is of another history than the primary's", "own", m.Own.String(), "primary", m.Primary.String(), "left", answer.Left, "differs", m.Differs)
	return markAhead(a.o.DataDir, m)
}

// comparisonPause is between two comparisons of one replica.
const comparisonPause = 2 * time.Second

// watchHistory compares the WAL of a running replica with the primary's when it
// receives nothing, and when it begins to: what it has by then is not replaced
// yet by what it receives. It ends the run of one that diverged.
func (l *life) watchHistory(ctx context.Context, now time.Duration, seen sight, serving bool) {
	own := point{seen.Timeline, uint64(seen.Received)}
	// What was read before it received anything stays until it is compared: what
	// it receives comes in place of the last segment.
	if !seen.Receiving && len(l.evidence.Sums) == 0 && own.Position > 0 && own.Position != l.compared {
		if evidence, err := findEvidence(filepath.Join(l.o.pgdata(), "pg_wal"), own); err == nil {
			l.evidence = evidence
		}
	}
	if len(l.evidence.Sums) == 0 || !serving || now-l.comparedAt < comparisonPause {
		return
	}
	l.comparedAt = now
	evidence, answer, err := l.askComparison(ctx, l.knownPrimary(), 0, l.evidence)
	if err != nil || answer.Sum == "" && !seen.Receiving {
		return // the primary may come to have it
	}
	if !evidence.differs(answer) {
		l.compared, l.evidence = evidence.End.Position, walEvidence{}
		return
	}
	if err := l.markDiverged(evidence, answer); err != nil {
		l.log.Error("data of another history is not marked", "error", err.Error())
		return
	}
	select {
	case l.restart <- struct{}{}:
	default:
	}
}

// mayBeReplaced says whether a replica's data, which receives nothing, holds
// nothing that the primary lacks, so that a copy may take its place. Data that
// does is marked.
func (a *agent) mayBeReplaced(ctx context.Context, primary memberapi.Status) (bool, error) {
	control, err := a.programs.controlData(ctx, a.o.pgdata())
	if err != nil {
		return false, err
	}
	a.measured = measuredWAL{}
	end, err := a.measureWAL(control, 0)
	a.measured = measuredWAL{}
	if err != nil {
		return false, err
	}
	evidence, err := findEvidence(filepath.Join(a.o.pgdata(), "pg_wal"), end.point)
	if err != nil {
		return false, err
	}
	evidence, answer, err := a.askComparison(ctx, primary.Pod, end.Timeline, evidence)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return true, nil // the primary's agent is older: its position is all there is
	case err != nil:
		return false, err
	case evidence.diverged(answer):
		return false, a.markDiverged(evidence, answer)
	}
	return evidence.contained(answer), nil
}
