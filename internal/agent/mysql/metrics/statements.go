package metrics

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"

	"github.com/holdfast-db/holdfast/internal/agent/metricfamily"
	"github.com/holdfast-db/holdfast/internal/agent/statementcounts"
	"github.com/holdfast-db/holdfast/internal/agent/statements"
)

// MaxSeries bounds the series of a member, whatever its users create.
const MaxSeries = 400

// StatementsPart is the part of a scrape that Statements answers.
const StatementsPart = "statements"

// StatementFamilies are the numbers of a statement, in the order of the columns of
// readStatements. There is no label of the text, which the exporter has, and the text is not
// even read: the digest is its hash, without literals.
var StatementFamilies = []metricfamily.Family{
	metricfamily.NewCounter("mysql_perf_schema_events_statements_total", "How often a statement ran.", "digest", "schema"),
	metricfamily.NewCounter("mysql_perf_schema_events_statements_seconds_total", "Time that a statement took.", "digest", "schema"),
	metricfamily.NewCounter("mysql_perf_schema_events_statements_errors_total", "How often a statement failed.", "digest", "schema"),
	metricfamily.NewCounter("mysql_perf_schema_events_statements_rows_sent_total", "Rows that a statement returned.", "digest", "schema"),
	metricfamily.NewCounter("mysql_perf_schema_events_statements_rows_examined_total", "Rows that a statement read.", "digest", "schema"),
}

const (
	// readStatements reads the entries, one for each default schema and digest. Without a
	// digest is the entry of all statements for which the table had no place.
	readStatements = `SELECT /*+ MAX_EXECUTION_TIME(2000) */ SCHEMA_NAME, DIGEST, COUNT_STAR, SUM_TIMER_WAIT / 1e12, SUM_ERRORS, SUM_ROWS_SENT, SUM_ROWS_EXAMINED
		FROM performance_schema.events_statements_summary_by_digest`
	// longestFirst is only for a server with a larger table than is read: it sorts on the
	// volume what does not fit into sort_buffer_size.
	longestFirst = " ORDER BY SUM_TIMER_WAIT DESC LIMIT "
	// measureStatements is how many entries there may be.
	measureStatements = "SELECT @@performance_schema_digests_size"
	// listSchemas are those that have their names in series: the first ones by name, so that
	// a thousand schemas make no more series than ten.
	listSchemas = `SELECT /*+ MAX_EXECUTION_TIME(2000) */ SCHEMA_NAME FROM information_schema.SCHEMATA
		WHERE SCHEMA_NAME NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema') ORDER BY SCHEMA_NAME LIMIT 8`
	// noSchema is the exporter's word for statements without a default schema.
	noSchema = "NONE"
)

// statementKey is what the server tells entries apart by.
type statementKey struct{ schema, digest sql.NullString }

// Statements counts what the statements of a member do, as the performance schema has it. Its
// zero value has counted nothing. It is safe for use by several goroutines.
type Statements struct {
	counter statementcounts.Counter[statementKey]
}

// Collect reads the statements, unless they have just been read, and sends what they did: of
// at most so many statements, and of all others together.
func (s *Statements) Collect(ctx context.Context, db *sql.DB, send metricfamily.Send, most int) error {
	read := func() ([]statements.Row[statementKey], error) { return readStatementRows(ctx, db) }
	if err := s.counter.Collect(StatementFamilies, most, read, send); err != nil {
		return fmt.Errorf("read the statements: %w", err)
	}
	return nil
}

func readStatementRows(ctx context.Context, db *sql.DB) (all []statements.Row[statementKey], err error) {
	named, err := readSchemas(ctx, db)
	if err != nil {
		return nil, err
	}
	query := readStatements
	var size int
	if err := db.QueryRowContext(ctx, measureStatements).Scan(&size); err != nil {
		return nil, err
	}
	if size >= statements.MaxEntries {
		query += longestFirst + strconv.Itoa(statements.MaxEntries)
	}
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var row statements.Row[statementKey]
		v := &row.Values
		if err := rows.Scan(&row.Key.schema, &row.Key.digest, &v[0], &v[1], &v[2], &v[3], &v[4]); err != nil {
			return nil, err
		}
		row.Name = statements.Name{ID: row.Key.digest.String, Database: nameSchema(row.Key.schema, named)}
		all = append(all, row)
	}
	return all, rows.Err()
}

func readSchemas(ctx context.Context, db *sql.DB) (names []string, err error) {
	rows, err := db.QueryContext(ctx, listSchemas)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, rows.Err()
}

func nameSchema(schema sql.NullString, named []string) string {
	switch {
	case !schema.Valid:
		return noSchema
	case slices.Contains(named, schema.String):
		return schema.String
	}
	return statements.OtherDatabases
}
