//go:build e2e || soak

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/loginsight"
)

// insightsTimeout is for the operator to record what members found. It takes two minutes,
// unless a member found something before: then it takes ten minutes more.
const insightsTimeout = 13 * time.Minute

// insightsLiteral stands in each statement that provokes something.
const insightsLiteral = "secret4111222233334444"

// provoked are the classes that testInsights provokes.
var provoked = []string{"Deadlock", "SlowStatement", "StatementTimeout", "TemporaryFile", "CheckpointsTooFrequent"}

// testInsights provokes five classes of events, and reads them by the plugin and in the
// status. No literal of a statement is in either, in events, or in what the operator and the
// agents log.
func testInsights(t *testing.T) {
	c := newCluster(t, 2, func(obj *v1alpha1.PostgresCluster) {
		obj.Spec.Parameters = map[string]string{
			"log_min_duration_statement": "500ms", "log_temp_files": "0", "work_mem": "64kB", "deadlock_timeout": "200ms",
			"max_wal_size": "64MB", "min_wal_size": "32MB", "checkpoint_warning": "300s", "compute_query_id": "on",
		}
	})
	c.waitReady()
	primary := c.getCluster().Status.Primary
	if prefix := c.runSQL(leading, "show log_line_prefix"); prefix != strings.TrimSpace(loginsight.PostgresPrefix) {
		t.Errorf("log_line_prefix is %q", prefix)
	}
	c.runSQL(leading, "create table provoked (id int primary key, v text); insert into provoked values (1, 'a'), (2, 'b')")
	c.provokeDeadlock()
	c.runSQL(leading, fmt.Sprintf("select pg_sleep(0.7), '%s'", insightsLiteral))
	c.failSQL(fmt.Sprintf("set statement_timeout = '200ms'; select pg_sleep(10), '%s'", insightsLiteral))
	c.runSQL(leading, fmt.Sprintf("select count(*) from (select md5(g::text) || '%s' m from generate_series(1, 20000) g order by 1) s", insightsLiteral))
	c.runSQL(leading, "create table filler (v text)")
	for range 8 {
		c.runSQL(leading, "insert into filler select repeat(md5(g::text), 40) from generate_series(1, 20000) g")
	}
	c.sendLiterals()

	var found insightsFound
	eventually(t, readyTimeout, "the plugin shows what was provoked", func(context.Context) error {
		stdout, stderr, code := c.runPlugin("", "insights", c.name, "-o", "json")
		if code != 0 {
			return fmt.Errorf("exit code %d: %s", code, stderr)
		}
		found = insightsFound{}
		if err := json.Unmarshal([]byte(stdout), &found); err != nil {
			return err
		}
		for _, literal := range insightsLiterals {
			if strings.Contains(stdout, literal) {
				t.Fatalf("a literal is shown: %s", stdout)
			}
		}
		return found.missing()
	})
	found.checkClasses(t, primary)
	table := c.pluginPrints(0, []string{"insights", c.name}, append([]string{primary, "read for"}, provoked...)...)
	if strings.Contains(table, insightsLiteral) {
		t.Errorf("a literal is shown: %s", table)
	}
	c.pluginPrints(0, []string{"insights", c.name, "--notices", "--member", "0"}, "ServerStarted")
	shell := newDocsShell(t, c.namespace)
	if out := shell.runStep(t, "Insights", "classes"); !strings.Contains(out, "Deadlock") {
		t.Errorf("the guide's command prints %s", out)
	}
	if out := shell.runStep(t, "Insights", "lines"); !strings.Contains(out, "deadlock detected") {
		t.Errorf("the guide's command prints %s", out)
	}
	c.checkRecordedInsights()
	c.requireLiteralsStay()
}

