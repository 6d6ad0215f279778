//go:build soak

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// minutes of a schedule, and what became of each.
type minutes struct {
	*subject
	mu sync.Mutex
	// made are the UIDs of the Backups of a slot, and passed is why there was
	// none.
	made   map[string]map[string]bool
	passed map[string]string
}

// slotFormat is how a slot is written in the name of its Backup, in UTC.
const slotFormat = "20060102-1504"

// watchBackups notes what there is until the context ends.
func (m *minutes) watchBackups(ctx context.Context) {
	for ; ctx.Err() == nil; time.Sleep(pollInterval) {
		var all v1alpha1.BackupList
		obj := m.kind.empty()
		if env.client.List(ctx, &all, client.InNamespace(m.namespace)) != nil || env.client.Get(ctx, m.nameOf(""), obj) != nil {
			continue // asked again
		}
		m.noteState(all.Items, obj.CommonStatus().Schedules)
	}
}

func (m *minutes) noteState(all []v1alpha1.Backup, schedules []v1alpha1.ScheduleStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range all {
		slot := all[i].Labels[v1alpha1.LabelSchedule]
		if m.made[slot] == nil {
			m.made[slot] = map[string]bool{}
		}
		m.made[slot][string(all[i].UID)] = true
	}
	for _, s := range schedules {
		for _, p := range s.LastSkipped {
			m.passed[p.Slot.UTC().Format(slotFormat)] = p.Reason
		}
	}
}

// checkSlots goes through the slots between two times.
func (m *minutes) checkSlots(from, to time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	made, passed := 0, 0
	for slot := from.Truncate(time.Minute).Add(time.Minute); !slot.After(to); slot = slot.Add(time.Minute) {
		name := slot.UTC().Format(slotFormat)
		reason, skipped := m.passed[name]
		switch backups := len(m.made[name]); {
		case backups > 1:
			m.t.Errorf("%s: %d backups of %s", m.name, backups, name)
		case backups == 1 && skipped:
			m.t.Errorf("%s: %s has a backup, and was skipped: %s", m.name, name, reason)
		case backups == 1:
			made++
		case skipped:
			passed++
			m.t.Logf("%s: %s was skipped: %s", m.name, name, reason)
		default:
			m.t.Errorf("%s: %s has no backup, and nothing says why", m.name, name)
		}
	}
	m.t.Logf("%s: %d backups, %d slots skipped", m.name, made, passed)
	if made == 0 {
		m.t.Errorf("%s: no backup at all", m.name)
	}
}

// everyMinute: a schedule of every minute, under operators that are killed and
// whose leader changes at random. Each slot has one backup, or is recorded as
// skipped; and all that were begun come to their end.
func everyMinute(t *testing.T, period time.Duration) {
	installed.restoreReplicas(t)
	installed.scaleTo(t, 2)
	var all []*minutes
	for _, k := range allKinds() {
		if !k.saves {
			continue
		}
		c := newSubject(t, k, 1, "backup: {schedule: '* * * * *'}")
		all = append(all, &minutes{subject: c, made: map[string]map[string]bool{}, passed: map[string]string{}})
	}
	for _, m := range all {
		m.waitReady()
	}
	from := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	for _, m := range all {
		wait.Go(func() { m.watchBackups(ctx) })
	}
	troubleOperators(t, from.Add(period))
	to := time.Now()
	for _, m := range all {
		m.waitFor(backupTimeout, "the slots are done with", func(c v1alpha1.Cluster) error {
			for _, s := range c.CommonStatus().Schedules {
				if s.NextSlot == nil || !s.NextSlot.After(to) {
					return fmt.Errorf("%+v", s)
				}
			}
			return nil
		})
		m.changeSpec("backup: {schedule: '0 0 1 1 *'}")
		m.waitEnded()
	}
	cancel()
	wait.Wait()
	for _, m := range all {
		m.checkSlots(from, to)
	}
}

// troubleOperators kills the leader, or every operator, or takes the Lease away, at
// random until a time has come.
func troubleOperators(t *testing.T, until time.Time) {
	t.Helper()
	troubles := []struct {
		name string
		do   func(context.Context) error
	}{
		{"every operator is killed", installed.killPods},
		{"the leader is killed", func(ctx context.Context) error {
			leader, err := installed.findLeader(ctx)
			if err != nil {
				return err
			}
			return client.IgnoreNotFound(env.client.Delete(ctx, leader, client.GracePeriodSeconds(0)))
		}},
		{"the Lease is gone", func(ctx context.Context) error {
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: operatorLease}}
			return client.IgnoreNotFound(env.client.Delete(ctx, lease))
		}},
	}
	for time.Now().Before(until) {
		installed.waitForLeader(t)
		time.Sleep(rand.N(40 * time.Second))
		trouble := troubles[rand.N(len(troubles))]
		t.Logf("%s: %s (%v)", time.Now().UTC().Format(time.TimeOnly), trouble.name, trouble.do(t.Context()))
	}
	installed.waitForLeader(t)
}

// waitEnded waits until every backup of the namespace has succeeded.
func (m *minutes) waitEnded() {
	m.t.Helper()
	eventually(m.t, backupTimeout, m.name+": every backup has come to a good end", func(ctx context.Context) error {
		var all v1alpha1.BackupList
		if err := env.client.List(ctx, &all, client.InNamespace(m.namespace)); err != nil {
			return err
		}
		for i := range all.Items {
			if b := &all.Items[i]; !b.HasSucceeded() {
				return fmt.Errorf("%s: phase %s, run %+v, %s", b.Name, b.Status.Phase, b.Status.Run, b.Status.Error)
			}
		}
		return nil
	})
}
