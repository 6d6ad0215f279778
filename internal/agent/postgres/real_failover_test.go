//go:build postgres

package postgres

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// threeMembers are a cluster of three members that replicate, on volumes.
func threeMembers(t *testing.T) (w *world, volumes [3]string, members [3]*run) {
	t.Helper()
	w = newWorld(t, 3)
	for n := range volumes {
		volumes[n] = t.TempDir()
		members[n] = w.start(n, volumes[n], fmt.Sprintf("uid-%d", n))
	}
	members[0].untilRole(v1alpha1.RolePrimary)
	members[1].untilRole(v1alpha1.RoleReplica)
	members[2].untilRole(v1alpha1.RoleReplica)
	members[0].until("all may lead", func(s agentapi.Status) bool {
		return readReplication(s).Election != nil && len(readReplication(s).Election.MayLead) == 3
	})
	return w, volumes, members
}

// exec runs statements as the superuser, one after the other.
func (r *run) exec(statements ...string) {
	r.t.Helper()
	for _, sql := range statements {
		err := r.control.Do(context.Background(), func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, sql)
			return err
		})
		if err != nil {
			r.t.Fatalf("%s: %v", sql, err)
		}
	}
}

// untilLeads waits for one of the members to lead, and returns it with the others.
func untilLeads(t *testing.T, members ...*run) (leader *run, others []*run) {
	t.Helper()
	return untilLeadsWithin(t, 2*time.Minute, members...)
}

func untilLeadsWithin(t *testing.T, limit time.Duration, members ...*run) (leader *run, others []*run) {
	t.Helper()
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		for n, m := range members {
			if s := m.Store.Get(); s.Role == v1alpha1.RolePrimary && s.Serving {
				return m, append(append([]*run{}, members[:n]...), members[n+1:]...)
			}
		}
	}
	t.Fatal("no member leads")
	return nil, nil
}

const contentQuery = "select coalesce(md5(string_agg(n::text, ',' order by n)), '') from public.numbers"

// untilEqual waits until members have the content of a leader.
func untilEqual(t *testing.T, leader *run, others ...*run) {
	t.Helper()
	want := leader.query(contentQuery)
	for _, m := range others {
		m.untilRole(v1alpha1.RoleReplica)
		got := ""
		for end := time.Now().Add(time.Minute); got != want && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			_ = m.control.Do(context.Background(), func(ctx context.Context, c *pgx.Conn) error { return c.QueryRow(ctx, contentQuery).Scan(&got) })
		}
		if got != want {
			t.Errorf("%s has other content than %s", m.o.Identity.Pod, leader.o.Identity.Pod)
		}
	}
}

// A primary that stops in order is succeeded at once by a member with all of its rows;
// it comes back as a replica, without a copy.
func TestRealRule17StoppedPrimaryIsSucceeded(t *testing.T) {
	w, volumes, members := threeMembers(t)
	members[0].exec("create table public.numbers as select n from generate_series(1, 1000) n")
	members[0].stop()
	leader, others := untilLeads(t, members[1], members[2])
	if got := leader.query("select count(*)::text from public.numbers"); got != "1000" {
		t.Errorf("%s rows", got)
	}
	leader.exec("insert into public.numbers values (1001)")
	again := w.start(0, volumes[0], "uid-0b")
	untilEqual(t, leader, others[0], again)
	record, _ := w.lease.read()
	if record.HolderPod != leader.o.Identity.Pod || record.Term != 3 {
		t.Errorf("the Lease says %+v", record)
	}
}

// A database that crashes is started again in the same term: the Lease is kept.
func TestRealRule7CrashKeepsTheTerm(t *testing.T) {
	w, _, members := threeMembers(t)
	members[0].exec("create table public.numbers as select n from generate_series(1, 1000) n")
	before, _ := w.lease.read()
	members[0].Lock.KillHolders()
	members[0].until("down", func(s agentapi.Status) bool { return !s.Serving })
	members[0].untilRole(v1alpha1.RolePrimary)
	after, _ := w.lease.read()
	if before.Term != after.Term || before.HolderUID != after.HolderUID {
		t.Errorf("the term was %d and is %d", before.Term, after.Term)
	}
	members[0].exec("insert into public.numbers values (1001)")
	untilEqual(t, members[0], members[1], members[2])
}

