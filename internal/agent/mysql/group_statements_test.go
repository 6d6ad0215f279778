package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
)

// recorder is a server that remembers the statements that it gets, and has no rows.
type recorder struct {
	mu         *sync.Mutex
	statements *[]string
}

func (s recorder) Connect(context.Context) (driver.Conn, error) { return s, nil }
func (recorder) Driver() driver.Driver                          { return nil }
func (recorder) Prepare(string) (driver.Stmt, error)            { return nil, driver.ErrSkip }
func (recorder) Close() error                                   { return nil }
func (recorder) Begin() (driver.Tx, error)                      { return nil, driver.ErrSkip }

func (s recorder) QueryContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*s.statements = append(*s.statements, query)
	return noRows{}, nil
}

// noRows is an empty answer.
type noRows struct{}

func (noRows) Columns() []string         { return nil }
func (noRows) Close() error              { return nil }
func (noRows) Next([]driver.Value) error { return io.EOF }

// The statements by which a server starts its part in a group: it stops before, which forgets what an
// earlier start meant, is set to agree as the group does, and to ask its members, and starts in the
// end.
func TestStatementsThatStartAGroup(t *testing.T) {
	const leader = "SET GLOBAL group_replication_paxos_single_leader = "
	for name, c := range map[string]struct {
		plan     group.Plan
		in       []string
		excluded string
	}{
		"a group with a leader is joined": {
			group.Plan{Action: group.Join, ReplicationName: "g", SingleLeader: true, Seeds: []string{"orders-1:3306", "orders-2:3306"}, Turn: 1},
			[]string{"STOP GROUP_REPLICATION", "SET GLOBAL super_read_only = ON", leader + "true", "SET GLOBAL group_replication_bootstrap_group = OFF", "SET GLOBAL group_replication_group_seeds = 'orders-1:3306,orders-2:3306'", "START GROUP_REPLICATION"},
			leader + "false",
		},
		"a group that takes turns is joined": {
			group.Plan{Action: group.Join, ReplicationName: "g"},
			[]string{"STOP GROUP_REPLICATION", "SET GLOBAL super_read_only = ON", leader + "false", "SET GLOBAL group_replication_bootstrap_group = OFF", "START GROUP_REPLICATION"},
			leader + "true",
		},
		"a group of members that know no leader is started": {
			group.Plan{Action: group.StartGroup, ReplicationName: "g"},
			[]string{"STOP GROUP_REPLICATION", "SET GLOBAL super_read_only = ON", leader + "false", "SET GLOBAL group_replication_bootstrap_group = ON", "START GROUP_REPLICATION", "SET GLOBAL group_replication_bootstrap_group = OFF"},
			leader + "true",
		},
		"a group is started": {
			group.Plan{Action: group.StartGroup, ReplicationName: "g", SingleLeader: true},
			[]string{"STOP GROUP_REPLICATION", "SET GLOBAL super_read_only = ON", leader + "true", "SET GLOBAL group_replication_bootstrap_group = ON", "START GROUP_REPLICATION", "SET GLOBAL group_replication_bootstrap_group = OFF"},
			leader + "false",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTestRun(t, agentapi.ClusterConfig{})
			var statements []string
			r.db = sql.OpenDB(recorder{&sync.Mutex{}, &statements})
			t.Cleanup(func() { _ = r.db.Close() })
			g := newGroupLoop(r)
			g.act(t.Context(), detached(), group.Situation{}, c.plan, nil)
			if g.under == nil {
				t.Fatal("nothing was begun")
			}
			if err := <-g.under; err != nil {
				t.Fatal(err)
			}
			at := 0
			for _, want := range c.in {
				next := slices.IndexFunc(statements[at:], func(s string) bool { return strings.HasPrefix(s, want) })
				if next < 0 {
					t.Fatalf("%q is not next in %q", want, statements[at:])
				}
				at += next + 1
			}
			if slices.Contains(statements, c.excluded) {
				t.Errorf("%q was said: %q", c.excluded, statements)
			}
		})
	}
}

// Whatever a member reports, it says that it can join a group with a leader: one that does not say
// so has the group started with turns.
func TestEachReportSaysThatTheMemberJoinsALeader(t *testing.T) {
	for name, change := range map[string]func(*mysqlapi.MemberReport){
		"nothing else": func(*mysqlapi.MemberReport) {},
		"an empty volume": func(m *mysqlapi.MemberReport) {
			*m = mysqlapi.MemberReport{Phase: mysqlapi.PhaseEmpty}
		},
		"a server in no group": func(m *mysqlapi.MemberReport) { *m = group.Report{Phase: group.Detached}.WriteReport() },
	} {
		var s agentapi.Status
		changeReport(&s, change)
		if !readReport(s).JoinsSingleLeader {
			t.Errorf("%s: %+v", name, readReport(s))
		}
	}
}

// A member whose turn has not come says nothing to the server.
func TestMemberAwaitsItsTurn(t *testing.T) {
	r := newTestRun(t, agentapi.ClusterConfig{})
	var statements []string
	r.db = sql.OpenDB(recorder{&sync.Mutex{}, &statements})
	t.Cleanup(func() { _ = r.db.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := newGroupLoop(r).join(ctx, group.Plan{Turn: 1}); err == nil || len(statements) > 0 {
		t.Errorf("%v, %q", err, statements)
	}
}
