package group

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/mysql/accounts"
	"github.com/holdfast-db/holdfast/internal/mysqlgtid"
)

// Client asks one server about the group, and changes the server's part in it. Its
// sessions are of the agent's account, over the socket.
type Client struct{ DB *sql.DB }

// Observation is what the server says.
type Observation struct {
	UUID, Version string
	// View is the zero value while the server is in no group.
	View View
	// State of the server itself; Offline while it is in no group.
	State State
	// Executed, Received and Purged: see Report.
	Executed, Received, Purged mysqlgtid.Set
	// ReplicationName of the group that the server is in, or was in last.
	ReplicationName string
	// SuperReadOnly says that no client can write.
	SuperReadOnly bool
	// SingleLeader says how the group agrees that the server is in: see Report.
	SingleLeader bool
	// Queue is how many received transactions wait to be applied.
	Queue int64
}

// NewReport is what the member says of itself to the others: who it is, whether it is about
// to join a group or to start one, and the record on its volume.
func (o Observation) NewReport(self Report, starting bool, persisted Record) Report {
	r := Report{
		Pod: self.Pod, Ordinal: self.Ordinal, Group: self.Group, UUID: o.UUID, Phase: InGroup,
		Executed: o.Executed, Received: o.Received, Purged: o.Purged, View: o.View, ReplicationName: o.ReplicationName,
		SingleLeader: o.SingleLeader,
	}
	switch {
	case o.State == Offline && starting:
		r.Phase = Starting
	case o.State == Offline:
		r.Phase = Detached
	case o.State == Failed:
		r.Phase = Down // its agent restarts the server
	}
	if r.Phase != InGroup {
		r.ReplicationName = ""
	}
	return r.WithKnown(persisted)
}

const (
	applierChannel = "group_replication_applier"
	// ObserveLimit is how long the server may take to answer where the caller is not patient.
	ObserveLimit = 5 * time.Second
	// barrierLimit is how long the group may take to agree where the caller sets no limit.
	barrierLimit = 10 * time.Second
)

// Observe reads the server's view of the group and its transactions.
func (c Client) Observe(ctx context.Context) (Observation, error) {
	return c.ObserveWithin(ctx, ObserveLimit)
}

// ObserveWithin is Observe of a server that may take so long.
func (c Client) ObserveWithin(ctx context.Context, limit time.Duration) (Observation, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	o, err := c.observe(ctx)
	if err != nil {
		return Observation{}, fmt.Errorf("observe the group: %w", err)
	}
	return o, nil
}

func (c Client) observe(ctx context.Context) (Observation, error) {
	var o Observation
	// Received first: what is applied in between is in Executed then.
	var err error
	if o.Received, err = c.ObserveReceived(ctx); err != nil {
		return o, err
	}
	var executed, purged string
	// How the group agrees is the setting that the server joined with: the table that says it
	// of the group waits for the group's thread, which may have ended.
	err = c.DB.QueryRowContext(ctx,
		"SELECT @@GLOBAL.server_uuid, VERSION(), @@GLOBAL.super_read_only, COALESCE(@@GLOBAL.group_replication_group_name, ''), "+
			"@@GLOBAL.group_replication_paxos_single_leader, @@GLOBAL.gtid_executed, @@GLOBAL.gtid_purged").
		Scan(&o.UUID, &o.Version, &o.SuperReadOnly, &o.ReplicationName, &o.SingleLeader, &executed, &purged)
	if err != nil {
		return o, err
	}
	for text, set := range map[*string]*mysqlgtid.Set{&executed: &o.Executed, &purged: &o.Purged} {
		if *set, err = mysqlgtid.Parse(*text); err != nil {
			return o, err
		}
	}
	if o.View, err = c.ObserveView(ctx); err != nil {
		return o, err
	}
	self, _ := o.View.Find(o.UUID)
	if o.State = self.State; o.State == "" || o.State == Offline {
		// The server lists itself without a group, too.
		o.State, o.View = Offline, View{}
		return o, nil
	}
	err = c.DB.QueryRowContext(ctx,
		"SELECT VIEW_ID, COUNT_TRANSACTIONS_REMOTE_IN_APPLIER_QUEUE FROM performance_schema.replication_group_member_stats WHERE MEMBER_ID = ?", o.UUID).
		Scan(&o.View.ID, &o.Queue)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return o, err
}

// ObserveReceived reads the transactions that the server has received from its group since
// it first joined one, applied or not. It acknowledges those to the other members.
func (c Client) ObserveReceived(ctx context.Context) (mysqlgtid.Set, error) {
	var received sql.NullString
	err := c.DB.QueryRowContext(ctx,
		"SELECT RECEIVED_TRANSACTION_SET FROM performance_schema.replication_connection_status WHERE CHANNEL_NAME = ?", applierChannel).Scan(&received)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return mysqlgtid.Set{}, err
	}
	return mysqlgtid.Parse(received.String)
}

// ObserveView reads the server's view of the group. A server that is in none lists itself.
func (c Client) ObserveView(ctx context.Context) (View, error) {
	rows, err := c.DB.QueryContext(ctx,
		"SELECT MEMBER_ID, MEMBER_HOST, COALESCE(MEMBER_PORT, 0), MEMBER_STATE, MEMBER_ROLE, MEMBER_VERSION FROM performance_schema.replication_group_members")
	if err != nil {
		return View{}, err
	}
	defer func() { _ = rows.Close() }()
	var v View
	for rows.Next() {
		var m Member
		var host, role string
		var port int
		if err := rows.Scan(&m.UUID, &host, &port, &m.State, &role, &m.Version); err != nil {
			return View{}, err
		}
		m.Address, m.Primary = net.JoinHostPort(host, strconv.Itoa(port)), role == "PRIMARY"
		v.Members = append(v.Members, m)
	}
	return v, rows.Err()
}

