package mysql

import (
	"database/sql"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/agenttest"
	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// unanswered is a view of three in which some members do not answer.
func unanswered(uuids ...string) group.View {
	v := inView("1", own, second, third)
	for i, m := range v.Members {
		if slices.Contains(uuids, m.UUID) {
			v.Members[i].State = group.Unreachable
		}
	}
	return v
}

// A group is to look again at a member that does not answer for long, and again after that,
// but not while it may yet expel it, and not without a majority.
func TestOverdueExpulsion(t *testing.T) {
	const s = time.Second
	type at struct {
		time time.Duration
		view group.View
		want bool
	}
	for name, steps := range map[string][]at{
		"all answer":                           {{0, unanswered(), false}, {60 * s, unanswered(), false}},
		"one is about to be expelled":          {{100 * s, unanswered(third), false}, {106 * s, unanswered(third), false}, {107 * s, inView("2", own, second), false}},
		"one was not expelled":                 {{100 * s, unanswered(third), false}, {115 * s, unanswered(third), true}, {116 * s, unanswered(third), false}, {130 * s, unanswered(third), true}},
		"one answers meanwhile":                {{100 * s, unanswered(third), false}, {110 * s, unanswered(), false}, {112 * s, unanswered(third), false}, {120 * s, unanswered(third), false}},
		"another one does not answer":          {{100 * s, unanswered(third), false}, {114 * s, unanswered(second), false}, {116 * s, unanswered(second), false}},
		"the group has no majority":            {{100 * s, unanswered(second, third), false}, {130 * s, unanswered(second, third), false}},
		"the majority comes back in the midst": {{100 * s, unanswered(third), false}, {105 * s, unanswered(second, third), false}, {116 * s, unanswered(third), false}},
	} {
		var e overdue
		for _, step := range steps {
			if got := e.observe(step.time, step.view); got != step.want {
				t.Errorf("%s: at %s: %t", name, step.time, got)
			}
		}
	}
}

// A primary that leads a group with an overdue member has it look again.
func TestPrimaryPromptsTheExpulsion(t *testing.T) {
	r := newTestRun(t, agentapi.ClusterConfig{})
	var mu sync.Mutex
	var statements []string
	r.db = sql.OpenDB(recorder{&mu, &statements})
	t.Cleanup(func() { _ = r.db.Close() })
	r.member.observe(group.Observation{UUID: own, State: group.Online, View: unanswered(third)})
	k := newRecordWriter(r)
	k.overdue = overdue{members: third, since: clock.Boottime() - 2*promptAfter}
	go k.follow(t.Context())
	agenttest.WaitUntil(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.ContainsFunc(statements, func(s string) bool { return strings.Contains(s, "group_replication_set_write_concurrency") })
	})
}
