package etcd

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
	"github.com/holdfast-db/holdfast/internal/loginsight"
)

const (
	observeInterval     = 500 * time.Millisecond
	maintenanceInterval = 5 * time.Second
	settleInterval      = time.Second
	// recordInterval is between two checks of the membership record, and recordRetry
	// after one that failed.
	recordInterval = 10 * time.Minute
	recordRetry    = 30 * time.Second
	// asideAge is how long a member must have had a vote and served before the
	// data that it replaces is discarded.
	asideAge = time.Minute
	// defaultQuota is etcd's own.
	defaultQuota = 2 << 30
)

// serverObservation is what is read of a running etcd at one time.
type serverObservation struct {
	// Status as etcd answers clients; nil when it does not.
	Status *clientv3.StatusResponse
	// Members as the peer port has them; nil when it does not answer.
	Members []etcdapi.GroupMember
	// Log is read when etcd does not answer clients, and Led is then what its
	// metrics say: with a long log to go through, it follows a leader long before
	// it answers.
	Log raftLogState
	Led bool
}

// observeServer asks the peer port first: etcd does not survive a client's question
// after it has taken in its own removal.
func (l *etcdRun) observeServer(ctx context.Context) serverObservation {
	var s serverObservation
	peers, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, list, err := l.local.fetchMembers(peers, l.local.peer)
	if err == nil {
		s.Members = list
	}
	if l.isCounted(list) {
		// Before it has heard of a leader, etcd lets a question wait.
		clients, cancel := context.WithTimeout(ctx, 1500*time.Millisecond)
		defer cancel()
		if status, err := l.local.fetchStatus(clients); err == nil && status.Header != nil {
			s.Status = status
		}
	}
	if s.Status == nil {
		s.Log, _ = readRaftLog(l.o.etcdDir())
		s.Led = l.hasLeader(ctx)
	}
	return s
}

// isCounted says whether a membership has this member.
func (l *etcdRun) isCounted(list []etcdapi.GroupMember) bool {
	id := l.member
	if id == "" {
		log, _ := readRaftLog(l.o.etcdDir())
		id = log.Member
		l.member = id
	}
	return slices.ContainsFunc(list, func(m etcdapi.GroupMember) bool { return m.ID == id })
}

