//go:build e2e

package e2e

import (
	"testing"

	"github.com/holdfast-db/holdfast/test/docs"
)

// docsMarks are the marks of blocks that run here. All blocks of the first mark
// run before any of the second, which delete the cluster.
var docsMarks = []struct{ name, what string }{
	{"DocsRun", "commands that leave the clusters usable"},
	{"DocsRunLast", "commands that delete the PostgresCluster"},
}

// docsRun runs the pages' commands that have one of docsMarks, page by page and
// in each page's order, against clusters of the names that the pages use. The
// namespace shop of the pages is the test's own.
func docsRun(t *testing.T) {
	needKind(t, etcd)
	namespace := newNamespace(t, "")
	shop := createSubject(t, postgres, namespace, orders, 3, "backup: {enabled: true}")
	config := createSubject(t, etcd, namespace, "config", 1)
	shop.waitReady()
	config.waitReady()
	shell := newDocsShell(t, namespace)
	blocks, err := docs.ReadAllBlocks(docsRoot)
	must(t, err, "read the pages")
	ran := 0
	for _, mark := range docsMarks {
		for _, b := range blocks {
			if b.Test == mark.name {
				ran++
				shell.runBlock(t, b)
			}
		}
	}
	if ran < 8 {
		t.Errorf("only %d blocks were run", ran)
	}
}
