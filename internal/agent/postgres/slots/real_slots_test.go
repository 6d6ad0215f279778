//go:build postgres

package slots_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/postgrestest"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/rewind"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/rolechange"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/slots"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

// recycling has a server keep no WAL but for its slots.
var recycling = map[string]string{"wal_keep_size": "0", "max_wal_size": "2MB", "min_wal_size": "2MB"}

// keep keeps the slots of a standby of a timeline.
func keep(t *testing.T, w *postgrestest.World, m *postgrestest.Member, timeline int64, positions map[string]lsn.Point) {
	t.Helper()
	var members []string
	for _, member := range w.Members {
		members = append(members, member.Name)
	}
	err := m.Session.Do(t.Context(), func(ctx context.Context, c *pgx.Conn) error {
		return slots.KeepSlots(ctx, c, members, slots.Own{Member: m.Name, Timeline: timeline}, positions)
	})
	if err != nil {
		t.Fatalf("%s: %v", m.Name, err)
	}
}

// churn has a primary fill segments, and remove those that it does not need.
func churn(primary *postgrestest.Member, tag string) {
	for range 4 {
		primary.Fill(tag, 2000)
		primary.Exec("select pg_switch_wal()", "checkpoint")
	}
}

func flushed(m *postgrestest.Member, timeline int64) lsn.Point {
	return lsn.Parse(timeline, m.One("select coalesce(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())::text"))
}

// requireRemoved waits until a standby says that the primary has removed its WAL. A stream
// may begin, and end at the first message.
func requireRemoved(t *testing.T, away, primary *postgrestest.Member) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		var removed *rolechange.FollowError
		if err := away.TryJoin(primary, 2); errors.As(err, &removed) && removed.Problem == rolechange.WALRemoved {
			return
		}
		if away.One("select (pg_last_wal_replay_lsn() >= '"+primary.One("select pg_current_wal_flush_lsn()::text")+"')::text") == "true" {
			break
		}
	}
	t.Fatal("it follows without its WAL")
}

// A standby that was away during a failover continues from the new primary, which has
// removed all WAL that no slot keeps. Without the slot it would need another copy.
func TestRealRule20StandbyContinuesFromTheNewPrimary(t *testing.T) {
	for name, keeps := range map[string]bool{"with the slots": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			w := postgrestest.NewWorld(t, 3, recycling)
			former, next, away := w.Members[0], w.Members[1], w.Members[2]
			if keeps {
				keep(t, w, next, 1, nil)
			}
			churn(former, "before")
			former.SameContent(next, away)
			report := map[string]lsn.Point{away.Name: flushed(away, 1)}
			away.Kill()
			for range 2 {
				churn(former, "while one is away")
				former.SameContent(next)
				next.Exec("checkpoint")
				if keeps {
					report[former.Name] = flushed(next, 1)
					keep(t, w, next, 1, report)
				}
			}
			next.EndReceiver()
			former.Fill("lost", 1000)
			former.Kill()
			next.Lead(2, rolechange.Quorum{})
			next.Exec("checkpoint")
			churn(next, "on the new timeline")
			away.StartStandby()
			if !keeps {
				requireRemoved(t, away, next)
				return
			}
			away.Join(next, 2)
			next.SameContent(away)
			// And the former primary is rewound, from a checkpoint of long ago.
			r := rewind.NewRewinder(rewind.Options{
				Space: func() diskspace.Space { return diskspace.Space{} },
				Log:   slog.New(slog.DiscardHandler), Volume: former.Volume, PGData: former.PGData(), RunDir: former.Run, Programs: w.Programs, Lock: former.Lock,
				Settings: func(server.ControlData) map[string]string {
					return settings.ComputeSettings(former.Input(rolechange.Live{}))
				},
				Led: func() []rewind.Term { return []rewind.Term{{Term: 1, Timeline: 1}} },
			})
			got, err := r.RewindData(t.Context(), rewind.Source{Connection: former.ConnectionTo(next), Timeline: 2})
			if err != nil || got.Result != rewind.Rewound {
				t.Fatalf("%+v, %v", got, err)
			}
			former.StartRewound(next)
			former.Join(next, 2)
			next.SameContent(former)
		})
	}
}

// The slots of a standby let go of what the others have, and no standby keeps more for
// others than for itself while all of them follow.
func TestRealRule20StandbySlotsAdvance(t *testing.T) {
	w := postgrestest.NewWorld(t, 3, recycling)
	primary, standby, other := w.Members[0], w.Members[1], w.Members[2]
	keep(t, w, standby, 1, nil)
	standby.Exec("select pg_create_physical_replication_slot('users', true)")
	churn(primary, "more")
	primary.SameContent(standby, other)
	standby.Exec("checkpoint")
	const behind = "(select bool_and(restart_lsn = redo_lsn)::text from pg_replication_slots, pg_control_checkpoint() where slot_name like 'holdfast_%')"
	if got := standby.One("select " + behind); got != "false" {
		t.Fatal("the slots advance by themselves: this test shows nothing")
	}
	keep(t, w, standby, 1, map[string]lsn.Point{primary.Name: flushed(standby, 1), other.Name: flushed(other, 1)})
	if got := standby.One("select " + behind); got != "true" {
		t.Errorf("the slots do not let go: %s", standby.One("select string_agg(slot_name || ' ' || restart_lsn, ', ') from pg_replication_slots"))
	}
	if got := standby.One("select (restart_lsn < redo_lsn)::text from pg_replication_slots, pg_control_checkpoint() where slot_name = 'users'"); got != "true" {
		t.Error("a user's slot was advanced")
	}
}

// The slot of a member that never comes back is lost before it fills the disk, and is made
// anew without what it kept.
func TestRealRule20DeadSlotIsMadeAnew(t *testing.T) {
	parameters := map[string]string{"max_slot_wal_keep_size": "3MB"}
	for name, value := range recycling {
		parameters[name] = value
	}
	w := postgrestest.NewWorld(t, 3, parameters)
	primary, standby, dead := w.Members[0], w.Members[1], w.Members[2]
	keep(t, w, standby, 1, nil)
	report := map[string]lsn.Point{dead.Name: flushed(dead, 1)}
	dead.Kill()
	churn(primary, "more")
	churn(primary, "even more")
	primary.SameContent(standby)
	standby.Exec("checkpoint")
	slot := settings.SlotName(dead.Name)
	standby.Until("select wal_status = 'lost' from pg_replication_slots where slot_name = '" + slot + "'")
	keep(t, w, standby, 1, report)
	if got := standby.One("select (wal_status = 'reserved' and restart_lsn >= redo_lsn)::text from pg_replication_slots, pg_control_checkpoint() where slot_name = '" + slot + "'"); got != "true" {
		t.Error("the slot is not made anew")
	}
}
