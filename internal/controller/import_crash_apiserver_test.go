//go:build apiserver

package controller_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// The operator dies in the Nth write of a cluster that begins with an import, for every N, and
// another one goes on: the database is filled once, by one program, and clients are let in then.
func TestCrashWhileImporting(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	w.simulation.imports.set(func(i *imports) { i.runs = true })
	crashed := 0
	for n := 1; n < mostWrites; n++ {
		c := w.importingFrom(fmt.Sprintf("orders-%d", n), "old")
		first := w.operate(n)
		w.create(c)
		if !w.awaitCrash(first, c) {
			break
		}
		crashed = n
		second := w.operate(0)
		w.awaitImported(c, map[string]int{"old": 1})
		w.remove(c, second)
	}
	t.Logf("%d writes", crashed)
	if crashed < 25 {
		t.Errorf("an import of %d writes is less than there are objects", crashed)
	}
}

// The same for every other N while an import that gets no answer is replaced by one from another
// source, and while it is canceled. The program that runs is slow to stop.
func TestCrashWhileAnImportIsReplaced(t *testing.T) {
	for name, change := range map[string]struct {
		source *v1alpha1.ImportSource
		began  map[string]int
	}{
		"another source": {importOf("new"), map[string]int{"away": 1, "new": 1}},
		"canceled":       {nil, map[string]int{"away": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, postgresKind)
			w.simulation.imports.set(func(i *imports) { i.runs, i.away = true, map[string]bool{"away": true} })
			if change.source != nil {
				change.source.PasswordSecretRef = nil
			}
			crashed := 0
			for n := 1; n < mostWrites; n += 2 {
				c := w.importingFrom(fmt.Sprintf("orders-%d", n), "away")
				began := w.operate(0)
				w.create(c)
				await(w, c, "the source gives no answer", func(c *v1alpha1.PostgresCluster) bool {
					return c.Status.Import != nil && c.Status.Import.Error != ""
				})
				began.stop()
				first := w.operate(n)
				edit(w, c, func(c *v1alpha1.PostgresCluster) { c.Spec.Bootstrap.Import = change.source })
				if !w.awaitCrash(first, c) {
					break
				}
				crashed = n
				second := w.operate(0)
				w.awaitImported(c, change.began)
				w.remove(c, second)
			}
			t.Logf("%d writes", crashed)
			if crashed < 5 {
				t.Errorf("%d writes are too few", crashed)
			}
		})
	}
}

// importingFrom is a cluster that begins with an import from a host.
func (w *world) importingFrom(name, host string) *v1alpha1.PostgresCluster {
	w.t.Helper()
	c := w.importing()
	c.Name, c.Spec.Bootstrap.Import = name, importOf(host)
	c.Spec.Bootstrap.Import.PasswordSecretRef = nil
	return c
}

// awaitImported waits until a cluster is Ready, and checks that programs were begun for these
// sources, and for what is declared now to its end.
func (w *world) awaitImported(c *v1alpha1.PostgresCluster, began map[string]int) {
	w.t.Helper()
	w.awaitReady(c)
	st := c.Status.Import
	if declared := c.Spec.Bootstrap.Import != nil; declared != st.Done() || declared && (st.Result == nil || st.Result.Rows != 7) || !declared && st != nil {
		w.t.Errorf("%s: %+v is recorded of the import", c.Name, st)
	}
	if diff := cmp.Diff(began, w.simulation.imports.sourcesOf(c)); diff != "" {
		w.t.Errorf("%s: programs begun by source (-want +got):\n%s", c.Name, diff)
	}
}
