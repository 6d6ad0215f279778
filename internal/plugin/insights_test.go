package plugin

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

func clusterOfThree() *v1alpha1.PostgresCluster {
	c := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders"}}
	for _, name := range []string{"orders-0", "orders-1", "orders-2"} {
		c.Status.Members = append(c.Status.Members, v1alpha1.MemberStatus{Name: name})
	}
	return c
}

func foundInsight(class, severity string, count int64, first, last time.Duration) agentapi.Insight {
	return agentapi.Insight{Class: class, Severity: severity, Count: count, First: noon.Add(-first), Last: noon.Add(-last)}
}

// exampleInsights are what the agents of two members found; the third does not answer.
func exampleInsights(_ context.Context, namespace, pod string) (*agentapi.Insights, error) {
	if namespace != "shop" {
		return nil, errors.New("asked in another namespace")
	}
	deadlock := foundInsight("Deadlock", "Warning", 3, 26*time.Hour, 4*time.Minute)
	deadlock.SQLStates = []string{"40P01"}
	deadlock.Statements = []agentapi.InsightStatement{{QueryID: -4211508231406325867, Count: 3, Last: noon}}
	slow := foundInsight("SlowStatement", "Warning", 1204, 26*time.Hour, time.Minute)
	slow.Unit, slow.Largest, slow.Latest = "ms", 8400, 1200
	slow.Statements = []agentapi.InsightStatement{{QueryID: 7919, Count: 1100, Last: noon}, {QueryID: 42, Count: 104, Last: noon}}
	switch pod {
	case "orders-0":
		return &agentapi.Insights{Pod: pod, Since: noon.Add(-30 * time.Hour), Lines: 5120, Unclassified: 12, Dropped: 40, Classes: []agentapi.Insight{
			deadlock, slow, foundInsight("ServerStarted", "Notice", 1, 30*time.Hour, 30*time.Hour), foundInsight("OfANewerAgent", "Error", 1, time.Hour, time.Hour),
		}}, nil
	case "orders-1":
		conflict := foundInsight("RecoveryConflict", "Warning", 2, time.Hour, 50*time.Minute)
		slow.Count, slow.Largest, slow.Statements = 3, 100, []agentapi.InsightStatement{{QueryID: 42, Count: 3, Last: noon}}
		crashed := foundInsight("ServerProcessCrashed", "Critical", 1, 2*time.Hour, 2*time.Hour)
		crashed.Unit, crashed.Largest = "signal", 9
		return &agentapi.Insights{Pod: pod, Since: noon.Add(-29 * time.Hour), Lines: 80, Unread: "spec.parameters.log_line_prefix is declared", Classes: []agentapi.Insight{conflict, slow, crashed}}, nil
	}
	return readInsights([]byte("Run beside a database, as its supervisor\n\nUsage:\n"))
}

// gatherExample gathers the insights of the example, and what is written beside.
func gatherExample(t *testing.T, o *insightsOptions) (InsightsReport, string) {
	t.Helper()
	var warnings bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetErr(&warnings)
	cmd.SetContext(t.Context())
	r, err := o.gatherInsights(cmd, clusterOfThree())
	if err != nil {
		t.Fatal(err)
	}
	return r, warnings.String()
}

func TestInsights(t *testing.T) {
	r, warnings := gatherExample(t, &insightsOptions{session: &session{}, ask: exampleInsights})
	if !strings.Contains(warnings, "warning: member orders-2: its agent is older") {
		t.Errorf("warnings: %s", warnings)
	}
	var tree, encoded bytes.Buffer
	v := view{now: noon}
	if err := v.renderInsights(r).writeTree(&tree, v.style); err != nil {
		t.Fatal(err)
	}
	compareGolden(t, "insights.txt", tree.String())
	if err := writeEncoded(&encoded, "json", r); err != nil {
		t.Fatal(err)
	}
	compareGolden(t, "insights.json", encoded.String())
}

// A member may be selected, and one that does not answer is an error then.
func TestInsightsOfOneMember(t *testing.T) {
	r, _ := gatherExample(t, &insightsOptions{session: &session{}, ask: exampleInsights, member: "1"})
	if len(r.Members) != 1 || r.Members[0].Member != "orders-1" || len(r.Classes) != 3 {
		t.Errorf("%+v", r)
	}
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	if _, err := (&insightsOptions{session: &session{}, ask: exampleInsights, member: "2"}).gatherInsights(cmd, clusterOfThree()); err == nil || !strings.Contains(err.Error(), "older") {
		t.Errorf("%v", err)
	}
}

// A user who may not create pods/exec sees what the status has.
func TestInsightsOfTheStatus(t *testing.T) {
	forbidden := func(context.Context, string, string) (*agentapi.Insights, error) {
		return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "orders-0", errors.New("no"))
	}
	c := clusterOfThree()
	c.Status.Insights = &v1alpha1.InsightsStatus{Time: timeBefore(time.Minute), Classes: []v1alpha1.InsightStatus{
		{Class: "Deadlock", Severity: "Warning", Count: 3, First: timeBefore(time.Hour), Last: timeBefore(time.Minute), Member: "orders-0"},
	}}
	var warnings, tree bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetErr(&warnings)
	cmd.SetContext(t.Context())
	r, err := (&insightsOptions{session: &session{}, ask: forbidden}).gatherInsights(cmd, c)
	if err != nil || r.Source != "status" || len(r.Classes) != 1 || !strings.Contains(warnings.String(), "pods/exec") {
		t.Fatalf("%+v, %v, %s", r, err, warnings.String())
	}
	v := view{now: noon}
	if err := v.renderInsights(r).writeTree(&tree, v.style); err != nil {
		t.Fatal(err)
	}
	compareGolden(t, "insights-status.txt", tree.String())
}
