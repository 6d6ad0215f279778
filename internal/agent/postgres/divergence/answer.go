package divergence

import (
	"context"
	"encoding/json"
	"net/http"
	"path/filepath"
	"strconv"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// AnswerComparisons answers what a member's WAL has to do with a part of another's,
// while it leads. The position of the data directory's database is brought up to
// date by refresh, and read from the status.
func AnswerComparisons(pgdata string, refresh func(context.Context), read func() agentapi.Status) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		timeline, err := strconv.ParseInt(r.URL.Query().Get("timeline"), 10, 32)
		from, fromErr := strconv.ParseUint(r.URL.Query().Get("from"), 10, 64)
		to, toErr := strconv.ParseUint(r.URL.Query().Get("to"), 10, 64)
		if err != nil || fromErr != nil || toErr != nil || timeline < 0 || to < from || to-from > postgresapi.ComparisonMost {
			http.Error(w, "timeline, from and to must be a part of the WAL", http.StatusBadRequest)
			return
		}
		refresh(r.Context())
		status := read()
		replication := agentapi.ReadEngineStatus[postgresapi.ReplicationStatus](&status)
		// An old position is the least that this member holds, which will do.
		if status.Role != v1alpha1.RolePrimary || !status.Serving || replication.Timeline < 1 {
			http.Error(w, "this member does not lead", http.StatusServiceUnavailable)
			return
		}
		answer, err := compareWith(filepath.Join(pgdata, "pg_wal"), postgresapi.WALPoint{Timeline: replication.Timeline, Position: status.Position}, timeline, from, to)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	})
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
