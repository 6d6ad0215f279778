package metrics

import (
	"context"
	"database/sql"
	"fmt"
	"math"

	"github.com/holdfast-db/holdfast/internal/agent/anomalies"
)

// signals are the variables of anomaly.MySQLSignals, in that order. Those of one signal are
// added up.
var signals = [][]string{
	{"questions"}, {"handler_commit"}, {"handler_rollback"}, {"aborted_connects"}, {"innodb_rows_read"},
	{"innodb_rows_inserted", "innodb_rows_updated", "innodb_rows_deleted"}, {"innodb_pages_read"}, {"created_tmp_disk_tables"},
	{"innodb_redo_log_current_lsn"}, {"threads_connected"}, {"threads_running"}, {"innodb_row_lock_current_waits"},
}

const (
	signalStatus = `SELECT VARIABLE_NAME, VARIABLE_VALUE FROM performance_schema.global_status WHERE VARIABLE_NAME IN
		('Questions', 'Handler_commit', 'Handler_rollback', 'Aborted_connects', 'Innodb_rows_read', 'Innodb_rows_inserted', 'Innodb_rows_updated',
		'Innodb_rows_deleted', 'Innodb_pages_read', 'Created_tmp_disk_tables', 'Innodb_redo_log_current_lsn', 'Threads_connected', 'Threads_running',
		'Innodb_row_lock_current_waits', 'Uptime')`
	// signalTimes are the time now, and how many threads send a copy of the data.
	signalTimes = `SELECT UNIX_TIMESTAMP(), COUNT(*) FROM performance_schema.threads WHERE PROCESSLIST_COMMAND = 'Clone'`
)

// MeasureSignals asks a member for what is compared with what is usual.
func MeasureSignals(ctx context.Context, db *sql.DB) (*anomalies.Sample, error) {
	status, err := readNumbers(ctx, db, signalStatus)
	if err != nil {
		return nil, fmt.Errorf("measure the signals: %w", err)
	}
	var now, copies float64
	if err := db.QueryRowContext(ctx, signalTimes).Scan(&now, &copies); err != nil {
		return nil, fmt.Errorf("measure the signals: %w", err)
	}
	return &anomalies.Sample{Values: sumSignals(status), Started: now - status["uptime"], Copying: copies > 0}, nil
}

// sumSignals are the values of the signals. One whose variables are not all there is missing.
func sumSignals(status map[string]float64) (values []float64) {
	for _, names := range signals {
		sum := 0.0
		for _, name := range names {
			value, is := status[name]
			if !is {
				value = math.NaN()
			}
			sum += value
		}
		values = append(values, sum)
	}
	return values
}
