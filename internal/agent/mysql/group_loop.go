package mysql

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/health"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/startplan"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
)

// observeInterval is between two observations of the server.
const observeInterval = 250 * time.Millisecond

// groupLoop observes the server's part in the group, and brings the server into it. It is
// the only one that starts the server's part, so that what it reports holds: a detached
// server stays so until the loop has reported otherwise.
type groupLoop struct {
	run *serverRun
	// starting says that the member is reported to be about to join a group or to start
	// one.
	starting bool
	// claimed is the term that the member claimed since its server is detached.
	claimed int64
	// waiting is how often in a row it had to wait.
	waiting int
	// under is the action that is under way since begun; nil for none.
	under chan error
	begun time.Duration
	// observeLimit is how long the server may take to answer.
	observeLimit time.Duration
	// inGroup says that the server was in the group when it was observed last.
	inGroup bool
}

func newGroupLoop(r *serverRun) *groupLoop {
	return &groupLoop{run: r, observeLimit: group.ObserveLimit}
}

// follow repeats steps until ctx ends, and then until what is under way has ended.
func (g *groupLoop) follow(ctx context.Context) {
	for pause := time.Duration(0); g.run.member.changed.Sleep(ctx, pause); {
		pause = g.step(ctx)
	}
	if g.under != nil {
		if err := <-g.under; err != nil {
			g.run.o.Log.Info("what was under way has ended", "error", err.Error())
		}
	}
}

// step observes the server and does one thing. It says how long to wait before the next.
func (g *groupLoop) step(ctx context.Context) time.Duration {
	g.endAction()
	// Observed after the action has ended: what was true before it does not count.
	began := clock.Boottime()
	o, err := g.run.observer().ObserveWithin(ctx, g.observeLimit)
	g.run.member.setUnanswered(g.findSilence(err))
	g.setPatience(clock.Boottime()-began, err)
	switch {
	case err != nil:
		g.run.member.reportSilent()
		return observeInterval
	case o.State == group.Failed:
		g.leaveFailed(o)
		return observeInterval
	case o.State != group.Offline:
		g.inGroup, g.claimed, g.waiting = true, 0, 0
		g.starting = g.under != nil
		g.run.member.reportInGroup(o)
		g.run.member.restoreAfter(began, o)
		return g.run.member.observeAfter()
	case g.under != nil:
		g.run.member.reportDetached(o, detachedState{state: agentapi.StateRecovering, message: "joins the group", starting: true})
		return observeInterval
	}
	if g.inGroup {
		g.inGroup, g.claimed, g.starting = false, 0, false
		g.run.o.Log.Warn("the server has left the group")
	}
	return g.stepDetached(ctx, o)
}

// beginLimit is how long the server may be silent because it joins a group or starts one.
const beginLimit = 3 * time.Minute

// findSilence is the error of an observation that the server did not answer in time; nil for
// another, or none. A refusal is an answer: another start would not change it. While the
// member joins a group or starts one, the server may be slow to answer.
func (g *groupLoop) findSilence(err error) error {
	begins := g.under != nil && clock.Boottime()-g.begun < beginLimit
	if begins || !errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// setPatience gives a server that did not answer in time longer for the next answers, until
// one comes soon again: one that is slow is not to leave its Services and come back in turns.
func (g *groupLoop) setPatience(took time.Duration, err error) {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		g.observeLimit = health.PatientTime
	case err == nil && took < group.ObserveLimit/2:
		g.observeLimit = group.ObserveLimit
	}
}

// endAction takes in the end of what was under way.
func (g *groupLoop) endAction() {
	select {
	case err := <-g.under:
		g.under, g.starting = nil, false
		if err != nil {
			g.run.o.Log.Warn("the member is not in the group", "error", err.Error())
		}
	default:
	}
}

// promptWaits is how often a member that has to wait looks again soon.
const promptWaits = 8

// settledAfter is how long a member must have been online before its failure is not taken
// for one of its data.
const settledAfter = 30 * time.Second

// leaveFailed ends a server that the group has expelled, or that has no majority: it knows
// that it must not take writes, but hangs for long when it is asked to leave.
func (g *groupLoop) leaveFailed(o group.Observation) {
	stable := g.run.member.onlineFor() >= settledAfter
	g.run.member.reportDetached(o, detachedState{state: agentapi.StateDisconnected, message: "was expelled from the group, or lost its majority"})
	var err error
	if !stable {
		reason := g.run.mysqld.LastError()
		if reason == "" {
			reason = "the text log does not say why"
		}
		err = errors.New("the server failed in the group: " + reason)
	}
	g.run.o.Log.Warn("the server has failed in the group: it is started again", "view", fmt.Sprint(o.View.Members))
	g.run.end(ending{err: err})
}

