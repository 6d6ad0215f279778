//go:build apiserver

package controller_test

import (
	"context"
	"fmt"
	"regexp"
	"testing"

	"github.com/holdfast-db/holdfast/internal/apitest"
)

// A new cluster that was begun goes on before others are begun: of many that are created
// together, the first ones do not wait for the last ones.
func TestBegunClustersGoFirst(t *testing.T) { eachKind(t, begunClustersGoFirst) }

func begunClustersGoFirst(t *testing.T, w *world) {
	o := w.operate(0)
	letGo := o.hold()
	const passes, all = 4, 32 // so many at the same time, and so many clusters
	for n := range all {
		w.create(w.cluster(fmt.Sprintf("new-%d", n), 1))
	}
	apitest.Eventually(t, "all workers wait", func(context.Context) (bool, string) {
		begun, _ := progressOf(o.copySeen())
		return begun == passes, fmt.Sprint(begun)
	})
	letGo()
	begun, again := 0, false
	apitest.Eventually(t, "one has its second pass", func(context.Context) (bool, string) {
		begun, again = progressOf(o.copySeen())
		return again, fmt.Sprint(begun)
	})
	if begun > all/2 {
		t.Errorf("%d of %d were begun before one had its second pass", begun, all)
	}
}

var (
	// newCluster is how a request names a new cluster: in its path, or in a selector.
	newCluster = regexp.MustCompile(`(?:/|%3D)(new-\d+)`)
	newStatus  = regexp.MustCompile(`clusters/(new-\d+)/status`)
)

// progressOf counts the clusters that a request was sent for, until the status of one was
// written the second time, if it was.
func progressOf(requests []string) (begun int, again bool) {
	seen, written := map[string]bool{}, map[string]bool{}
	for _, request := range requests {
		if named := newCluster.FindStringSubmatch(request); named != nil {
			seen[named[1]] = true
		}
		if status := newStatus.FindStringSubmatch(request); status != nil {
			if written[status[1]] {
				return len(seen), true
			}
			written[status[1]] = true
		}
	}
	return len(seen), false
}