// insightsFound is what the plugin prints as JSON.
type insightsFound struct {
	Source  string `json:"source"`
	Classes []struct {
		Class      string  `json:"class"`
		Count      int64   `json:"count"`
		Meaning    string  `json:"meaning"`
		Remedy     string  `json:"remedy"`
		Largest    float64 `json:"largest"`
		Statements []struct {
			QueryID string `json:"queryID"`
		} `json:"statements"`
		Members []struct {
			Member string `json:"member"`
		} `json:"members"`
	} `json:"classes"`
	Members []struct {
		Member  string `json:"member"`
		Lines   int64  `json:"lines"`
		Dropped int64  `json:"dropped"`
		Error   string `json:"error"`
	} `json:"members"`
}

// missing says which of the provoked classes are not found.
func (f insightsFound) missing() error {
	seen := map[string]bool{}
	for _, c := range f.Classes {
		seen[c.Class] = c.Count > 0
	}
	for _, class := range provoked {
		if !seen[class] {
			return fmt.Errorf("class %s is missing", class)
		}
	}
	return nil
}

func (f insightsFound) checkClasses(t *testing.T, primary string) {
	t.Helper()
	if f.Source != "agents" || len(f.Members) != 2 {
		t.Errorf("%+v", f)
	}
	for _, m := range f.Members {
		if m.Lines == 0 || m.Dropped > 0 || m.Error != "" {
			t.Errorf("%+v", m)
		}
	}
	for _, c := range f.Classes {
		switch {
		case c.Meaning == "" || c.Remedy == "" || len(c.Members) == 0:
			t.Errorf("%+v", c)
		case c.Class == "SlowStatement" && (c.Largest < 500 || len(c.Statements) == 0), c.Class == "TemporaryFile" && c.Largest < 10000:
			t.Errorf("%+v", c)
		case c.Class == "Deadlock" && c.Members[0].Member != primary:
			t.Errorf("%+v", c)
		}
	}
}

// checkRecordedInsights waits until the status has the classes, and checks that it has no
// literal, and not more than its 2 KiB.
func (c *cluster) checkRecordedInsights() {
	c.t.Helper()
	obj := c.waitFor(insightsTimeout, "status.insights has what was provoked", func(obj *v1alpha1.PostgresCluster) error {
		seen := map[string]bool{}
		if recorded := obj.Status.Insights; recorded != nil {
			for _, i := range recorded.Classes {
				seen[i.Class] = true
			}
			if recorded.Omitted > 0 {
				return fmt.Errorf("%d classes are omitted: %+v", recorded.Omitted, recorded.Classes)
			}
		}
		for _, class := range provoked {
			if !seen[class] {
				return fmt.Errorf("class %s is missing", class)
			}
		}
		return nil
	})
	text, err := json.Marshal(obj.Status.Insights)
	must(c.t, err, "encode status.insights")
	status, err := json.Marshal(obj.Status)
	must(c.t, err, "encode status")
	if len(text) > 2<<10 || strings.Contains(string(status), insightsLiteral) {
		c.t.Errorf("%d bytes: %s", len(text), status)
	}
}

// provokeDeadlock has two sessions wait for each other: one holds the first row while the
// other holds the second one.
func (c *cluster) provokeDeadlock() {
	c.t.Helper()
	session := func(first, second int) string {
		return fmt.Sprintf("begin; update provoked set v = '%[1]s' where id = %[2]d; select pg_sleep(2); update provoked set v = '%[1]s' where id = %[3]d; commit", insightsLiteral, first, second)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := runLocalQuery(c.t.Context(), c.namespace, c.podName(leading), "app", session(2, 1))
		ended <- err
	}()
	_, err := runLocalQuery(c.t.Context(), c.namespace, c.podName(leading), "app", session(1, 2))
	if other := <-ended; (err == nil) == (other == nil) {
		c.t.Errorf("no deadlock: %v, %v", err, other)
	}
}

// failSQL runs a query that must fail.
func (c *cluster) failSQL(query string) {
	c.t.Helper()
	if out, err := runLocalQuery(c.t.Context(), c.namespace, c.podName(leading), "app", query); err == nil {
		c.t.Errorf("%s does not fail: %s", query, out)
	}
}