// stepDetached plans for a server in no group.
func (g *groupLoop) stepDetached(ctx context.Context, o group.Observation) time.Duration {
	record, known := g.readRecord(ctx, o)
	found := g.run.peers.askAll(ctx, record)
	s := group.Situation{
		Self:  o.NewReport(group.Report{Pod: g.run.o.Identity.Pod, Ordinal: g.run.ordinal, Group: g.run.name}, false, g.run.persisted.Record()),
		Peers: listReports(found), Record: record, RecordKnown: known, Persisted: g.run.persisted.Record(), Claimed: g.claimed,
	}
	recovery := g.findRecovery(s.Self)
	s.Forced, s.NewName = recovery != nil, uuid.NewString()
	if known && record.Group == "" {
		s = restoreLost(s)
	}
	p := group.PlanStart(s)
	g.reportRefused(recovery, p)
	return g.act(ctx, o, s, p, recovery)
}

// restoreLost plans without a record on the Lease. While a group serves, its primary writes
// it again; otherwise the volumes of all members have it.
func restoreLost(s group.Situation) group.Situation {
	serves := slices.ContainsFunc(s.Peers, func(p group.Report) bool { return p.Phase == group.InGroup })
	if serves {
		s.RecordKnown = false
		return s
	}
	s.Record = group.RestoreRecord(s.Persisted, s.Peers)
	return s
}

// readRecord reads the record of the members, and keeps it on the volume. The server of the
// first data records itself.
func (g *groupLoop) readRecord(ctx context.Context, o group.Observation) (group.Record, bool) {
	r := g.run
	record, err := r.store.ReadAndKeep(ctx, r.name, r.persisted)
	if err == nil && g.mayBeFirst() {
		if first, due := startplan.PlanFirstEntry(record, r.name, o.UUID, r.o.Identity.Pod); due {
			if err = r.store.Write(ctx, first.Next()); err == nil {
				record, err = first.Next(), r.persisted.Save(first.Next())
			}
		}
	}
	if err != nil {
		r.o.Log.Info("the record of the members is not known", "error", err.Error())
	}
	return record, err == nil
}

// mayBeFirst says whether the group is named after this volume: its first data is here.
func (g *groupLoop) mayBeFirst() bool {
	config := g.run.currentConfig()
	mark, err := datavolume.ReadMark(g.run.o.DataDir)
	return err == nil && config != nil && g.run.name == startplan.NameGroup(config.UID, mark.Volume)
}

// findRecovery is the request to start the group without members that do not answer, where
// it is this member's and was not carried out.
func (g *groupLoop) findRecovery(self group.Report) *mysqlapi.RecoveryRequest {
	config := g.run.currentConfig()
	if config == nil || config.GroupReplication == nil {
		return nil
	}
	request := config.GroupReplication.Recovery
	if request == nil || request.Pod != self.Pod || request.ServerUUID != self.UUID || g.run.isCarriedOut(request.ID) {
		return nil
	}
	return request
}

// isCarriedOut says whether a request to the member was carried out.
func (r *serverRun) isCarriedOut(request string) bool {
	mark, err := datavolume.ReadMark(r.o.DataDir)
	return err != nil || mark.Recovered == request
}

// reportRefused reports why a request to start the group is not followed now.
func (g *groupLoop) reportRefused(recovery *mysqlapi.RecoveryRequest, p group.Plan) {
	if recovery == nil {
		return
	}
	reason := ""
	if p.Action == group.Wait || p.Action == group.Hold {
		reason = p.Reason
	}
	g.run.reportRefused(recovery.ID, reason)
}

// act does what is planned.
func (g *groupLoop) act(ctx context.Context, o group.Observation, s group.Situation, p group.Plan, recovery *mysqlapi.RecoveryRequest) time.Duration {
	claims := p.Action == group.ClaimBoot || p.Action == group.StartGroup
	g.starting = g.starting && claims
	if p.Action == group.Join || p.Action == group.StartGroup {
		if err := g.checkOwnName(ctx); err != nil {
			p = group.Plan{Reason: err.Error()}
		}
	}
	if p.Action != group.Wait && p.Action != group.Hold {
		g.waiting = 0
	}
	switch p.Action {
	case group.Hold:
		return g.hold(o, p)
	case group.CloneFrom:
		g.report(o, agentapi.StateCloning, p)
		g.run.o.Log.Warn("the data is replaced by a copy", "because", p.Reason)
		g.run.end(ending{inOrder: true, replace: &replacement{Reason: p.Reason}})
		return observeInterval
	case group.RecordJoining:
		g.report(o, agentapi.StateRecovering, p)
		return g.writeRecord(ctx, p)
	case group.Join:
		g.begin(ctx, o, "joins the group", func(ctx context.Context) error { return g.join(ctx, p) })
		return observeInterval
	case group.ClaimBoot:
		return g.claim(ctx, o, s, p, recovery)
	case group.StartGroup:
		g.run.member.startsGroup(g.claimed)
		g.begin(ctx, o, "starts the group", func(ctx context.Context) error { return g.run.client().Boot(ctx, p.ReplicationName, p.SingleLeader) })
		return observeInterval
	}
	g.report(o, agentapi.StateWaiting, p)
	g.waiting++
	if g.waiting <= promptWaits {
		return observeInterval // another member is about to do something, mostly
	}
	return min(time.Second<<min(g.waiting/30, 3), 4*time.Second)
}

