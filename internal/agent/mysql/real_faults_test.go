//go:build mysql

package mysql

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/firstdatabase"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/mysqltest"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/server"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
)

// write writes to whichever member leads until it is stopped, and returns what was
// acknowledged.
func write(t *testing.T, runs []*run) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	acknowledged := make(chan int, 1)
	go func() {
		n := 0
		for ctx.Err() == nil {
			for _, r := range runs {
				if r.Store.Get().Role == v1alpha1.RolePrimary && r.insert(ctx, n) == nil {
					n++
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
		acknowledged <- n
	}()
	return func() int {
		cancel()
		return <-acknowledged
	}
}

// insert opens a session for each write: that of a server that was killed is gone.
func (r *run) insert(ctx context.Context, n int) error {
	ctx, done := context.WithTimeout(ctx, 2*time.Second)
	defer done()
	db, err := server.OpenSocket(r.o.socket())
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	_, err = db.ExecContext(ctx, fmt.Sprintf("INSERT INTO app_1.t (x) VALUES ('%d')", n))
	return err
}

// untilRows waits until every member has at least so many rows, and all the same.
func untilRows(t *testing.T, runs []*run, least int) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		counts := map[string]bool{}
		for _, r := range runs {
			counts[r.query("SELECT COUNT(DISTINCT x) FROM app_1.t")] = true
		}
		if len(counts) == 1 {
			for count := range counts {
				var n int
				_, _ = fmt.Sscan(count, &n)
				if n < least {
					t.Fatalf("%d rows of %d that were acknowledged", n, least)
				}
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the members differ: %v", counts)
		}
	}
}

// After the primary's server was killed another member leads, and the killed one comes back
// by itself. No acknowledged write is lost.
func TestRealKilledPrimaryIsReplaced(t *testing.T) {
	w := newWorld(t, 3)
	runs := w.create()
	runs[0].exec(createTable)
	stop := write(t, runs)
	time.Sleep(2 * time.Second)
	runs[0].killServer()
	next, _ := findPrimary(t, runs, runs[0])
	t.Logf("%s leads", next.o.Identity.Pod)
	untilWhole(t, runs)
	untilRows(t, runs, stop())
	if i := slices.Index(runs, next); w.label(i) != v1alpha1.RolePrimary {
		next.until("labelled", func(agentapi.Status) bool { return w.label(i) == v1alpha1.RolePrimary })
	}
}

// A primary whose server stood still is expelled. Its agent starts the server again, which
// joins with nothing of its own; no acknowledged write is lost.
func TestRealPrimaryThatStoodStillComesBack(t *testing.T) {
	w := newWorld(t, 3)
	runs := w.create()
	runs[0].exec(createTable)
	stop := write(t, runs[1:])
	runs[0].exec("INSERT INTO app_1.t (x) VALUES ('before')")
	before := runs[0].query("SELECT @@GLOBAL.server_uuid")
	runs[0].signal(syscall.SIGSTOP)
	next, _ := findPrimary(t, runs, runs[0])
	next.until("a view without it", func(s agentapi.Status) bool { return len(readReport(s).View) == 2 })
	runs[0].signal(syscall.SIGCONT)
	untilWhole(t, runs)
	untilRows(t, runs, stop()+1)
	if runs[0].uuid() != before {
		t.Error("it has other data")
	}
	runs[0].until("a replica", func(s agentapi.Status) bool { return s.Role == v1alpha1.RoleReplica })
}

// After all servers were killed the group comes back by itself, with all acknowledged
// writes; and while one member of it is missing it waits and names it.
func TestRealOutageOfAll(t *testing.T) {
	w := newWorld(t, 3)
	runs := w.create()
	runs[0].exec(createTable)
	stop := write(t, runs)
	time.Sleep(2 * time.Second)
	for _, r := range runs {
		r.killServer()
	}
	acknowledged := stop()
	for _, r := range runs {
		r.until("down", func(s agentapi.Status) bool { return !s.Serving })
	}
	untilWhole(t, runs)
	untilRows(t, runs, acknowledged)

	// All stop at once, and only two of the three come back: the third may hold more.
	for _, r := range runs {
		r.killServer()
	}
	for _, r := range runs {
		r.stop()
	}
	for i := range runs[:2] {
		runs[i] = w.start(i)
	}
	for _, r := range runs[:2] {
		s := r.until("waiting for the third", func(s agentapi.Status) bool { return len(readReport(s).Missing) > 0 })
		if s.State != agentapi.StateWaiting || s.Serving || !slices.Contains(readReport(s).Missing, "orders-2") {
			t.Errorf("%+v, %+v", s, readReport(s))
		}
	}
	// A person requests that one of them goes on.
	uuid := runs[1].uuid()
	runs[1].until("all detached", func(s agentapi.Status) bool { return slices.Equal(readReport(s).Missing, []string{"orders-2"}) })
	w.configure(func(c *agentapi.ClusterConfig) {
		c.GroupReplication = &mysqlapi.GroupRequests{Recovery: &mysqlapi.RecoveryRequest{ID: "go-on", Pod: "orders-1", ServerUUID: uuid}}
	})
	next, _ := findPrimary(t, runs[:2], nil)
	untilWhole(t, runs[:2])
	untilRows(t, runs[:2], acknowledged)
	t.Logf("%s leads", next.o.Identity.Pod)
	if r := readReport(next.Store.Get()); r.ReplicationName == r.Group || r.ReplicationName == "" {
		t.Errorf("the group %s goes on as %q", r.Group, r.ReplicationName)
	}
	// The third one comes back; what it holds is in the group.
	runs[2] = w.start(2)
	untilWhole(t, runs)
}

// A member whose volume was lost is cloned; so is a member that was away for longer than the
// binlogs last. Data that the group does not have is held until a person asks for a copy.
func TestRealMembersAreFilledAgain(t *testing.T) {
	w := newWorld(t, 3)
	runs := w.create()
	runs[0].exec(createTable, "INSERT INTO app_1.t (x) VALUES ('a')")
	t.Run("a lost volume", func(t *testing.T) {
		before := runs[2].uuid()
		runs[2].stop()
		if err := os.RemoveAll(w.volume(2)); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(w.volume(2), 0o700); err != nil {
			t.Fatal(err)
		}
		runs[2] = w.start(2)
		untilWhole(t, runs)
		untilRows(t, runs, 1)
		if runs[2].uuid() == before {
			t.Error("it has the UUID of the lost one")
		}
	})
	t.Run("purged binlogs", func(t *testing.T) {
		runs[2].stop()
		runs[0].exec("INSERT INTO app_1.t (x) VALUES ('missed')")
		for _, r := range runs[:2] {
			r.until("it has the row", func(agentapi.Status) bool { return r.query("SELECT COUNT(*) FROM app_1.t") == "2" })
			r.exec("FLUSH BINARY LOGS")
			path := r.query("SELECT FILE_NAME FROM performance_schema.file_instances WHERE EVENT_NAME = 'wait/io/file/sql/binlog' ORDER BY FILE_NAME DESC LIMIT 1")
			r.exec("PURGE BINARY LOGS TO '" + path[strings.LastIndex(path, "/")+1:] + "'")
		}
		runs[2] = w.start(2)
		runs[2].untilState(agentapi.StateCloning)
		untilWhole(t, runs)
		untilRows(t, runs, 2)
	})
	t.Run("diverged data", func(t *testing.T) {
		runs[2].exec("STOP GROUP_REPLICATION", "SET GLOBAL super_read_only = OFF", "INSERT INTO app_1.t (x) VALUES ('local')", "SET GLOBAL super_read_only = ON")
		s := runs[2].until("held", func(s agentapi.Status) bool { return s.Hold == agentapi.HoldDataDiverged })
		own := readReport(s)
		if s.State != agentapi.StateHeld || s.Serving || own.Errant != own.ServerUUID+":1" || own.Phase != mysqlapi.PhaseDetached {
			t.Errorf("%+v, %+v", s, own)
		}
		// A restart changes nothing.
		runs[2].stop()
		runs[2] = w.start(2)
		runs[2].until("held again", func(s agentapi.Status) bool { return s.Hold == agentapi.HoldDataDiverged })
		if runs[2].query("SELECT COUNT(*) FROM app_1.t WHERE x = 'local'") != "1" {
			t.Error("the data was changed")
		}
		w.configure(func(c *agentapi.ClusterConfig) {
			c.GroupReplication = &mysqlapi.GroupRequests{CloneAgain: &mysqlapi.CloneRequest{ID: "again", Pod: "orders-2", ServerUUID: own.ServerUUID}}
		})
		untilWhole(t, runs)
		untilRows(t, runs, 2)
		if got := runs[2].Store.Get().Recovered; got != "again" {
			t.Errorf("carried out: %q", got)
		}
		if _, err := os.Stat(filepath.Join(w.volume(2), datavolume.OldName)); err != nil {
			t.Errorf("the data before is not kept: %v", err)
		}
		runs[2].until("the data before is removed", func(agentapi.Status) bool {
			_, err := os.Stat(filepath.Join(w.volume(2), datavolume.OldName))
			return os.IsNotExist(err)
		})
	})
}

var errAway = errors.New("the API server is away")

func failAll(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errAway }

// One member is a group of one: it starts again without the API server.
func TestRealOneMember(t *testing.T) {
	w := newWorld(t, 1)
	r := w.create()[0]
	r.exec(createTable, "INSERT INTO app_1.t (x) VALUES ('a')")
	r.killServer()
	r.until("another run", func(s agentapi.Status) bool { return !s.Serving })
	r.untilState(agentapi.StateRunning)

	// Another certificate is served without a restart.
	before := r.Store.Get().TLSHash
	w.renewCertificates()
	r.until("another certificate", func(s agentapi.Status) bool {
		bundle, _ := r.Certificates.Current()
		taken, err := firstdatabase.LoginAt(r.o.socket(), mysqltest.Host, bundle.CAPEM)(t.Context(), "app", "first-password")
		return s.TLSHash != before && err == nil && taken
	})

	// No client can log in as the owner: clients with other accounts still reach the primary.
	r.exec("ALTER USER app ACCOUNT LOCK")
	r.killServer()
	r.until("another run", func(s agentapi.Status) bool { return !s.Serving })
	r.untilState(agentapi.StateRunning)
	r.exec("ALTER USER app ACCOUNT UNLOCK")

	w.client.PrependReactor("*", "leases", failAll)
	r.killServer()
	r.until("another run", func(s agentapi.Status) bool { return !s.Serving })
	r.untilState(agentapi.StateRunning)
	r.exec("INSERT INTO app_1.t (x) VALUES ('b')")
	if got := r.query("SELECT COUNT(*) FROM app_1.t"); got != "2" {
		t.Errorf("%s rows of 2", got)
	}
	// Its data is gone: that is said, and no other data is made.
	r.stop()
	w.client.ReactionChain = w.client.ReactionChain[1:]
	if err := os.RemoveAll(w.volume(0)); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(w.volume(0), 0o700); err != nil {
		t.Fatal(err)
	}
	r = w.start(0)
	if s := r.untilState(agentapi.StateHeld); s.Hold != agentapi.HoldDataMissing {
		t.Errorf("%+v", s)
	}
}
