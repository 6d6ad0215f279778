package postgres

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// requested is the request in the configuration of the members; empty for none.
func requested(t *testing.T, w *world) string {
	t.Helper()
	var config agentapi.ClusterConfig
	d, _, _ := w.desired()
	if err := json.Unmarshal(d.Config, &config); err != nil {
		t.Fatal(err)
	}
	if config.OlderData == nil {
		return ""
	}
	return config.OlderData.ID + " " + config.OlderData.Pod
}

func TestOlderData(t *testing.T) {
	type outcome struct {
		Requests []v1alpha1.RequestStatus
		Request  string
	}
	request := func(result string) []v1alpha1.RequestStatus {
		return []v1alpha1.RequestStatus{{Type: "continue-with-older-data", ID: "go", Target: "orders-0", Result: result}}
	}
	const notNeeded = "not needed: orders-0 is not held for older data"
	cases := []struct {
		name   string
		change func(w *world)
		want   outcome
	}{
		{"nothing is requested", func(w *world) { delete(w.c.Annotations, v1alpha1.AnnotationContinueWithOlderData) }, outcome{}},
		{"a request is recorded before its member gets it", func(*world) {}, outcome{Requests: request("")}},
		{"a recorded request is passed on", func(w *world) { w.c.Status.Requests = request("") }, outcome{request(""), "go orders-0"}},
		{"so it is when the annotation is gone", func(w *world) {
			w.c.Status.Requests = request("")
			delete(w.c.Annotations, v1alpha1.AnnotationContinueWithOlderData)
		}, outcome{request(""), "go orders-0"}},
		{"so it is while its member starts", func(w *world) {
			w.c.Status.Requests = request("")
			m := w.status(0)
			m.State, m.Hold = agentapi.StateRecovering, ""
		}, outcome{request(""), "go orders-0"}},
		{"its member has carried it out", func(w *world) {
			w.c.Status.Requests = request("")
			m := w.status(0)
			m.Recovered, m.Engine = "go", postgresapi.ReplicationStatus{Timeline: 2}
		}, outcome{Requests: request("orders-0 went on with older data, on timeline 2")}},
		{"the newer volume came back", func(w *world) {
			w.c.Status.Requests = request("")
			m := w.status(0)
			m.State, m.Hold, m.Serving, m.Role = agentapi.StateRunning, "", true, v1alpha1.RolePrimary
		}, outcome{Requests: request(notNeeded)}},
		{"an ID is carried out once", func(w *world) { w.c.Status.Requests = request("done") }, outcome{Requests: request("done")}},
		{"another ID is taken up", func(w *world) {
			w.c.Status.Requests = request("done")
			w.c.Status.Requests[0].ID = "before"
		}, outcome{Requests: request("")}},
		{"a primary that serves is not asked to", func(w *world) {
			m := w.status(0)
			m.State, m.Hold, m.Serving, m.Role = agentapi.StateRunning, "", true, v1alpha1.RolePrimary
		}, outcome{Requests: request(notNeeded)}},
		{"a member that has not said what holds it is waited for", func(w *world) {
			m := w.status(0)
			m.State, m.Hold = agentapi.StateStarting, ""
		}, outcome{}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := held(t, 0, agentapi.HoldDataStale)
			w.c.Annotations = map[string]string{v1alpha1.AnnotationContinueWithOlderData: "go"}
			c.change(w)
			if diff := cmp.Diff(c.want, outcome{w.plan().Report.Requests, requested(t, w)}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
