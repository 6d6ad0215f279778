//go:build apiserver

package controller_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/fluxcd/pkg/runtime/conditions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apitest"
)

// What the schema makes of what is declared.
func TestRestoreSchema(t *testing.T) {
	t.Parallel()
	w := &world{Cluster: apitest.New(t), t: t}
	person := w.As(t, "kubectl")
	store := v1alpha1.BackupDestination{URL: "s3://acme/postgres"}
	for name, c := range map[string]struct {
		from v1alpha1.ClusterRestore
		want string
	}{
		"a Backup":                       {v1alpha1.ClusterRestore{Backup: "monday"}, ""},
		"objects in a store":             {v1alpha1.ClusterRestore{Source: &v1alpha1.RestoreSource{BackupDestination: store}}, ""},
		"neither":                        {v1alpha1.ClusterRestore{}, "name either backup"},
		"both":                           {v1alpha1.ClusterRestore{Backup: "monday", Source: &v1alpha1.RestoreSource{BackupDestination: store}}, "name either backup"},
		"a store without a URL":          {v1alpha1.ClusterRestore{Source: &v1alpha1.RestoreSource{Cluster: "orders"}}, "url"},
		"a time":                         {v1alpha1.ClusterRestore{Backup: "monday", Target: &v1alpha1.RestoreTarget{Time: "2026-03-01T12:00:00.123456+01:00"}}, ""},
		"a time in UTC":                  {v1alpha1.ClusterRestore{Backup: "monday", Target: &v1alpha1.RestoreTarget{Time: "2026-03-01T12:00:00Z"}}, ""},
		"a time without a zone":          {v1alpha1.ClusterRestore{Backup: "monday", Target: &v1alpha1.RestoreTarget{Time: "2026-03-01T12:00:00"}}, "target.time"},
		"a time as a log has it":         {v1alpha1.ClusterRestore{Backup: "monday", Target: &v1alpha1.RestoreTarget{Time: "2026-03-01 12:00:00 UTC"}}, "target.time"},
		"nanoseconds":                    {v1alpha1.ClusterRestore{Backup: "monday", Target: &v1alpha1.RestoreTarget{Time: "2026-03-01T12:00:00.123456789Z"}}, "target.time"},
		"a month that is none":           {v1alpha1.ClusterRestore{Backup: "monday", Target: &v1alpha1.RestoreTarget{Time: "2026-13-01T12:00:00Z"}}, "target.time"},
		"a position":                     {v1alpha1.ClusterRestore{Backup: "monday", Target: &v1alpha1.RestoreTarget{LSN: "1A/5000028"}}, ""},
		"a position that is none":        {v1alpha1.ClusterRestore{Backup: "monday", Target: &v1alpha1.RestoreTarget{LSN: "1a/5000028"}}, "target.lsn"},
		"a restore point":                {v1alpha1.ClusterRestore{Backup: "monday", Target: &v1alpha1.RestoreTarget{Name: "it's before"}}, ""},
		"a name of two lines":            {v1alpha1.ClusterRestore{Backup: "monday", Target: &v1alpha1.RestoreTarget{Name: "a\nb"}}, "target.name"},
		"a name of too many bytes":       {v1alpha1.ClusterRestore{Backup: "monday", Target: &v1alpha1.RestoreTarget{Name: strings.Repeat("ü", 32)}}, "63 bytes"},
		"a name of as many bytes as fit": {v1alpha1.ClusterRestore{Backup: "monday", Target: &v1alpha1.RestoreTarget{Name: strings.Repeat("ü", 31)}}, ""},
		"all of the log":                 {v1alpha1.ClusterRestore{Source: &v1alpha1.RestoreSource{BackupDestination: store}, Target: &v1alpha1.RestoreTarget{Latest: true}}, ""},
		"a target that says nothing":     {v1alpha1.ClusterRestore{Backup: "monday", Target: &v1alpha1.RestoreTarget{}}, "name one of time"},
		"two targets":                    {v1alpha1.ClusterRestore{Backup: "monday", Target: &v1alpha1.RestoreTarget{LSN: "0/1", Latest: true}}, "name one of time"},
		"a path for a namespace":         {v1alpha1.ClusterRestore{Source: &v1alpha1.RestoreSource{BackupDestination: store, Namespace: "../x"}}, "namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			obj := w.NewPostgresCluster("orders", 1)
			obj.Spec.Restore = &c.from
			err := person.Create(t.Context(), obj, client.DryRunAll)
			if c.want == "" && err != nil || c.want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), c.want)) {
				t.Error(err)
			}
		})
	}
}

// A moment is recorded with the backup, and another one is another wish; of
// etcd there is none.
func TestRestoreToAMoment(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	w.simulation.restores.set(func(r *restores) { r.fault = "the archived WAL ends before it" })
	w.monday("")
	w.create(w.keys())
	target := func(at string) *v1alpha1.ClusterRestore {
		return &v1alpha1.ClusterRestore{Backup: "monday", Target: &v1alpha1.RestoreTarget{Time: at}}
	}
	const noon, later = "2026-03-01T12:00:00.123456Z", "2026-03-01T12:00:00.123457Z"
	group := etcdKind.cluster(w)
	group.SetName("group")
	group.SetNamespace(w.Namespace)
	group.Common().Restore = target(noon)
	if err := w.person.Create(t.Context(), group); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "etcd keeps no log") {
		t.Errorf("of etcd: %v", err)
	}
	c := w.restoring("orders", 1)
	c.Common().Restore = target(noon)
	w.create(c)
	w.operate(0)
	w.awaitHeld(c, v1alpha1.ReasonRestoreFailed, "ends before it")
	if st := c.CommonStatus().Restore; !st.Target.Equal(c.Common().Restore.Target) {
		t.Errorf("on record: %+v", st)
	}
	w.simulation.restores.set(func(r *restores) { r.fault = "" })
	edit(w, c, func(c v1alpha1.Cluster) { c.Common().Restore = target(later) })
	w.awaitReady(c)
	w.awaitCleared(c)
	if st := c.CommonStatus().Restore; st.Target.Time != later || !st.Result.Target.Equal(st.Target) {
		t.Errorf("%+v with %+v", st, st.Result)
	}
	var asked []string
	for _, task := range w.simulation.restores.tasks {
		asked = append(asked, task.Target.Time)
	}
	if slices.Sort(asked); !slices.Equal(asked, []string{noon, later}) {
		t.Errorf("the pods were asked for %v", asked)
	}
	edit(w, c, func(c v1alpha1.Cluster) { c.Common().Restore = target(noon) })
	await(w, c, "served, and reported", func(c v1alpha1.Cluster) bool {
		return conditions.GetReason(c, v1alpha1.ConditionStalled) == v1alpha1.ReasonRestoreRefused && conditions.IsTrue(c, v1alpha1.ConditionAvailable)
	})
}
