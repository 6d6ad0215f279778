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
)

const (
	observeInterval = 500 * time.Millisecond
	upkeepInterval  = 5 * time.Second
	settleInterval  = time.Second
	// recordInterval is between two looks at the register, and recordRetry
	// after one that failed.
	recordInterval = 10 * time.Minute
	recordRetry    = 30 * time.Second
	// asideAge is how long a member must have had a vote and served before the
	// data that it replaces is given up.
	asideAge = time.Minute
	// defaultQuota is etcd's own.
	defaultQuota = 2 << 30
)

// sight is what one look at etcd shows.
type sight struct {
	// Status as etcd answers clients; nil when it does not.
	Status *clientv3.StatusResponse
	// Members as the peer port has them; nil when it does not answer.
	Members []etcdapi.GroupMember
	// Log is read when etcd does not answer clients, and Led is then what its
	// metrics say: with a long log to go through, it follows a leader long before
	// it answers.
	Log logState
	Led bool
}

// look asks the peer port first: etcd does not survive a client's question
// after it has taken in its own removal.
func (l *life) look(ctx context.Context) sight {
	var s sight
	peers, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, list, err := l.local.members(peers, l.local.peer)
	if err == nil {
		s.Members = list
	}
	if l.counted(list) {
		// Before it has heard of a leader, etcd lets a question wait.
		clients, cancel := context.WithTimeout(ctx, 1500*time.Millisecond)
		defer cancel()
		if status, err := l.local.status(clients); err == nil && status.Header != nil {
			s.Status = status
		}
	}
	if s.Status == nil {
		s.Log, _ = readLog(l.o.data())
		s.Led = l.hasLeader(ctx)
	}
	return s
}

// counted says whether a membership has this member.
func (l *life) counted(list []etcdapi.GroupMember) bool {
	id := l.member
	if id == "" {
		log, _ := readLog(l.o.data())
		id = log.Member
		l.member = id
	}
	return slices.ContainsFunc(list, func(m etcdapi.GroupMember) bool { return m.ID == id })
}

// observe reports what etcd does until ctx ends.
func (l *life) observe(ctx context.Context) {
	ticker := time.NewTicker(observeInterval)
	defer ticker.Stop()
	for {
		s := l.look(ctx)
		if ctx.Err() != nil {
			return
		}
		l.take(s)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// take reports a sight.
func (l *life) take(s sight) {
	l.mu.Lock()
	l.up = l.up || s.Status != nil || s.Members != nil
	l.answered = l.answered || s.Status != nil
	l.heard = l.heard.with(s, clock.Boottime())
	l.led = l.led || l.heard.Leader != ""
	if s.Status != nil {
		l.storageVersion = s.Status.StorageVersion
	}
	up, self, elsewhere, objection := l.up, l.self, l.elsewhere, l.objection
	l.mu.Unlock()
	state, message := situation(s, up)
	if accepts, why := l.health.Serving(); !accepts {
		state, message = agentapi.StateHung, why
	}
	message = joined(message, elsewhere, objection)
	group := groupOf(s, self)
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
		st.SystemIdentifier, st.Version, st.Position = hex(s.Status.Header.ClusterId), s.Status.Version, s.Status.RaftIndex
		st.DataSize = s.Status.DbSize
		changeGroup(st, func(g *etcdapi.GroupStatus) {
			g.Alarms = alarms(s.Status.Errors)
			g.DataInUse, g.DataLimit = s.Status.DbSizeInUse, quota(s.Status.DbSizeQuota, l.limit)
			g.DataFill, g.DataUnused = fill(st.DataSize, g.DataLimit), unused(st.DataSize, g.DataInUse)
		})
	})
	l.served(state == agentapi.StateRunning)
}

// served takes in whether the member has a vote and serves: what it serves with
// is proven.
func (l *life) served(serving bool) {
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
	if err := prove(l.o.DataDir, l.choice.Parameters); err != nil {
		l.log.Warn("cannot keep the parameters", "error", err.Error())
	}
}

// situation puts what was seen into words. Without a leader etcd does not
// answer clients after a start, and answers that it has none later.
func situation(s sight, up bool) (agentapi.State, string) {
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

// joined is what there is to say of several sentences.
func joined(sentences ...string) string {
	return strings.Join(slices.DeleteFunc(sentences, func(s string) bool { return s == "" }), "; ")
}

func groupOf(s sight, self string) *etcdapi.Group {
	if s.Status == nil && s.Members == nil {
		return nil
	}
	g := &etcdapi.Group{Self: self, Members: s.Members}
	if s.Status != nil && s.Status.Leader != 0 {
		g.Leader = hex(s.Status.Leader)
	}
	return g
}

var alarmText = regexp.MustCompile(`memberID:\s*(\d+)\s+alarm:\s*(\w+)`)

// alarms are those that a status tells of, among its errors.
func alarms(errors []string) []string {
	var found []string
	for _, text := range errors {
		if match := alarmText.FindStringSubmatch(text); match != nil {
			id, _ := strconv.ParseUint(match[1], 10, 64)
			found = append(found, match[2]+":"+hex(id))
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// quota in force: older releases do not say it.
func quota(said, limit int64) int64 {
	switch {
	case said > 0:
		return said
	case limit > 0:
		return limit
	default:
		return defaultQuota
	}
}

// step that fill and unused are rounded down to, in percent.
const step = 5

func fill(size, limit int64) int {
	if limit <= 0 {
		return 0
	}
	return int(size*100/limit) / step * step
}

// unused is what a defragmentation would give back.
func unused(size, inUse int64) int {
	if size-inUse < 16<<20 {
		return 0
	}
	return int((size-inUse)*100/size) / step * step
}
