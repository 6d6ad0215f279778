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
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/holdfast-db/holdfast/test/netns"
)

// mysqlFailovers is how the tests of failovers get at MySQL.
type mysqlFailovers struct{}

// losesNothing: a majority of the group has a transaction before it is acknowledged.
func (mysqlFailovers) losesNothing() bool { return true }

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
	return openMySQLRows(c.t, c.readSecret("-app"), address)
}

// openMySQLRows opens connections by what a connection Secret says.
func openMySQLRows(t *testing.T, secret map[string][]byte, address string) openRows {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(secret["ca.crt"]) {
		t.Fatal("the connection Secret has no ca.crt")
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

// awaitCaughtUp: Ready stays while a member is away, so the group is asked.
func (mysqlFailovers) awaitCaughtUp(c *subject, primary string) {
	c.t.Helper()
	c.waitFor(readyTimeout, "all members serve", checkWhole)
	pods := c.listPods()
	eventually(c.t, readyTimeout, primary+" sees all members online", func(ctx context.Context) error {
		online, err := listOnline(ctx, c.namespace, primary)
		if err == nil && len(online) != len(pods) {
			err = fmt.Errorf("of %d it sees %v", len(pods), online)
		}
		return err
	})
	for n := range pods {
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

// newMySQLTrial is a cluster of MySQL whose status is not followed, under a client. It is
// created when those of earlier tests have ended, and how long that takes is noted.
func newMySQLTrial(t *testing.T, members int32, spec ...string) *trial {
	t.Helper()
	needLocalCluster(t)
	waitForNamespacesToEnd(t)
	began := time.Now()
	c := createUnwatched(t, mysql, members, spec...)
	c.waitReady()
	created := time.Since(began)
	f := newTrial(c, mysqlFailovers{})
	f.created = created
	return f
}

// serverOf is the UUID of a member's data: a copy has another one.
func (c *subject) serverOf(ordinal int) string {
	c.t.Helper()
	return c.runMySQL(ordinal, "select @@server_uuid")
}

// awaitOtherServer waits until a member runs on other data.
func (c *subject) awaitOtherServer(ordinal int, before string) {
	c.t.Helper()
	eventually(c.t, readyTimeout, c.podName(ordinal)+" runs on a copy", func(ctx context.Context) error {
		now, err := queryMySQL(ctx, c.namespace, c.podName(ordinal), "select @@server_uuid")
		if err == nil && now == before {
			err = errors.New("it is the same server")
		}
		return err
	})
}
