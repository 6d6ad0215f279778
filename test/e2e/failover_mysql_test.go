//go:build e2e && soak

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"

	driver "github.com/go-sql-driver/mysql"

	"github.com/holdfast-db/holdfast/test/netns"
	"github.com/holdfast-db/holdfast/test/podprocess"
)

// mysqlFailovers is how the tests of failovers get at MySQL.
type mysqlFailovers struct{}

// readLeadership is the pod that Services lead to: members elect without a Lease.
func (mysqlFailovers) readLeadership(ctx context.Context, c *subject) (leadership, error) {
	primaries, err := labelledPrimaries(ctx, c)
	if err == nil && len(primaries) != 1 {
		err = fmt.Errorf("%d pods are labelled as the primary", len(primaries))
	}
	if err != nil {
		return leadership{}, err
	}
	return leadership{holder: primaries[0].UID}, nil
}

// newRows knows the connection Secret, and an address in place of the Service's name.
func (mysqlFailovers) newRows(c *subject, address string) openRows {
	c.t.Helper()
	secret := c.readSecret("-app")
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(secret["ca.crt"]) {
		c.t.Fatal("the connection Secret has no ca.crt")
	}
	config := driver.NewConfig()
	config.User, config.Passwd, config.DBName = string(secret["username"]), string(secret["password"]), string(secret["dbname"])
	config.Net, config.Addr = "tcp", net.JoinHostPort(address, string(secret["port"]))
	config.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: string(secret["host"])}
	config.Timeout, config.InterpolateParams, config.Logger = connectTimeout, true, &driver.NopLogger{}
	return func(ctx context.Context, from *netns.Namespace) (rowSession, error) {
		own := config.Clone()
		own.DialFunc = from.DialContext
		connector, err := driver.NewConnector(own)
		if err != nil {
			return nil, err
		}
		return openMySQL(ctx, sql.OpenDB(connector))
	}
}

// mysqlSession is a client's connection to MySQL: the pool has no other one, and a
// statement that failed on it is not tried again.
type mysqlSession struct {
	pool   *sql.DB
	conn   *sql.Conn
	server string
}

func openMySQL(ctx context.Context, pool *sql.DB) (rowSession, error) {
	s := mysqlSession{pool: pool}
	var err error
	if s.conn, err = pool.Conn(ctx); err == nil {
		err = s.conn.QueryRowContext(ctx, "select @@hostname").Scan(&s.server)
	}
	if err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	return s, nil
}

func (s mysqlSession) createTable(ctx context.Context) error {
	_, err := s.conn.ExecContext(ctx, "create table if not exists failover_rows (client varchar(40), number int, primary key (client, number))")
	return err
}

func (s mysqlSession) insert(ctx context.Context, client string, number int) (server string, timeline int64, err error) {
	_, err = s.conn.ExecContext(ctx, "insert into failover_rows (client, number) values (?, ?)", client, number)
	return s.server, 0, err
}

func (s mysqlSession) checkWritable(ctx context.Context) error {
	var readOnly bool
	if err := s.conn.QueryRowContext(ctx, "select @@global.super_read_only").Scan(&readOnly); err != nil {
		return err
	}
	if readOnly {
		return errors.New("the Service leads to " + s.server + ", which is read-only")
	}
	return nil
}

func (s mysqlSession) close(context.Context) {
	_ = s.conn.Close()
	_ = s.pool.Close()
}

func (mysqlFailovers) awaitCaughtUp(c *subject, _ string) {
	c.t.Helper()
	for n := range c.listPods() {
		c.awaitApplied(n)
	}
}

func (mysqlFailovers) keptRows(c *subject, pod string) map[string][]int {
	c.t.Helper()
	out, err := queryMySQL(c.t.Context(), c.namespace, pod, "select client, number from app.failover_rows")
	must(c.t, err, "read the rows of "+pod)
	return parseRows(c.t, pod, out)
}

func (mysqlFailovers) readContent(c *subject, pod string) map[string]string {
	c.t.Helper()
	content, err := readMySQLContent(c.t.Context(), c.namespace, pod)
	must(c.t, err, "read the content of "+pod)
	return content
}

// Names of events that only MySQL's table has.
const (
	eventServerKilled     = "mysqld of the primary killed"
	eventTwoServersKilled = "mysqld of two members killed, that of the primary too"
	eventAllServersKilled = "mysqld of all members killed"
	eventReplicaCut       = "a replica cut off for 30 s"
)

// mysqlEvents are the rows of MySQL's table.
var mysqlEvents = []measuredEvent{
	{name: "Switchover", run: switchover},
	{name: "PodDeleted", run: podDeleted},
	{name: "PodForced", run: podForced},
	{name: "NodeDrained", run: nodeDrained},
	{name: "RollingRestart", run: func(f *trial) time.Duration { return rollingRestart(f, "innodb_purge_threads", 2) }},
	{name: "ServerKilled", run: primaryServerKilled, apart: crashesApart},
	{name: "NodeCutOff", run: nodeCutOff},
	{name: "TwoServersKilled", run: func(f *trial) time.Duration { return serversKilled(f, eventTwoServersKilled, 2) }, apart: crashesApart},
	{name: "AllServersKilled", run: func(f *trial) time.Duration { return serversKilled(f, eventAllServersKilled, failoverMembers) }, apart: crashesApart},
	{name: "ReplicaCutOff", run: replicaCutOff},
	{name: "OperatorAway", run: operatorAway},
	{name: "APIServerStopped", run: apiServerStopped},
}

// primaryServerKilled: the group expels the member, and another one leads. Nothing is
// lost: a majority has what was acknowledged.
func primaryServerKilled(f *trial) time.Duration {
	pod, before, since := f.leadingPod(), f.currentTerm(), f.history.Now()
	killInPod(f.c.t, pod, podprocess.Postmaster)
	f.awaitSuccessor(before)
	return f.endEvent(eventServerKilled, since, true)
}

// serversKilled: the servers of so many members end at the same time, that of the primary
// first. The group has no majority any more, and starts again with all that was on their
// disks.
func serversKilled(f *trial, event string, count int) time.Duration {
	primary, since := f.leadingPod(), f.history.Now()
	killed := []corev1.Pod{*primary}
	for _, pod := range f.c.listPods() {
		if pod.UID != primary.UID && len(killed) < count {
			killed = append(killed, pod)
		}
	}
	for i := range killed {
		killInPod(f.c.t, &killed[i], podprocess.Postmaster)
	}
	return f.endEvent(event, since, true)
}

// replicaAway is longer than a group waits for a member.
const replicaAway = 30 * time.Second

// replicaCutOff: a replica reaches nothing, and then comes back. The primary stays.
func replicaCutOff(f *trial) time.Duration {
	replica, before, since := f.chooseReplica(), f.currentTerm(), f.history.Now()
	heal := cutPod(f.c.t, replica, bothWays)
	f.awaitDegraded(replica.Name)
	time.Sleep(time.Duration(max(0, replicaAway-(f.history.Now()-since)))) // the fault itself
	f.w.goesOn(f.c.t)
	heal()
	gap := f.endEvent(eventReplicaCut, since, true)
	if now := f.currentTerm(); now != before {
		f.c.t.Errorf("%s leads, before %s", now.holder, before.holder)
	}
	return gap
}
