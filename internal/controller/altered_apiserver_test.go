//go:build apiserver

package controller_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// What a member reset of ALTER SYSTEM is one event and one record in status, and
// Synced says it as long as the member does.
func TestAlterSystemIsReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	c := w.NewPostgresCluster("orders", 2)
	w.create(c)
	o := w.operate(0)
	w.awaitReady(c)
	w.awaitSteady(o)
	const said = "ALTER SYSTEM on member orders-1: parameter fsync, was off"
	w.simulation.alter("orders-1", postgresapi.Reset{Parameter: "fsync", Was: "off", Time: time.Now().UTC().Truncate(time.Second)})
	await(w, c, "Synced says it", func(c *v1alpha1.PostgresCluster) bool {
		return conditions.IsTrue(c, v1alpha1.ConditionSynced) && strings.Contains(conditions.GetMessage(c, v1alpha1.ConditionSynced), said) &&
			c.Status.Drift != nil && c.Status.Drift.Last[0].Object == "Pod/orders-1" && c.Status.Drift.Last[0].Operation == "ALTER SYSTEM" && ready(c)
	})
	w.awaitEvent(v1alpha1.ReasonDriftReverted, said)
	o.stop()
	o = w.operate(0) // another operator does not say it again
	w.awaitSteady(o)
	w.get(c)
	if n := len(c.Status.Drift.Last); n != 1 {
		t.Errorf("status has %d drifts on record: %+v", n, c.Status.Drift.Last)
	}
	var events eventsv1.EventList
	if err := w.person.List(t.Context(), &events, client.InNamespace(w.Namespace)); err != nil {
		t.Fatal(err)
	}
	reported := 0
	for _, e := range events.Items {
		if strings.Contains(e.Note, said) {
			reported++
			if e.Series != nil {
				reported += int(e.Series.Count)
			}
		}
	}
	if reported != 1 {
		t.Errorf("%d events say it", reported)
	}
	w.simulation.alter("orders-1")
	await(w, c, "Synced says it no longer", func(c *v1alpha1.PostgresCluster) bool {
		return !strings.Contains(conditions.GetMessage(c, v1alpha1.ConditionSynced), "ALTER SYSTEM")
	})
}
