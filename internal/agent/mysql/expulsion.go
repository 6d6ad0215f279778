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
	// promptAfter is how long a member may stay in a view without an answer. A group expels it
	// after six seconds.
	promptAfter = 15 * time.Second
	// promptMost is the longest pause between two prompts; each is twice the one before.
	promptMost = 4 * time.Minute
	// promptLimit is how long the server may take to accept a prompt.
	promptLimit = 5 * time.Second
)

// overdue follows which members the group should have expelled, by their UUID. A group
// decides about a member once, when it notices that it does not answer. Where nothing came of
// that, for the primary changed at that moment for one, it does not look again before anything
// else changes: the member cannot come back, and with one more the group has no majority.
type overdue map[string]silence

// silence of a member: the group is to look again when it has lasted for a while.
type silence struct{ since, pause time.Duration }

// observeView takes in a view, and returns the members for which the group is to look again.
func (e overdue) observeView(now time.Duration, v group.View) []string {
	silent := v.ListUnreachable()
	if !v.HasMajority() {
		silent = nil
	}
	for uuid := range e {
		if !slices.Contains(silent, uuid) {
			delete(e, uuid)
		}
	}
	var due []string
	for _, uuid := range silent {
		s, known := e[uuid]
		switch {
		case !known:
			s = silence{since: now, pause: promptAfter}
		case now-s.since >= s.pause:
			s = silence{since: now, pause: min(2*s.pause, promptMost)}
			due = append(due, uuid)
		}
		e[uuid] = s
	}
	return due
}

// isPrompter says whether it is up to the member to prompt its group: to the primary, and where
// that is the one that does not answer, to the first of those that are online.
func isPrompter(o group.Observation) bool {
	if primary, ok := o.View.Primary(); ok {
		return strings.EqualFold(primary.UUID, o.UUID)
	}
	var online []string
	for _, m := range o.View.Members {
		if m.State == group.Online {
			online = append(online, m.UUID)
		}
	}
	return len(online) > 0 && strings.EqualFold(slices.Min(online), o.UUID)
}

// promptExpulsion has the group look again at members that do not answer for too long.
func (k *recordWriter) promptExpulsion(ctx context.Context, o group.Observation) {
	due := k.overdue.observeView(clock.Boottime(), o.View)
	if len(due) == 0 || !isPrompter(o) || k.run.member.checkAnswers() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, promptLimit)
	defer cancel()
	k.run.o.Log.Warn("the group has not expelled members that do not answer: it is to look again", "members", due)
	if err := k.run.client().Reconsider(ctx); err != nil {
		k.run.o.Log.Info("the group does not look again", "error", err.Error())
	}
}
