//go:build mysql

package mysql

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/firstdatabase"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/membership"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/mysqltest"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
)

const createTable = "CREATE TABLE app_1.t (id INT PRIMARY KEY AUTO_INCREMENT, x VARCHAR(20))"

func login(t *testing.T, r *run, password string) bool {
	t.Helper()
	bundle, _ := r.Certificates.Current()
	taken, err := firstdatabase.LoginAt(r.o.socket(), mysqltest.Host, bundle.CAPEM)(t.Context(), "app", password)
	if err != nil {
		t.Fatal(err)
	}
	return taken
}

// Three members come to be one group, with the application's database and user on all of
// them, and the roles on their pods.
func TestRealThreeMembers(t *testing.T) {
	w := newWorld(t, 3)
	runs := w.create()
	first := runs[0]
	status := first.Store.Get()
	if status.SystemIdentifier == "" || status.Details[mysqlapi.DetailDatabase] != "app_1" || status.Details[mysqlapi.DetailOwner] != "app" || status.Details[mysqlapi.DetailAbsent] != "" {
		t.Errorf("%+v", status)
	}
	if !login(t, first, "first-password") || login(t, first, "another") {
		t.Error("the owner's password does not decide")
	}
	first.exec(createTable, "INSERT INTO app_1.t (x) VALUES ('a')")
	for i, r := range runs {
		want := v1alpha1.RoleReplica
		if i == 0 {
			want = v1alpha1.RolePrimary
		}
		r.until("labelled", func(s agentapi.Status) bool { return s.Role == want && r.query("SELECT COUNT(*) FROM app_1.t") == "1" })
		if label := w.label(i); label != want {
			t.Errorf("%s has the label %s", r.o.Identity.Pod, label)
		}
		if r.Store.Get().SystemIdentifier != status.SystemIdentifier {
			t.Errorf("%s is in another group", r.o.Identity.Pod)
		}
	}
	lease, err := w.client.CoordinationV1().Leases("shop").Get(context.Background(), "orders-members", metav1.GetOptions{})
	if err != nil || lease.Annotations[v1alpha1.AnnotationSystemIdentifier] != status.SystemIdentifier {
		t.Fatalf("%+v, %v", lease, err)
	}
	// The primary has all of them on its volume, and on the Lease none is joining any more.
	first.until("settled", func(agentapi.Status) bool {
		record, err := membership.OpenPersisted(w.volume(0))
		return err == nil && len(record.Record().Entries) == 3 && !slices.ContainsFunc(record.Record().Entries, func(e group.Entry) bool { return e.Joining })
	})

	// A password that changes is taken, and the one before stays valid for a while.
	w.setPassword("second-password")
	for deadline := time.Now().Add(patience); !login(t, first, "second-password"); time.Sleep(time.Second) {
		if time.Now().After(deadline) {
			t.Fatal("the new password is not taken")
		}
	}
	if !login(t, first, "first-password") {
		t.Error("the password before is not valid any more")
	}

	// Parameters.
	hash := w.configure(func(c *agentapi.ClusterConfig) {
		c.Parameters = map[string]string{"long_query_time": "0.5", "innodb_purge_threads": "2"}
	})
	for _, r := range runs {
		s := r.until("configured", func(s agentapi.Status) bool { return s.ConfigHash == hash })
		if r.query("SELECT @@GLOBAL.long_query_time") != "0.5" || !slices.Equal(s.PendingRestart, []string{"innodb_purge_threads"}) {
			t.Errorf("%s: %v", r.o.Identity.Pod, s.PendingRestart)
		}
	}
	w.configure(func(c *agentapi.ClusterConfig) { c.Parameters = map[string]string{"no_such_parameter": "1"} })
	refused := first.until("refused", func(s agentapi.Status) bool { return s.ConfigError != "" })
	if refused.ConfigHash != hash || !strings.Contains(refused.ConfigError, "no_such_parameter") {
		t.Errorf("%+v", refused)
	}
	w.configure(func(c *agentapi.ClusterConfig) { c.Parameters = nil })
	first.until("repaired", func(s agentapi.Status) bool { return s.ConfigError == "" && len(s.PendingRestart) == 0 })

	// A switchover by request.
	w.configure(func(c *agentapi.ClusterConfig) {
		c.GroupReplication = &mysqlapi.GroupRequests{Switchover: &mysqlapi.SwitchoverRequest{ID: "1", From: first.uuid(), Target: "orders-2"}}
	})
	runs[2].untilState(agentapi.StateRunning)
	first.untilState(agentapi.StateStreaming)
	runs[2].exec("INSERT INTO app_1.t (x) VALUES ('b')")

	// A member that stops in order leaves the group, and a primary moves the lead before.
	runs[2].stop()
	next, _ := findPrimary(t, runs[:2], nil)
	next.exec("INSERT INTO app_1.t (x) VALUES ('c')")
	next.until("a view without it", func(s agentapi.Status) bool { return len(readReport(s).View) == 2 })
	runs[2] = w.start(2)
	untilWhole(t, runs)
	if got := runs[2].query("SELECT COUNT(*) FROM app_1.t"); got != "3" {
		t.Errorf("%s rows of 3", got)
	}
}
