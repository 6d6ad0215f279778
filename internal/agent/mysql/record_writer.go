package mysql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/membership"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/serving"
	"github.com/holdfast-db/holdfast/internal/agent/statusserver"
)

const (
	// keepInterval is between two checks whether the record is to be read.
	keepInterval = time.Second
	// rereadInterval is between two readings while nothing seems to change, and
	// rereadMost while a member waits for one that brought nothing.
	rereadInterval = time.Minute
	rereadMost     = 16 * time.Second
	// barrierLimit is how long the group may take to agree.
	barrierLimit = 3 * time.Second
)

// recordWriter keeps the record of the members while the server leads: who is online has
// joined, and who has left is out of it. A member joins only once the record with it is on
// this volume.
type recordWriter struct {
	run   *serverRun
	store *membership.Store
	// view is that of the last reading, and read when that was.
	view string
	read time.Duration
	// pause is between two readings for members that wait.
	pause time.Duration
	// waiting are the members that waited at the last check.
	waiting []string
	// overdue are the members that the group should have expelled.
	overdue overdue
}

func newRecordWriter(r *serverRun) *recordWriter {
	return &recordWriter{run: r, store: r.newStore(), overdue: overdue{}}
}

func (k *recordWriter) follow(ctx context.Context) {
	for clock.Sleep(ctx, keepInterval) {
		o := k.run.member.current()
		k.promptExpulsion(ctx, o)
		if !serving.IsPrimary(o) {
			k.view, k.read, k.waiting = "", 0, nil
			continue
		}
		found := k.askOthers(ctx, o)
		if !k.isDue(o, found) {
			continue
		}
		if err := k.settle(ctx, found); err != nil && ctx.Err() == nil {
			k.run.o.Log.Info("the record of the members is not kept", "error", err.Error())
		}
	}
}

// askOthers asks the other members while the view has not all of them.
func (k *recordWriter) askOthers(ctx context.Context, o group.Observation) []peer {
	record := k.run.persisted.Record()
	if len(o.View.Members) >= len(k.run.ListMembers()) && len(record.Entries) == len(o.View.Members) {
		return nil
	}
	return k.run.peers.askAll(ctx, record)
}

// isDue says whether the record is to be read: the members have changed, one waits to join or
// has joined, or a while has passed.
func (k *recordWriter) isDue(o group.Observation, found []peer) bool {
	age := clock.Boottime() - k.read
	waiting := listWaiting(found)
	switch {
	case k.read == 0 || k.view != o.View.ID || !slices.Equal(waiting, k.waiting):
		k.pause = keepInterval
	case k.run.member.claim() > 0, age >= rereadInterval, hasJoined(o.View, k.run.persisted.Record()):
	case len(waiting) == 0 || age < k.pause:
		return false
	default:
		k.pause = min(2*k.pause, rereadMost)
	}
	k.waiting = waiting
	return true
}

// hasJoined says whether a member is online that the record has as one that is about to join.
// Its view has not changed since it began to recover.
func hasJoined(v group.View, r group.Record) bool {
	return slices.ContainsFunc(r.Entries, func(e group.Entry) bool {
		m, present := v.Find(e.UUID)
		return e.Joining && present && m.State == group.Online
	})
}

// listWaiting are the members whose servers are in no group.
func listWaiting(found []peer) []string {
	var waiting []string
	for _, p := range found {
		if p.Phase == group.Detached {
			waiting = append(waiting, p.UUID)
		}
	}
	slices.Sort(waiting)
	return waiting
}

// settle reads the record and brings it up to date. The view is newer than the reading: the
// group agrees on something in between.
func (k *recordWriter) settle(ctx context.Context, found []peer) error {
	r := k.run
	record, err := k.store.ReadAndKeep(ctx, r.name, r.persisted)
	if err != nil {
		return err
	}
	if record.Group == "" {
		if record = r.persisted.Record(); record.Group == "" {
			record = group.Record{Group: r.name}
		}
		r.o.Log.Warn("the record of the members is lost: it is written again")
	}
	agreeing, cancel := context.WithTimeout(ctx, barrierLimit)
	defer cancel()
	if err := r.client().Barrier(agreeing); err != nil {
		return err
	}
	o, err := r.client().Observe(ctx)
	if err != nil {
		return err
	}
	if !serving.IsPrimary(o) {
		return errors.New("another member leads by now")
	}
	if err := k.confirmStart(record, o); err != nil {
		r.end(ending{err: err})
		return err
	}
	settled := record.Settle(o.View).WithoutGone(o.View, func(e group.Entry) bool { return k.isGone(ctx, e, found) })
	// The Lease may have another record than the one that was read and kept: it was lost, or
	// set back.
	if !k.store.Holds(settled) {
		settled = settled.Next()
		if err := k.store.Write(ctx, settled); err != nil {
			return err
		}
		if err := r.persisted.Save(settled); err != nil {
			return err
		}
		r.o.Log.Info("the record of the members has changed", "members", fmt.Sprint(settled.Entries))
	}
	k.view, k.read = o.View.ID, clock.Boottime()
	return nil
}

// confirmStart lets clients in where this member's start of the group is still the last
// one. Another one may have been asked to start it while this one stood still.
func (k *recordWriter) confirmStart(record group.Record, o group.Observation) error {
	term := k.run.member.claim()
	if term == 0 {
		return nil
	}
	if !group.MayServe(record, o.UUID, term) {
		return fmt.Errorf("another member has started the group since: term %d is of %s", record.Boot.Term, record.Boot.UUID)
	}
	k.run.member.confirm()
	return nil
}

// isGone says whether a recorded member never comes back: its pod runs on other data by now,
// or was scaled away.
func (k *recordWriter) isGone(ctx context.Context, e group.Entry, found []peer) bool {
	switch e.Pod {
	case "":
		return false
	case k.run.o.Identity.Pod:
		return true // its earlier data
	}
	for _, p := range found {
		if p.Pod == e.Pod {
			return p.UUID != "" && p.UUID != e.UUID
		}
	}
	config := k.run.currentConfig()
	if config == nil || !config.Live || slices.Contains(config.Members, e.Pod) {
		return false
	}
	asking, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	_, err := k.run.peers.status(asking, e.Pod)
	return err != nil && statusserver.Gone(err)
}
