package memberset

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentclient"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
	"github.com/holdfast-db/holdfast/internal/loginsight"
	"github.com/holdfast-db/holdfast/internal/loginsight/loginsighttest"
)

var insightsNoon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// insightsView is a view of members, by ordinal, that found insights.
func insightsView(name string, was *v1alpha1.InsightsStatus, now time.Time, members ...[]agentapi.Insight) *View {
	c := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	c.Status.Insights = was
	o := Observation{Pods: map[int]*corev1.Pod{}, Members: map[string]agentclient.Observation{}}
	for n, classes := range members {
		pod, uid := fmt.Sprintf("%s-%d", name, n), fmt.Sprintf("uid-%d", n)
		o.Pods[n] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod, UID: types.UID(uid)}}
		o.Members[pod] = agentclient.Observation{Insights: &agentapi.Insights{Pod: pod, PodUID: uid, Classes: classes}}
	}
	return &View{Set: objects.Set{Cluster: c}, Observed: o, Now: now}
}

func insight(class string, count int64, first, last time.Duration) agentapi.Insight {
	return agentapi.Insight{Class: class, Severity: "whatever an agent says", Count: count, First: insightsNoon.Add(-first), Last: insightsNoon.Add(-last)}
}

func TestReportInsights(t *testing.T) {
	got, wait := insightsView("orders", nil, insightsNoon,
		[]agentapi.Insight{insight("Deadlock", 3, 2*time.Hour, time.Hour), insight("ServerStarted", 1, time.Hour, time.Hour), insight("select * from secrets", 9, 0, 0)},
		[]agentapi.Insight{insight("Deadlock", 4, time.Hour, time.Minute), insight("DiskFull", 1, time.Hour, time.Hour), insight("LockWait", 1, 30*time.Hour, 25*time.Hour)},
	).ReportInsights()
	want := []v1alpha1.InsightStatus{
		{Class: "DiskFull", Severity: "Critical", Count: 1, First: metav1.NewTime(insightsNoon.Add(-time.Hour)), Last: metav1.NewTime(insightsNoon.Add(-time.Hour)), Member: "orders-1"},
		{Class: "Deadlock", Severity: "Warning", Count: 7, First: metav1.NewTime(insightsNoon.Add(-2 * time.Hour)), Last: metav1.NewTime(insightsNoon.Add(-time.Minute)), Member: "orders-1"},
	}
	if got == nil || wait != 0 || !got.Time.Time.Equal(insightsNoon) || len(got.Classes) != 2 || got.Classes[0] != want[0] || got.Classes[1] != want[1] {
		t.Errorf("%+v, %s", got, wait)
	}
	if got, _ := insightsView("orders", nil, insightsNoon, nil).ReportInsights(); got != nil {
		t.Errorf("nothing was found, and it is reported: %+v", got)
	}
	other := insightsView("orders", nil, insightsNoon, []agentapi.Insight{insight("Deadlock", 3, 0, 0)})
	other.Observed.Members["orders-0"].Insights.PodUID = "that of the pod before"
	if got, _ := other.ReportInsights(); got != nil {
		t.Errorf("what the pod before found is reported: %+v", got)
	}
}

// A record changes when a class is new or was counted twice as often, and at most once in
// ten minutes.
func TestInsightsAreRecordedSeldom(t *testing.T) {
	at := func(d time.Duration) time.Time { return insightsNoon.Add(d) }
	report := func(was *v1alpha1.InsightsStatus, now time.Time, classes ...agentapi.Insight) (*v1alpha1.InsightsStatus, time.Duration) {
		return insightsView("orders", was, now, classes).ReportInsights()
	}
	first, _ := report(nil, insightsNoon, insight("Deadlock", 4, time.Minute, time.Minute))
	for name, c := range map[string]struct {
		now     time.Time
		found   []agentapi.Insight
		changed bool
		wait    time.Duration
	}{
		"the same":                     {at(time.Hour), []agentapi.Insight{insight("Deadlock", 4, time.Minute, time.Minute)}, false, 0},
		"a few more, in the same hour": {at(30 * time.Minute), []agentapi.Insight{insight("Deadlock", 7, time.Minute, time.Second)}, false, 0},
		"twice as many":                {at(30 * time.Minute), []agentapi.Insight{insight("Deadlock", 8, time.Minute, time.Minute)}, true, 0},
		"twice as many, too soon":      {at(4 * time.Minute), []agentapi.Insight{insight("Deadlock", 8, time.Minute, time.Minute)}, false, 6 * time.Minute},
		"another class":                {at(10 * time.Minute), []agentapi.Insight{insight("Deadlock", 4, time.Minute, time.Minute), insight("DiskFull", 1, 0, 0)}, true, 0},
		"another class, too soon":      {at(9 * time.Minute), []agentapi.Insight{insight("Deadlock", 4, time.Minute, time.Minute), insight("DiskFull", 1, 0, 0)}, false, time.Minute},
		"an agent that started anew":   {at(time.Hour), nil, false, 0},
		"a day later":                  {at(25 * time.Hour), nil, true, 0},
		"a clock that was set back":    {at(-time.Hour), []agentapi.Insight{insight("DiskFull", 1, 2*time.Hour, 2*time.Hour)}, true, 0},
	} {
		got, wait := report(first, c.now, c.found...)
		changed := got == nil || !got.Time.Equal(&first.Time)
		if changed != c.changed || wait != c.wait {
			t.Errorf("%s: changed %t, wait %s: %+v", name, changed, wait, got)
		}
	}
	if got, _ := report(first, at(25*time.Hour)); got != nil {
		t.Errorf("a class of the day before is reported: %+v", got)
	}
	restarted, _ := report(first, at(time.Hour), insight("Deadlock", 1, -time.Minute, -time.Minute))
	if !restarted.Classes[0].First.Equal(&first.Classes[0].First) || restarted.Classes[0].Count != 1 {
		t.Errorf("after the agent started anew: %+v", restarted)
	}
}