// startGroupStatement names the account with which members exchange transactions. It is
// kept in memory only.
var startGroupStatement = "START GROUP_REPLICATION USER = " + accounts.Quote(accounts.Recovery)

// setName has the server be of the group with the name. It takes that only while it is in
// none.
func setName(name string) string {
	return "SET GLOBAL group_replication_group_name = " + accounts.Quote(name)
}

// setSingleLeader has the server agree with the group by a single leader, the primary, or
// by all members in turn. A group keeps what it was started with, and refuses others.
func setSingleLeader(single bool) string {
	return fmt.Sprintf("SET GLOBAL group_replication_paxos_single_leader = %t", single)
}

// Join starts the server's part in a group of the name that runs, and that agrees by a
// single leader or not. The server asks the seeds, each an address with its port, in order;
// without any those of its settings. It returns when the member is in the group and
// recovers, or has failed: after a minute where no member answers. A failure leaves the
// server read-only.
func (c Client) Join(ctx context.Context, name string, singleLeader bool, seeds ...string) error {
	// A start that fails restores what super_read_only was before it. A start that was refused
	// leaves how it meant to agree, until a stop.
	statements := []string{"STOP GROUP_REPLICATION", "SET GLOBAL super_read_only = ON", setName(name), setSingleLeader(singleLeader), "SET GLOBAL group_replication_bootstrap_group = OFF"}
	if len(seeds) > 0 {
		statements = append(statements, "SET GLOBAL group_replication_group_seeds = "+accounts.Quote(strings.Join(seeds, ",")))
	}
	return c.run(ctx, "join the group", append(statements, startGroupStatement)...)
}

// Boot starts the group anew under the name, with this server alone. The caller has made sure that no
// other server is in the group: see PlanStart. The group agrees by a single leader, or by all
// members in turn: then writes wait for the turns of one that cannot be reached.
func (c Client) Boot(ctx context.Context, name string, singleLeader bool) error {
	// A stop forgets how a start that was refused meant to agree, as in Join.
	err := c.run(ctx, "start the group", "STOP GROUP_REPLICATION", "SET GLOBAL super_read_only = ON", setName(name), setSingleLeader(singleLeader), "SET GLOBAL group_replication_bootstrap_group = ON", startGroupStatement)
	// Never left on: the next start would make a second group. If the connection broke,
	// the server is asked again.
	clearing, cancel := context.WithTimeout(context.WithoutCancel(ctx), ObserveLimit)
	defer cancel()
	return errors.Join(err, c.run(clearing, "start the group", "SET GLOBAL group_replication_bootstrap_group = OFF"))
}

// Leave ends the server's part in the group, in order.
func (c Client) Leave(ctx context.Context) error {
	return c.run(ctx, "leave the group", "STOP GROUP_REPLICATION")
}

// SetPrimary moves the group's lead to a member. Transactions that run longer than the
// limit are ended.
func (c Client) SetPrimary(ctx context.Context, uuid string, limit time.Duration) error {
	seconds := max(1, int(limit/time.Second))
	return c.run(ctx, "move the primary", fmt.Sprintf("SELECT group_replication_set_as_primary(%s, %d)", accounts.Quote(uuid), seconds))
}

// Barrier returns when a majority of the group has agreed on something after the call
// began, and this server has applied all that came before it. It fails in a group without
// a majority when ctx ends. Then the server's view is as new as the call.
func (c Client) Barrier(ctx context.Context) error {
	conn, err := c.DB.Conn(ctx)
	if err != nil {
		return fmt.Errorf("have the group agree: %w", err)
	}
	defer func() { _ = conn.Close() }()
	// The session is not used again: if it waited for a majority once, so would others.
	defer func() { _ = conn.Raw(func(any) error { return driver.ErrBadConn }) }()
	// The server ends what waits for the group after wait_timeout: when ctx ends, only the
	// connection is closed, and the server does not look at it meanwhile.
	limit := barrierLimit
	if deadline, set := ctx.Deadline(); set {
		limit = time.Until(deadline)
	}
	_, err = conn.ExecContext(ctx, fmt.Sprintf("SET SESSION group_replication_consistency = 'BEFORE', SESSION wait_timeout = %d", max(1, int(limit/time.Second))))
	if err == nil {
		// A query of tables, of which performance_schema has none.
		var count int
		err = conn.QueryRowContext(ctx, "SELECT COUNT(*) FROM mysql.plugin").Scan(&count)
	}
	if err != nil {
		return fmt.Errorf("have the group agree: %w", err)
	}
	return nil
}

// Reconsider has the members of the group look again at which of them answer, and expel those
// that do not. It sets the group's write concurrency to what it is, by agreement of a
// majority, and does not wait for that.
func (c Client) Reconsider(ctx context.Context) error {
	return c.run(ctx, "have the group look at its members", "SELECT group_replication_set_write_concurrency(group_replication_get_write_concurrency())")
}

func (c Client) run(ctx context.Context, what string, statements ...string) error {
	if err := accounts.Apply(ctx, c.DB, statements); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
