//go:build e2e || soak

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/test/netns"
)

// failoverWriter is a client of PostgreSQL.
type failoverWriter struct {
	rowWriter
	config *pgx.ConnConfig
}

// postgresSession is a client's connection to PostgreSQL.
type postgresSession struct{ *pgx.Conn }

func (s postgresSession) createTable(ctx context.Context) error {
	_, err := s.Exec(ctx, "create table if not exists failover_rows (client text, number int, primary key (client, number))")
	return err
}

// insertRow returns which server wrote, and the name of its WAL segment, which begins
// with the timeline.
const insertRow = `insert into failover_rows (client, number) values ($1, $2)
	returning host(inet_server_addr()), pg_walfile_name(pg_current_wal_insert_lsn())`

func (s postgresSession) insert(ctx context.Context, client string, number int) (server string, timeline int64, err error) {
	var segment string
	if err := s.QueryRow(ctx, insertRow, client, number).Scan(&server, &segment); err != nil {
		return server, 0, err
	}
	timeline, err = timelineOf(segment)
	return server, timeline, err
}

func (s postgresSession) checkWritable(ctx context.Context) error {
	var standby bool
	if err := s.QueryRow(ctx, "select pg_is_in_recovery()").Scan(&standby); err != nil {
		return err
	}
	if standby {
		return errors.New("the Service leads to a standby")
	}
	return nil
}

func (s postgresSession) close(ctx context.Context) { _ = s.Close(ctx) }

// rowsConfig knows the application's credentials, and an address in place of the
// Service's name.
func (c *cluster) rowsConfig(address string) *pgx.ConnConfig {
	c.t.Helper()
	config, err := pgx.ParseConfig(c.connectionURI())
	must(c.t, err, "read the connection Secret")
	config.ConnectTimeout = connectTimeout
	config.LookupFunc = func(context.Context, string) ([]string, error) { return []string{address}, nil }
	return config
}

// errNoCancel is why a client does not ask its server to cancel what it gives up.
var errNoCancel = errors.New("a canceled wait for a standby commits without it")

// connectPostgres opens a connection from a network. A query that is given up is not
// canceled: pgx would ask for it over another connection. A commit whose wait for a standby is
// canceled is there for others to read, and promises nothing.
func connectPostgres(ctx context.Context, config *pgx.ConnConfig, from *netns.Namespace) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	config = config.Copy()
	var isConnected atomic.Bool
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if isConnected.Load() {
			return nil, errNoCancel
		}
		return from.DialContext(ctx, network, address)
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	isConnected.Store(err == nil)
	return conn, err
}

func openPostgres(config *pgx.ConnConfig) openRows {
	return func(ctx context.Context, from *netns.Namespace) (rowSession, error) {
		conn, err := connectPostgres(ctx, config, from)
		if err != nil {
			return nil, err
		}
		return postgresSession{conn}, nil
	}
}

// newWriter is a client of an address.
func (f *failover) newWriter(client, address string) *failoverWriter {
	f.t.Helper()
	config := f.rowsConfig(address)
	return &failoverWriter{rowWriter: rowWriter{client: client, open: openPostgres(config), history: f.history}, config: config}
}

// newServiceWriter is a client of the Service on a node.
func (f *failover) newServiceWriter(client, node string) *failoverWriter {
	f.t.Helper()
	var service corev1.Service
	f.readObject(&service, f.name+"-rw")
	w := f.newWriter(client, service.Spec.ClusterIP)
	w.enterNode(f.t, node)
	return w
}

// connect opens a connection from where the client is now.
func (w *failoverWriter) connect(ctx context.Context) (*pgx.Conn, error) {
	return connectPostgres(ctx, w.config, w.from)
}

// timelineOf is that of a WAL segment by its name.
func timelineOf(segment string) (int64, error) {
	timeline, err := strconv.ParseInt(segment[:min(8, len(segment))], 16, 64)
	if err != nil {
		return 0, fmt.Errorf("the WAL segment is %q: %w", segment, err)
	}
	return timeline, nil
}

// keptRows are the numbers that a member has, by client.
func (c *cluster) keptRows(pod string) map[string][]int {
	c.t.Helper()
	out, err := runLocalQuery(c.t.Context(), c.namespace, pod, "app", "select client || ' ' || number from public.failover_rows")
	must(c.t, err, "read the rows of "+pod)
	return parseRows(c.t, pod, out)
}

// parseRows reads lines of a client and a number.
func parseRows(t testing.TB, pod, text string) map[string][]int {
	t.Helper()
	kept := map[string][]int{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 2 {
			t.Fatalf("a row of %s is %q", pod, line)
		}
		n, err := strconv.Atoi(fields[1])
		must(t, err, "read a row of "+pod)
		kept[fields[0]] = append(kept[fields[0]], n)
	}
	return kept
}
