package metrics

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"

	"github.com/holdfast-db/holdfast/internal/agent/tuning"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

const (
	tuningStatus = `SELECT VARIABLE_NAME, VARIABLE_VALUE FROM performance_schema.global_status WHERE VARIABLE_NAME IN
		('Innodb_buffer_pool_read_requests', 'Innodb_buffer_pool_reads', 'Innodb_redo_log_current_lsn', 'Innodb_redo_log_checkpoint_lsn', 'Threads_connected')`
	tuningVariables = `SELECT VARIABLE_NAME, VARIABLE_VALUE FROM performance_schema.global_variables WHERE VARIABLE_NAME IN
		('innodb_buffer_pool_size', 'innodb_redo_log_capacity', 'innodb_page_size')`
	// tuningStatements are the statements of all clients, and the time in picoseconds.
	tuningStatements = `SELECT COALESCE(SUM(COUNT_STAR), 0), COALESCE(SUM(SUM_TIMER_WAIT), 0) FROM performance_schema.events_statements_summary_global_by_event_name
		WHERE EVENT_NAME LIKE 'statement/sql/%'`
)

// MeasureTuning asks a primary for what advice about its settings rests on.
func MeasureTuning(ctx context.Context, db *sql.DB) (*tuning.Sample, error) {
	status, err := readNumbers(ctx, db, tuningStatus)
	if err != nil {
		return nil, fmt.Errorf("read the counters: %w", err)
	}
	settings, err := readNumbers(ctx, db, tuningVariables)
	if err != nil {
		return nil, fmt.Errorf("read the settings: %w", err)
	}
	var statements, time float64
	if err := db.QueryRowContext(ctx, tuningStatements).Scan(&statements, &time); err != nil {
		return nil, fmt.Errorf("read the statements: %w", err)
	}
	return sampleTuning(status, settings, statements, time), nil
}

// sampleTuning takes status and system variables, by names in lower case, and the
// statements with their time in picoseconds.
func sampleTuning(status, settings map[string]float64, statements, picoseconds float64) *tuning.Sample {
	age := status["innodb_redo_log_current_lsn"] - status["innodb_redo_log_checkpoint_lsn"]
	return &tuning.Sample{
		Counters: map[string]float64{
			agentapi.TuningWork: statements, agentapi.TuningCost: picoseconds / 1e9,
			agentapi.TuningPageRequests: status["innodb_buffer_pool_read_requests"], agentapi.TuningPageReads: status["innodb_buffer_pool_reads"],
		},
		Flags:    map[string]bool{agentapi.TuningRedoFull: settings["innodb_redo_log_capacity"] > 0 && age >= agentapi.TuningFull*settings["innodb_redo_log_capacity"]},
		Levels:   map[string]float64{agentapi.TuningConnections: status["threads_connected"]},
		Settings: settings,
	}
}

func readNumbers(ctx context.Context, db *sql.DB, query string) (map[string]float64, error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var all [][]string
	for rows.Next() {
		row := make([]string, 2)
		if err := rows.Scan(&row[0], &row[1]); err != nil {
			return nil, err
		}
		all = append(all, row)
	}
	numbers := map[string]float64{}
	for name, text := range readVariables(all) {
		if value, err := strconv.ParseFloat(text, 64); err == nil {
			numbers[name] = value
		}
	}
	return numbers, rows.Err()
}
