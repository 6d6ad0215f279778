package clustermetrics

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// serving is a cluster that has been Ready, with a status of Available.
func serving(status metav1.ConditionStatus) *v1alpha1.PostgresCluster {
	return rolledOut(named(&v1alpha1.PostgresCluster{}, "orders", "Available="+string(status)))
}

// Time counts as the status at its beginning says.
func TestServiceTimes(t *testing.T) {
	deleted := serving("False")
	deleted.DeletionTimestamp = &metav1.Time{Time: noon}
	type step struct {
		after time.Duration
		is    *v1alpha1.PostgresCluster
	}
	for name, c := range map[string]struct {
		steps               []step
		observed, available time.Duration
	}{
		"a cluster that serves":                          {[]step{{0, serving("True")}, {30 * time.Second, serving("True")}}, 30 * time.Second, 30 * time.Second},
		"an outage that ends between two scrapes":        {[]step{{0, serving("True")}, {10 * time.Second, serving("False")}, {5 * time.Second, serving("True")}, {15 * time.Second, serving("True")}}, 30 * time.Second, 25 * time.Second},
		"an outage that goes on":                         {[]step{{0, serving("False")}, {time.Minute, serving("False")}}, time.Minute, 0},
		"a status that is unknown for a while":           {[]step{{0, serving("True")}, {10 * time.Second, serving("Unknown")}, {time.Minute, serving("True")}, {10 * time.Second, serving("True")}}, 20 * time.Second, 20 * time.Second},
		"an operator that stood still":                   {[]step{{0, serving("False")}, {longestGap + time.Second, serving("False")}, {10 * time.Second, serving("True")}}, 10 * time.Second, 0},
		"the longest time between scrapes":               {[]step{{0, serving("True")}, {longestGap, serving("True")}}, longestGap, longestGap},
		"a clock that is set back":                       {[]step{{0, serving("True")}, {-time.Hour, serving("True")}, {time.Second, serving("True")}}, time.Second, time.Second},
		"a cluster that is deleted":                      {[]step{{0, serving("True")}, {time.Second, deleted}, {time.Minute, deleted}}, time.Second, time.Second},
		"a cluster that was Ready and lost its database": {[]step{{0, serving("True")}, {time.Second, serving("False")}, {4 * time.Minute, serving("False")}}, time.Second + 4*time.Minute, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			var s serviceTimes
			now := noon
			var last *serviceTime
			for _, step := range c.steps {
				now = now.Add(step.after)
				last = s.observe(step.is, now)
			}
			if last.observed != c.observed || last.available != c.available {
				t.Errorf("observed %s, available %s; want %s and %s", last.observed, last.available, c.observed, c.available)
			}
		})
	}
}

// A cluster that is being bootstrapped is not an outage: nothing is reported before it has
// been Ready once.
func TestBootstrapIsNoOutage(t *testing.T) {
	var s serviceTimes
	made := named(&v1alpha1.PostgresCluster{}, "orders", "Available=False", "Ready=False", "Reconciling=True:Creating")
	for i := range 10 {
		if got := s.observe(made, noon.Add(time.Duration(i)*time.Minute)); got != nil {
			t.Fatalf("%+v", *got)
		}
	}
	if got := s.observe(serving("True"), noon.Add(10*time.Minute)); got == nil || got.observed != 0 {
		t.Errorf("%+v", got)
	}
}

// Changes that the cache reports count from that moment, of the leader only. A cluster
// that is gone is forgotten, and one that has its name begins anew.
func TestChangesAreObserved(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(noon)
	c := newCollector(t, clock)
	c.Elected = make(chan struct{})
	c.observeChange(serving("False"))
	clock.SetTime(noon.Add(time.Minute))
	c.Elected = elected
	c.observeChange(serving("True"))
	clock.SetTime(noon.Add(time.Minute + time.Second))
	c.observeChange(serving("False"))
	clock.SetTime(noon.Add(time.Minute + 3*time.Second))
	if got := c.service.observe(serving("True"), clock.Now()); got.observed != 3*time.Second || got.available != time.Second {
		t.Errorf("observed %s, available %s", got.observed, got.available)
	}
	c.observeDeletion(toolscache.DeletedFinalStateUnknown{Obj: serving("True")})
	if len(c.service.all) != 0 {
		t.Errorf("%d clusters are remembered", len(c.service.all))
	}
}