// A record with all classes of all engines, of a cluster with the longest name, fits.
func TestInsightsAreLimited(t *testing.T) {
	name := strings.Repeat("n", 40)
	var classes []agentapi.Insight
	for _, e := range []loginsight.Engine{loginsight.PostgreSQL, loginsight.MySQL, loginsight.Etcd} {
		for _, c := range loginsight.ListClasses(e) {
			classes = append(classes, insight(c.Name, 1<<62, time.Hour, 0))
		}
	}
	got, _ := insightsView(name, nil, insightsNoon, classes).ReportInsights()
	text, err := json.Marshal(got)
	if err != nil || len(text) > 2<<10 {
		t.Errorf("%v: %d bytes", err, len(text))
	}
	if got.Omitted == 0 || len(got.Classes) < 6 || got.Classes[0].Severity != string(loginsight.Critical) {
		t.Errorf("%d classes, %d omitted: %+v", len(got.Classes), got.Omitted, got.Classes[0])
	}
	again, wait := insightsView(name, got, insightsNoon.Add(time.Hour-time.Second), classes).ReportInsights()
	if wait != 0 || !again.Time.Equal(&got.Time) {
		t.Errorf("what is omitted makes a change of a steady cluster: %+v", again)
	}
	// A class that is worse is recorded, though as many classes are there as before.
	worst := got.Classes[0].Class
	before, _ := insightsView(name, nil, insightsNoon, leaveOut(classes, worst)).ReportInsights()
	var omitted string
	for _, i := range classes {
		severity := loginsight.FindClass(i.Class).Severity
		if severity == loginsight.Warning && !slices.ContainsFunc(before.Classes, func(b v1alpha1.InsightStatus) bool { return b.Class == i.Class }) {
			omitted = i.Class
		}
	}
	next, _ := insightsView(name, before, insightsNoon.Add(time.Hour-time.Second), leaveOut(classes, omitted)).ReportInsights()
	if next.Omitted != before.Omitted || next.Classes[0].Class != worst {
		t.Errorf("the worst class, %s, is not recorded: %+v", worst, next)
	}
}

func leaveOut(classes []agentapi.Insight, name string) []agentapi.Insight {
	return slices.DeleteFunc(slices.Clone(classes), func(i agentapi.Insight) bool { return i.Class == name })
}

// No canary that a client puts into a text log is in a status.
func TestInsightsHaveNoCanary(t *testing.T) {
	ring := loginsight.NewRing()
	canaries := loginsighttest.Canaries(200)
	for _, canary := range canaries {
		for _, line := range loginsighttest.PostgresLines(canary) {
			if event, result := loginsight.ParsePostgres(line, insightsNoon); result == loginsight.Known {
				ring.Add(event)
			}
		}
	}
	found := ring.Report()
	for _, canary := range canaries { // and whatever a broken agent says
		found = append(found, agentapi.Insight{Class: canary, Severity: canary, Unit: canary, SQLStates: []string{canary}, Count: 1, First: insightsNoon, Last: insightsNoon})
	}
	found = append(found, agentapi.Insight{Class: "Deadlock", Severity: canaries[0], Count: 1, First: insightsNoon, Last: insightsNoon})
	got, _ := insightsView("orders", nil, insightsNoon, found).ReportInsights()
	text, err := json.Marshal(got)
	if err != nil || len(got.Classes) < 5 {
		t.Fatalf("%v: %s", err, text)
	}
	for _, canary := range canaries {
		if strings.Contains(string(text), canary) {
			t.Errorf("canary %s is in %s", canary, text)
		}
	}
}
