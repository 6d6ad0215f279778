//go:build e2e || soak

package e2e

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"
)

// quietMinute is how long a steady world is listened to.
const quietMinute = time.Minute

// auditRow is one kind of request in the API server's audit log.
type auditRow struct {
	User, UserAgent, Verb, Resource, Namespace, Name string
	Count                                            int
	// DryRun says that the request was to change nothing.
	DryRun bool
}

func (r auditRow) isWrite() bool {
	return r.Verb == "create" || r.Verb == "update" || r.Verb == "patch" || r.Verb == "delete"
}

// auditRequests counts the requests of some users since a time, from the API server's
// own log, which test/cluster keeps.
func auditRequests(t *testing.T, from time.Time, user string, objects bool) []auditRow {
	t.Helper()
	args := []string{"--dir", state, "audit", "-o", "json", "--user", user, "--from", from.Format(time.RFC3339Nano)}
	if objects {
		args = append(args, "--objects")
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(state, "bin", "cluster"), args...).Output()
	must(t, err, "read the audit log")
	var rows []auditRow
	must(t, json.Unmarshal(out, &rows), "read the audit's rows")
	return rows
}

func formatTable(rows []auditRow) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s/%s\n", r.Count, r.Verb, r.Resource, r.User, r.Namespace, r.Name)
	}
	if err := w.Flush(); err != nil {
		panic(fmt.Sprintf("a strings.Builder takes everything: %v", err))
	}
	return b.String()
}

// endedElsewhere: client-go closes a series of like events some minutes after
// the last of them, also for clusters of other tests that are gone by then.
func endedElsewhere(r auditRow, namespace string) bool {
	return strings.HasPrefix(r.Resource, "events.") && r.Namespace != namespace
}

// schemas is held by tests that count all requests of an operator, and locked to
// change a CRD: every client lists its objects again then.
var schemas sync.RWMutex

// recordedSince is how often the operator recorded insights of a cluster since a time, at
// most once in ten minutes: a disk that is slow for a moment is something that happened.
func recordedSince(c *subject, from time.Time) int {
	if i := c.getCluster().CommonStatus().Insights; i != nil && !i.Time.Time.Before(from.Truncate(time.Second)) {
		c.t.Logf("%s recorded insights: %+v", c.name, i.Classes)
		return 1
	}
	return 0
}

// quietOperated listens to an operator of the test's own: what other tests do
// is no concern of its clusters.
func quietOperated(t *testing.T) {
	own := &operator{newNamespace(t, "operator-"), operatorName}
	namespace := newNamespace(t, "")
	schemas.RLock()
	defer schemas.RUnlock()
	own.install(t, namespace)
	testQuiet(t, own, namespace, kindsTogether(), 3, quietMinute)
}

// testQuiet: so many clusters of each of these kinds that nothing happens to cost the API
// server nothing but the operator's own Lease, and watches.
func testQuiet(t *testing.T, by *operator, namespace string, kinds []*kind, clusters int, period time.Duration) {
	needKind(t, kinds[0])
	var all []*subject
	for _, k := range kinds {
		if len(imageVersions(k.engine, k.line)) == 0 {
			notTested(t, "the nodes have no image for a quiet %s", k.name)
			continue
		}
		for n := range clusters {
			all = append(all, createSubject(t, k, namespace, fmt.Sprintf("still-%s-%c", k.engine, 'a'+n), 1))
		}
	}
	for _, c := range all {
		c.waitReady()
	}
	time.Sleep(settlePeriod)
	marks := make([]int, len(all))
	for i, c := range all {
		marks[i] = c.markPlace()
	}
	from := time.Now()
	time.Sleep(period)
	recorded := map[string]int{}
	for _, c := range all {
		recorded[c.name] = recordedSince(c, from)
	}
	var noise []auditRow
	for _, r := range auditRequests(t, from, by.accounts(), true) {
		if r.Verb == "patch" && strings.Contains(r.Resource, "/status") && r.Count <= recorded[r.Name] {
			continue
		}
		if r.Verb != "watch" && !by.isOwnLease(r) && !endedElsewhere(r, namespace) {
			noise = append(noise, r)
		}
	}
	if len(noise) > 0 {
		t.Errorf("in %s with nothing to do the operator asked:\n%s", period, formatTable(noise))
	}
	for i, c := range all {
		if changes := len(c.sinceMark(marks[i])); changes > recorded[c.name] {
			t.Errorf("%s changed %d times with nothing to do", c.name, changes)
		}
	}
	t.Logf("in %s the agents of %d members asked:\n%s", period, len(all),
		formatTable(auditRequests(t, from, "^system:serviceaccount:"+namespace+":", false)))
}