func (g *groupLoop) report(o group.Observation, state agentapi.State, p group.Plan) {
	g.run.member.reportDetached(o, detachedState{state: state, message: p.Reason, starting: g.starting, plan: p})
}

// begin reports that the member is about to be in a group, and then does it beside the loop:
// it may take a minute.
func (g *groupLoop) begin(ctx context.Context, o group.Observation, message string, do func(context.Context) error) {
	g.starting = true
	g.run.member.reportDetached(o, detachedState{state: agentapi.StateRecovering, message: message, starting: true})
	g.run.o.Log.Info(message)
	g.under, g.begun = make(chan error, 1), clock.Boottime()
	go func(under chan<- error) { under <- do(ctx) }(g.under)
}

// joinPause is between two members that join at the same time.
const joinPause = 400 * time.Millisecond

// join has a member of the group let the server in, when it is its turn.
func (g *groupLoop) join(ctx context.Context, p group.Plan) error {
	if !clock.Sleep(ctx, time.Duration(p.Turn)*joinPause) {
		return ctx.Err()
	}
	return g.run.client().Join(ctx, p.ReplicationName, p.SingleLeader, p.Seeds...)
}

// claim records the claim to start the group, after it is reported: the others look after
// that, and so does this member.
func (g *groupLoop) claim(ctx context.Context, o group.Observation, s group.Situation, p group.Plan, recovery *mysqlapi.RecoveryRequest) time.Duration {
	if !g.starting {
		g.starting = true
		g.report(o, agentapi.StateRecovering, p)
		return 0
	}
	g.report(o, agentapi.StateRecovering, p)
	if recovery != nil {
		g.run.o.Log.Warn("starts the group without members that do not answer", "request", recovery.ID, "missing", p.Missing, "record", fmt.Sprint(s.Record.Entries))
	}
	if pause := g.writeRecord(ctx, p); pause > 0 {
		return pause
	}
	g.claimed = p.Record.Boot.Term
	if recovery != nil {
		// From now on the record names only members that answered.
		if err := g.run.markCarriedOut(recovery.ID); err != nil {
			g.run.o.Log.Warn("the request is not recorded as carried out", "error", err.Error())
		}
	}
	return 0
}

// markCarriedOut records a request as carried out.
func (r *serverRun) markCarriedOut(request string) error {
	if err := datavolume.MarkRecovered(r.o.DataDir, request); err != nil {
		return err
	}
	r.Store.Update(func(s *agentapi.Status) { s.Recovered = request })
	return nil
}

func (g *groupLoop) writeRecord(ctx context.Context, p group.Plan) time.Duration {
	if err := g.run.store.Write(ctx, p.Record.Next()); err != nil {
		g.run.o.Log.Info("tried again", "step", p.Reason, "error", err.Error())
		return time.Second
	}
	return 0
}

// hold keeps data that is not the group's. A person may ask for a copy in its place.
func (g *groupLoop) hold(o group.Observation, p group.Plan) time.Duration {
	hold := agentapi.HoldDataDiverged
	if p.Foreign {
		hold = agentapi.HoldSystemIdentifier
	}
	if g.waiting == 0 {
		g.run.o.Log.Warn("the data is held", "hold", hold, "because", p.Reason)
	}
	g.waiting++
	g.run.member.reportDetached(o, detachedState{state: agentapi.StateHeld, hold: hold, message: p.Reason + "; the data is kept as it is", plan: p})
	if request := g.findCloneRequest(o); request != nil && !p.Foreign {
		g.run.o.Log.Warn("the diverged data is replaced by a copy, as requested", "request", request.ID, "errant", p.Errant.String())
		g.run.end(ending{inOrder: true, replace: &replacement{Reason: p.Reason, Request: request.ID}})
	}
	return pauseHeld
}

func (g *groupLoop) findCloneRequest(o group.Observation) *mysqlapi.CloneRequest {
	config := g.run.currentConfig()
	if config == nil || config.GroupReplication == nil {
		return nil
	}
	request := config.GroupReplication.CloneAgain
	if request == nil || request.Pod != g.run.o.Identity.Pod || request.ServerUUID != o.UUID || g.run.isCarriedOut(request.ID) {
		return nil
	}
	return request
}

// checkOwnName fails while the name by which the others reach this member is another
// pod's, or none's: the group would find a dead address.
func (g *groupLoop) checkOwnName(ctx context.Context) error {
	own, err := netip.ParseAddr(g.run.o.Identity.Address)
	if err != nil {
		return nil // it is not known
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	host, _ := g.run.o.Database(g.run.o.Identity.Pod)
	addresses, err := g.run.o.Resolve(ctx, host)
	if err != nil {
		return fmt.Errorf("waits until its name can be resolved: %w", err)
	}
	for _, text := range addresses {
		if address, err := netip.ParseAddr(text); err == nil && address.Unmap() == own.Unmap() {
			return nil
		}
	}
	return errors.New("waits until its name " + host + " leads to its own address")
}
