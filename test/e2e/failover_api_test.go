//go:build e2e || soak

package e2e

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// leaseDuration is the default of spec.failover.leaseDuration: a primary that no member
// confirms has stopped before it is over.
const leaseDuration = 10 * time.Second

// primaryCutFromAPI: only the primary does not reach the API server. The others do, so
// they do not confirm it, and another one leads.
func primaryCutFromAPI(f *failover) time.Duration {
	pod := f.primaryPod()
	return f.replaceUnreachable("primary cut off from the API server", pod, func() func() { return cutFromAPIServer(f.t, pod) })
}

// apiServerAway: no member reaches the API server for a long time. No write fails.
func apiServerAway(f *failover, period time.Duration) time.Duration {
	before, since := f.currentLeadership(), f.history.Now()
	return f.servesThrough(fmt.Sprintf("API server not reached for %s", period), before, since, period, f.cutAllFromAPIServer())
}

// cutAllFromAPIServer keeps every member from it, from the same moment on: a member that
// reads the API server still does not confirm a primary that does not.
func (f *failover) cutAllFromAPIServer() (heals []func()) {
	f.t.Helper()
	pods := f.listPods()
	heals, errs := make([]func(), len(pods)), make([]error, len(pods))
	began := time.Now()
	var all sync.WaitGroup
	for n := range pods {
		begin, end := podCut(&pods[n], bothWays, apiServerAddress)
		heals[n] = healLater(f.t, end)
		all.Go(func() { errs[n] = runClusterTool(context.Background(), begin...) })
	}
	all.Wait()
	must(f.t, errors.Join(errs...), "cut the members off from the API server")
	f.t.Logf("all members were cut off from the API server within %s", time.Since(began).Round(time.Millisecond))
	return heals
}

// apiServerAwayWithoutMember: no member reaches the API server, and one is cut off from
// everything. It cannot confirm the primary, so that writes stop before another member
// could lead, and return without any help.
func apiServerAwayWithoutMember(f *failover, period time.Duration) time.Duration {
	since := f.history.Now()
	lost := f.chooseReplica()
	heals := append(f.cutAllFromAPIServer(), cutPod(f.t, lost, bothWays))
	f.expectFence(period)
	for _, heal := range heals {
		heal()
	}
	return f.endEvent(fmt.Sprintf("API server not reached for %s, and one member away", period), since, true)
}

// expectFence lets a time pass that began when the primary could neither renew the Lease
// nor be confirmed: writes end before another member could lead.
func (f *failover) expectFence(period time.Duration) {
	f.t.Helper()
	cut := f.history.Now()
	time.Sleep(period) // the observation itself: no write may be acknowledged
	for _, row := range f.history.Writes(cut) {
		if row.Acknowledged && row.Sent > cut+leaseDuration {
			f.t.Errorf("write %d of %s was acknowledged %s after no member could confirm the primary", row.Number, row.Client, row.Ended-cut)
			return
		}
	}
}

// leaseLost: the Lease is deleted, and then emptied, while its holder lives. That writes
// it again, and no write fails.
func leaseLost(f *failover) time.Duration {
	since, before := f.history.Now(), f.currentLeadership()
	for _, lose := range []func(context.Context) error{f.deleteLease, f.emptyLease} {
		must(f.t, lose(f.t.Context()), "lose the Lease")
		eventually(f.t, failoverTimeout, "the holder writes the Lease again", func(ctx context.Context) error {
			now, err := readLeadership(ctx, f.namespace, f.name)
			if err == nil && now != before {
				err = fmt.Errorf("it is %+v, before %+v", now, before)
			}
			return err
		})
		// A primary that has not noticed would have stopped by then.
		time.Sleep(leaseDuration)
	}
	if _, failed := f.w.countWrites(since); failed > 0 {
		f.t.Errorf("%d writes failed, the last error is %v", failed, f.w.readError())
	}
	return f.endEvent("Lease deleted and emptied", since, true)
}
