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
		('Innodb_buffer_pool_read_requests', 'Innodb_pages_read', 'Innodb_redo_log_current_lsn', 'Threads_connected')`
	tuningVariables = `SELECT VARIABLE_NAME, VARIABLE_VALUE FROM performance_schema.global_variables WHERE VARIABLE_NAME IN
		('innodb_buffer_pool_size', 'innodb_buffer_pool_chunk_size', 'innodb_redo_log_capacity', 'innodb_page_size')`
)

// MeasureTuning asks a primary for what recommendations about its settings rest on.
func MeasureTuning(ctx context.Context, db *sql.DB) (*tuning.Sample, error) {
	status, err := readNumbers(ctx, db, tuningStatus)
	if err != nil {
		return nil, fmt.Errorf("read the counters: %w", err)
	}
	settings, err := readNumbers(ctx, db, tuningVariables)
	if err != nil {
		return nil, fmt.Errorf("read the settings: %w", err)
	}
	return &tuning.Sample{
		Counters: map[string]float64{
			agentapi.TuningPageRequests: status["innodb_buffer_pool_read_requests"], agentapi.TuningPageReads: status["innodb_pages_read"],
			agentapi.TuningRedoBytes: status["innodb_redo_log_current_lsn"],
		},
		Levels:   map[string]float64{agentapi.TuningConnections: status["threads_connected"]},
		Settings: settings,
	}, nil
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
