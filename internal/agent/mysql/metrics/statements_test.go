package metrics

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/metricfamily"
	"github.com/holdfast-db/holdfast/internal/agent/statements"
)

// table are answers about statements.
func table(rows ...[]driver.Value) recorded {
	return recorded{
		"SCHEMATA": {{"archive"}, {"shop"}}, "performance_schema_digests_size": {{"10000"}},
		"events_statements_summary_by_digest": rows,
	}
}

// statement is a row of the table, as text as the server sends it.
func statement(schema, digest driver.Value, calls, seconds int) []driver.Value {
	return []driver.Value{schema, digest, fmt.Sprint(calls), fmt.Sprint(seconds, ".5"), "1", "2", "3"}
}

// collect reads a table of statements once more.
func (s *Statements) collect(t *testing.T, answers recorded, most int) (map[string]float64, error) {
	t.Helper()
	db := sql.OpenDB(answers)
	defer func() { _ = db.Close() }()
	values := map[string]float64{}
	err := s.Collect(context.Background(), db, func(f metricfamily.Family, value float64, labels ...string) {
		name := familyNames([]metricfamily.Family{f})[0] + " " + strings.Join(labels, " ")
		if _, twice := values[name]; twice {
			t.Errorf("%s is there twice", name)
		}
		values[name] = value
	}, most)
	return values, err
}

const calls, seconds = "mysql_perf_schema_events_statements_total ", "mysql_perf_schema_events_statements_seconds_total "

// What ran since the first read is counted, by digest and schema; what the table has no
// place for, and what is not chosen, is the rest.
func TestStatements(t *testing.T) { synctest.Test(t, countStatements) }

func countStatements(t *testing.T) {
	var s Statements
	first := table(statement("shop", "aa", 100, 50), statement(nil, "aa", 10, 40), statement("tenant_1", "bb", 10, 30), statement("tenant_2", "bb", 10, 30),
		statement("shop", "cc", 1, 1), statement(nil, nil, 5, 500))
	values, err := s.collect(t, first, 3)
	if err != nil || len(values) != 4*len(StatementFamilies) {
		t.Fatalf("%v: %v", err, values)
	}
	for name, value := range values {
		if value != 0 {
			t.Errorf("%s begins with %v", name, value)
		}
	}
	second := table(statement("shop", "aa", 107, 53), statement(nil, "aa", 11, 41), statement("tenant_1", "bb", 12, 33), statement("tenant_2", "bb", 13, 34),
		statement("shop", "cc", 2, 2), statement(nil, nil, 6, 501))
	time.Sleep(statements.LeastInterval)
	if values, err = s.collect(t, second, 3); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{
		calls + "aa shop": 7, calls + "aa NONE": 1, calls + "bb other": 5, calls + "other ": 2,
		seconds + "aa shop": 3, seconds + "aa NONE": 1, seconds + "bb other": 7, seconds + "other ": 2,
	} {
		if got, there := values[name]; !there || got != want {
			t.Errorf("%s is %v, not %v", name, got, want)
		}
	}
}

// A table that has just been read is not read again, and a read that fails sends nothing.
func TestStatementsAreReadSeldom(t *testing.T) { synctest.Test(t, readStatementsSeldom) }

func readStatementsSeldom(t *testing.T) {
	var s Statements
	if values, err := s.collect(t, recorded{}, statements.Most); err == nil || len(values) != 0 {
		t.Errorf("%v: %v", err, values)
	}
	if _, err := s.collect(t, table(statement("shop", "aa", 1, 1)), statements.Most); err != nil {
		t.Fatal(err)
	}
	time.Sleep(statements.LeastInterval - 1)
	values, err := s.collect(t, recorded{}, statements.Most)
	if _, there := values[calls+"aa shop"]; err != nil || !there {
		t.Errorf("%v: %v", err, values)
	}
}

// The text of a statement is not read, and a table larger than what is read is sorted.
func TestStatementsQuery(t *testing.T) {
	if strings.Contains(readStatements, "TEXT") {
		t.Error("the text of statements is read")
	}
	var s Statements
	large := table(statement("shop", "aa", 1, 1))
	large["performance_schema_digests_size"] = [][]driver.Value{{"20000"}}
	large[longestFirst] = large["events_statements_summary_by_digest"]
	delete(large, "events_statements_summary_by_digest")
	if values, err := s.collect(t, large, statements.Most); err != nil || len(values) == 0 {
		t.Errorf("%v: %v", err, values)
	}
}
