//go:build e2e && soak

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// restoresAcrossTimelines: an archive that two failovers went through. The cluster of
// any moment comes back, of each of the three timelines, and that of its end.
func restoresAcrossTimelines(t *testing.T) {
	needKind(t, postgres)
	a := &archived{s: newStore(t, "", "4Gi")}
	namespace := newNamespace(t, "")
	a.s.giveKeys(namespace)
	a.at = fmt.Sprintf("url: 's3://%s/timelines', endpoint: '%s', pathStyle: true, credentialsSecretRef: {name: keys}", bucket, a.s.endpointURL())
	a.subject = createSubject(t, postgres, namespace, orders, failoverMembers, "backup: {continuous: true, schedule: '0 0 1 1 *', destination: {"+a.at+"}}")
	a.waitReady()
	a.wal = fmt.Sprintf("timelines/%s/%s/%s/wal/", namespace, a.name, a.getCluster().GetUID())
	a.awaitCopied("first")
	a.writer = a.startWriter()
	timelines := []string{a.currentTimeline()}
	var moments []time.Time
	for range 2 {
		a.goesOnFor(50) // on the timeline before the failover
		moments = append(moments, a.writer.report.recentMoment())
		c := &cluster{a.subject}
		pod, before := c.primaryPod(), c.currentLeadership()
		deletePod(t, pod, false)
		c.awaitTermAfter(before)
		a.waitReady()
		a.goesOnFor(50)
		timelines = append(timelines, a.currentTimeline())
		moments = append(moments, a.writer.report.recentMoment())
	}
	a.writer.stopWriting()
	a.s.waitStored(a.wal + storedSegment(a.closeSegment()))
	if timelines[0] == timelines[1] || timelines[1] == timelines[2] {
		t.Errorf("the timelines are %v", timelines)
	}
	a.restoreAll(moments)
	t.Logf("restored to %d moments of timelines %s", len(moments), strings.Join(timelines, ", "))
}

// recentMoment is the end of one of the latest writes: it is of the current timeline,
// and other commits follow it.
func (s *writerReport) recentMoment() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ended []time.Time
	for _, w := range s.spans {
		if !w.ended.IsZero() {
			ended = append(ended, w.ended)
		}
	}
	slices.SortFunc(ended, time.Time.Compare)
	return ended[len(ended)-5]
}

func (a *archived) currentTimeline() string {
	a.t.Helper()
	return a.runSQL("select left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)")
}