// watchServer reports what etcd does until ctx ends.
func (l *etcdRun) watchServer(ctx context.Context) {
	ticker := time.NewTicker(observeInterval)
	defer ticker.Stop()
	for {
		s := l.observeServer(ctx)
		if ctx.Err() != nil {
			return
		}
		l.reportObservation(s)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// reportObservation reports what was observed.
func (l *etcdRun) reportObservation(s serverObservation) {
	l.mu.Lock()
	l.up = l.up || s.Status != nil || s.Members != nil
	l.answered = l.answered || s.Status != nil
	l.heard = l.heard.withObservation(s, clock.Boottime())
	l.led = l.led || l.heard.Leader != ""
	if s.Status != nil {
		l.storageVersion = s.Status.StorageVersion
	}
	up, self, elsewhere, objection := l.up, l.self, l.elsewhere, l.objection
	l.mu.Unlock()
	state, message := describeState(s, up)
	if accepts, why := l.health.Serving(); !accepts {
		state, message = agentapi.StateHung, why
	}
	message = joinSentences(message, elsewhere, objection)
	group, raised := groupOf(s, self), readGroup(l.Store.Get()).Alarms
	l.Store.Update(func(st *agentapi.Status) {
		st.State, st.Message, st.Hold = state, message, ""
		st.Serving, st.Lag = state == agentapi.StateRunning, 0
		changeGroup(st, func(g *etcdapi.GroupStatus) { g.LostMember, g.Group = "", group })
		if s.Status == nil {
			if s.Log.Cluster != "" {
				st.SystemIdentifier, st.Position = s.Log.Cluster, max(s.Log.Commit, st.Position)
			}
			return
		}
		st.SystemIdentifier, st.Version, st.Position = formatID(s.Status.Header.ClusterId), s.Status.Version, s.Status.RaftIndex
		st.DataSize = s.Status.DbSize
		changeGroup(st, func(g *etcdapi.GroupStatus) {
			g.Alarms = parseAlarms(s.Status.Errors)
			g.DataInUse, g.DataLimit = s.Status.DbSizeInUse, effectiveQuota(s.Status.DbSizeQuota, l.limit)
			g.DataFill, g.DataUnused = fillPercent(st.DataSize, g.DataLimit), unusedPercent(st.DataSize, g.DataInUse)
		})
	})
	l.noteAlarms(raised, readGroup(l.Store.Get()).Alarms)
	l.noteServing(state == agentapi.StateRunning)
}

// noteAlarms notes alarms that were not raised before: etcd writes no line about most of
// them.
func (l *etcdRun) noteAlarms(before, now []string) {
	for _, alarm := range now {
		if !slices.Contains(before, alarm) {
			l.Insights.Note(loginsight.Event{Class: loginsight.FindClass("EtcdAlarmRaised"), Time: time.Now().UTC()})
		}
	}
}

// noteServing records whether the member has a vote and serves: what it serves with
// is proven.
func (l *etcdRun) noteServing(serving bool) {
	l.mu.Lock()
	first := serving && l.voting.IsZero()
	switch {
	case !serving:
		l.voting = time.Time{}
	case first:
		l.voting = time.Now()
	}
	l.mu.Unlock()
	if !first {
		return
	}
	l.crashes = 0
	l.log.Info("serves", "parameters", l.choice.Parameters)
	if l.choice.Refused != "" {
		return
	}
	if err := saveProven(l.o.DataDir, l.choice.Parameters); err != nil {
		l.log.Warn("cannot keep the parameters", "error", err.Error())
	}
}

// describeState puts an observation into words. Without a leader etcd does not
// answer clients after a start, and answers that it has none later.
func describeState(s serverObservation, up bool) (agentapi.State, string) {
	switch {
	case s.Status == nil && s.Members == nil && !up:
		return agentapi.StateRecovering, "starts etcd"
	case s.Status == nil && s.Members == nil:
		return agentapi.StateDisconnected, "etcd does not answer"
	case s.Status == nil || s.Status.Leader == 0:
		return agentapi.StateDisconnected, "the group has no leader, or this member does not hear it"
	case s.Status.IsLearner:
		return agentapi.StateCatchingUp, "follows without a vote"
	default:
		return agentapi.StateRunning, ""
	}
}

// joinSentences joins those that are not empty.
func joinSentences(sentences ...string) string {
	return strings.Join(slices.DeleteFunc(sentences, func(s string) bool { return s == "" }), "; ")
}

func groupOf(s serverObservation, self string) *etcdapi.Group {
	if s.Status == nil && s.Members == nil {
		return nil
	}
	g := &etcdapi.Group{Self: self, Members: s.Members}
	if s.Status != nil && s.Status.Leader != 0 {
		g.Leader = formatID(s.Status.Leader)
	}
	return g
}

var alarmText = regexp.MustCompile(`memberID:\s*(\d+)\s+alarm:\s*(\w+)`)

// parseAlarms finds the alarms among the errors of a status.
func parseAlarms(errors []string) []string {
	var found []string
	for _, text := range errors {
		if match := alarmText.FindStringSubmatch(text); match != nil {
			id, _ := strconv.ParseUint(match[1], 10, 64)
			found = append(found, match[2]+":"+formatID(id))
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// effectiveQuota is the quota in force: older releases do not say it.
func effectiveQuota(said, limit int64) int64 {
	switch {
	case said > 0:
		return said
	case limit > 0:
		return limit
	default:
		return defaultQuota
	}
}

// step that fillPercent and unusedPercent are rounded down to, in percent.
const step = 5

func fillPercent(size, limit int64) int {
	if limit <= 0 {
		return 0
	}
	return int(size*100/limit) / step * step
}

// unusedPercent is what a defragmentation would give back.
func unusedPercent(size, inUse int64) int {
	if size-inUse < 16<<20 {
		return 0
	}
	return int((size-inUse)*100/size) / step * step
}