// A switchover is carried out once, for its target and its term.
func TestRealRule17SwitchoverByRequest(t *testing.T) {
	w, _, members := threeMembers(t)
	members[0].exec("create table public.numbers as select n from generate_series(1, 1000) n")
	record, _ := w.lease.read()
	w.configure(func(c *agentapi.ClusterConfig) {
		c.Switchover = &postgresapi.SwitchoverRequest{ID: "once", Term: record.Term, Target: "orders-2"}
	})
	members[2].untilRole(v1alpha1.RolePrimary)
	untilEqual(t, members[2], members[0], members[1])
	if after, _ := w.lease.read(); after.Term != record.Term+1 {
		t.Errorf("the term was %d and is %d", record.Term, after.Term)
	}
	w.configure(func(c *agentapi.ClusterConfig) {
		c.Switchover = &postgresapi.SwitchoverRequest{ID: "twice", Term: record.Term + 1, Target: "orders-2"}
	})
	members[2].until("refuses", func(s agentapi.Status) bool { return readReplication(s).Election.Refused == "twice" })
}

// Without the API server the primary serves on as long as all members confirm, and no
// longer once one does not.
func TestRealRule16ServesThroughAnOutage(t *testing.T) {
	w, _, members := threeMembers(t)
	members[0].exec("create table public.numbers as select n from generate_series(1, 1000) n")
	w.lease.mu.Lock()
	w.lease.away = true
	w.lease.mu.Unlock()
	for end := time.Now().Add(25 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		members[0].exec("insert into public.numbers select max(n) + 1 from public.numbers")
	}
	if fences := readReplication(members[0].Store.Get()).Election.Fences; fences != 0 {
		t.Errorf("fenced %d times", fences)
	}
	members[2].stop()
	members[0].until("stops writes", func(s agentapi.Status) bool { return s.Role != v1alpha1.RolePrimary })
	w.lease.mu.Lock()
	w.lease.away = false
	w.lease.mu.Unlock()
	leader, others := untilLeads(t, members[0], members[1])
	untilEqual(t, leader, others...)
}

// What receives by the name of a pod, and is not the volume that the pod runs on now,
// acknowledges no commit: an earlier process of it, for example.
func TestRealRule15EarlierStreamOfAPodAcknowledgesNothing(t *testing.T) {
	w := newWorld(t, 2)
	w.configure(func(c *agentapi.ClusterConfig) { c.Synchronous = &postgresapi.SynchronousConfig{Number: 1} })
	volume := t.TempDir()
	primary := w.start(0, t.TempDir(), "uid-0")
	replica := w.start(1, volume, "uid-1")
	primary.untilRole(v1alpha1.RolePrimary)
	replica.untilRole(v1alpha1.RoleReplica)
	name := settings.StreamName("orders-1", replica.readView().Volume)
	primary.untilSetting("synchronous_standby_names", fmt.Sprintf(`ANY 1 ("%s")`, name))
	primary.exec("create table public.acknowledged (n int)", "insert into public.acknowledged values (1)")
	if streams := primary.query("select string_agg(application_name, ' ') from pg_stat_replication"); streams != name {
		t.Fatalf("%s streams, want %s", streams, name)
	}
	replica.stop()

	c := primary.o.leaderConnection("orders-0", "")
	c.Application = "orders-1"
	ctx, end := context.WithCancel(t.Context())
	var earlier sync.WaitGroup
	earlier.Go(func() {
		_, _ = primary.programs.Run(ctx, "pg_receivewal", "--dbname="+c.String(), "--directory="+t.TempDir(), "--synchronous", "--no-loop", "--no-password")
	})
	defer earlier.Wait()
	defer end()
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if primary.query("select count(*)::text from pg_stat_replication where application_name = 'orders-1' and flush_lsn is not null") == "1" {
			break
		}
		if time.Now().After(until) {
			t.Fatal("the earlier process does not stream")
		}
	}
	committed := make(chan struct{})
	go func() {
		defer close(committed)
		s := server.NewSession(primary.o.RunDir, primary.o.Port, "client")
		defer s.Close()
		_ = s.Do(context.Background(), func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, "set synchronous_commit to on; set statement_timeout to 0; insert into public.acknowledged values (2)", pgx.QueryExecModeSimpleProtocol)
			if err != nil {
				t.Error(err)
			}
			return err
		})
	}()
	select {
	case <-committed:
		t.Error("a stream that is not the member's acknowledged a commit")
	case <-time.After(3 * time.Second):
	}
	w.start(1, volume, "uid-1b")
	select {
	case <-committed:
	case <-time.After(time.Minute):
		t.Error("the member does not acknowledge the commit")
	}
}
