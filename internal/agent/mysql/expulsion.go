package mysql

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"
)

const (
	// promptAfter is how long a member may stay in the primary's view without an answer. A group
	// expels it after six seconds.
	promptAfter = 15 * time.Second
	// promptLimit is how long the server may take to accept a prompt.
	promptLimit = 5 * time.Second
)

// overdue follows which members the group should have expelled. A group decides about a
// member once, when it notices that it does not answer. Where nothing came of that, for the
// primary changed at that moment for one, it does not look again before anything else changes:
// the member cannot come back, and with one more the group has no majority.
type overdue struct {
	// members do not answer since a time.
	members string
	since   time.Duration
}

// observe takes in a view of the primary, and says whether the group is to look again.
func (e *overdue) observe(now time.Duration, v group.View) bool {
	members := strings.Join(v.ListUnreachable(), " ")
	switch {
	case members == "" || !v.HasMajority():
		*e = overdue{}
	case members != e.members:
		*e = overdue{members: members, since: now}
	case now-e.since >= promptAfter:
		e.since = now
		return true
	}
	return false
}

// promptExpulsion has the group look again at members that do not answer for too long.
func (k *recordWriter) promptExpulsion(ctx context.Context, v group.View) {
	if !k.overdue.observe(clock.Boottime(), v) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, promptLimit)
	defer cancel()
	k.run.o.Log.Warn("the group has not expelled members that do not answer: it is to look again", "members", slices.Collect(strings.SplitSeq(k.overdue.members, " ")))
	if err := k.run.client().Reconsider(ctx); err != nil {
		k.run.o.Log.Info("the group does not look again", "error", err.Error())
	}
}
