//go:build mysql

package mysql

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// secretOf is a literal that stands in rows and names.
const secretOf = "Xq7canary41112222333"

// untilFound waits until a member has found classes.
func (r *run) untilFound(classes ...string) {
	r.t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		found := map[string]bool{}
		for _, i := range r.Insights.Report().Classes {
			found[i.Class] = true
		}
		var missing []string
		for _, class := range classes {
			if !found[class] {
				missing = append(missing, class)
			}
		}
		if len(missing) == 0 {
			return
		}
		if time.Now().After(end) {
			r.t.Errorf("not found: %v", missing)
			return
		}
	}
}

// Classes that one real server can be brought to report are found, and no literal is in
// what the agent answers.
func TestRealInsights(t *testing.T) {
	w := newWorld(t, 1)
	w.configure(func(c *agentapi.ClusterConfig) {
		c.Parameters = map[string]string{"innodb_print_all_deadlocks": "ON", "log_error_verbosity": "3"}
	})
	r := w.create()[0]
	r.untilFound("MySQLStarted", "MySQLGroupChanged")
	r.exec(createTable, "INSERT INTO app_1.t VALUES (1, '"+secretOf+"'), (2, 'b')", "CREATE USER "+secretOf+" IDENTIFIED BY 'x'")

	provokeDeadlock(t, r)
	r.untilFound("MySQLDeadlock")

	r.killServer()
	r.until("another run", func(s agentapi.Status) bool { return !s.Serving })
	r.untilState(agentapi.StateRunning)
	r.untilFound("MySQLCrashRecovery")

	report := r.Insights.Report()
	text, err := json.Marshal(report)
	if err != nil || strings.Contains(string(text), secretOf) || strings.Contains(string(text), "canary") {
		t.Errorf("%v: %s", err, text)
	}
	t.Logf("%d lines, %d of no class, %d dropped", report.Lines, report.Unclassified, report.Dropped)
	for _, i := range report.Classes {
		t.Logf("%s ×%d", i.Class, i.Count)
	}
}

// provokeDeadlock has two transactions wait for each other.
func provokeDeadlock(t *testing.T, r *run) {
	t.Helper()
	one, err := r.session().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	two, err := r.session().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	update := func(tx *sql.Tx, id int) error {
		_, err := tx.ExecContext(t.Context(), fmt.Sprintf("UPDATE app_1.t SET x = '%s' WHERE id = %d", secretOf[:10], id))
		return err
	}
	if err := errors.Join(update(one, 1), update(two, 2)); err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() { waited <- update(one, 2) }()
	err = update(two, 1)
	if other := <-waited; (err == nil) == (other == nil) {
		t.Errorf("no deadlock: %v, %v", err, other)
	}
	_, _ = one.Rollback(), two.Rollback()
}
