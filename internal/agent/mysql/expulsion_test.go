package mysql

import (
	"context"
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

// A group is to look again at a member that does not answer for long, and ever more seldom after
// that, but not while it may yet expel it, and not without a majority.
func TestOverdueExpulsion(t *testing.T) {
	const s = time.Second
	type at struct {
		time time.Duration
		view group.View
		want string
	}
	for name, steps := range map[string][]at{
		"all answer":                  {{0, unanswered(), ""}, {60 * s, unanswered(), ""}},
		"one is about to be expelled": {{100 * s, unanswered(third), ""}, {106 * s, unanswered(third), ""}, {107 * s, inView("2", own, second), ""}},
		"one was not expelled": {
			{100 * s, unanswered(third), ""},
			{115 * s, unanswered(third), third},
			{116 * s, unanswered(third), ""},
			{144 * s, unanswered(third), ""},
			{145 * s, unanswered(third), third},
			{204 * s, unanswered(third), ""},
			{205 * s, unanswered(third), third},
		},
		"one answers meanwhile":                {{100 * s, unanswered(third), ""}, {110 * s, unanswered(), ""}, {112 * s, unanswered(third), ""}, {120 * s, unanswered(third), ""}},
		"another one does not answer":          {{100 * s, unanswered(third), ""}, {114 * s, unanswered(second), ""}, {116 * s, unanswered(second), ""}},
		"the group has no majority":            {{100 * s, unanswered(second, third), ""}, {130 * s, unanswered(second, third), ""}},
		"the majority comes back in the midst": {{100 * s, unanswered(third), ""}, {105 * s, unanswered(second, third), ""}, {116 * s, unanswered(third), ""}},
	} {
		e := overdue{}
		for _, step := range steps {
			if got := strings.Join(e.observeView(step.time, step.view), " "); got != step.want {
				t.Errorf("%s: at %s: %q", name, step.time, got)
			}
		}
	}
	if e := (overdue{third: {since: 0, pause: promptMost}}); len(e.observeView(promptMost, unanswered(third))) != 1 || e[third].pause != promptMost {
		t.Errorf("the pause grows on: %v", e)
	}
}

// It is up to the primary to prompt its group, and to the first member that is online where the
// primary does not answer.
func TestWhoPromptsTheExpulsion(t *testing.T) {
	for _, c := range []struct {
		self string
		view group.View
		want bool
	}{
		{own, unanswered(third), true},
		{second, unanswered(third), false},
		{second, unanswered(own), true},
		{third, unanswered(own), false},
		{own, group.View{}, false},
	} {
		if got := isPrompter(group.Observation{UUID: c.self, View: c.view}); got != c.want {
			t.Errorf("%s in %v: %t", c.self, c.view.Members, got)
		}
	}
}

// A member whose group has an overdue one has it look again, unless its own server is silent.
func TestMemberPromptsTheExpulsion(t *testing.T) {
	r := newTestRun(t, agentapi.ClusterConfig{})
	var mu sync.Mutex
	var statements []string
	r.db = sql.OpenDB(recorder{&mu, &statements})
	t.Cleanup(func() { _ = r.db.Close() })
	r.member.observe(group.Observation{UUID: second, State: group.Online, View: unanswered(own)})
	k := newRecordWriter(r)
	due := func() { k.overdue = overdue{own: {since: clock.Boottime() - 2*promptAfter, pause: promptAfter}} }
	due()
	r.member.setUnanswered(context.DeadlineExceeded)
	k.promptExpulsion(t.Context(), r.member.current())
	if len(statements) > 0 {
		t.Errorf("the own server does not answer: %q", statements)
	}
	due()
	r.member.setUnanswered(nil)
	go k.follow(t.Context())
	agenttest.WaitUntil(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.ContainsFunc(statements, func(s string) bool { return strings.Contains(s, "group_replication_set_write_concurrency") })
	})
}
