//go:build bench

package overhead

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-db/holdfast/internal/stats"
)

// loadSeconds is how long the load lasts under which memory is measured: the agent measures
// its database once a minute.
const loadSeconds = 75

// engines are the databases whose agents are measured, each with the load meanwhile.
var engines = []struct {
	kind, name string
	// prepare readies the load, which returns soon after a time.
	prepare func(m *member) (load func())
}{
	{"postgres", "PostgreSQL", func(m *member) func() {
		m.fill()
		return func() { m.runLoad(serverPort, loadSeconds) }
	}},
	{"mysql", "MySQL", (*member).prepareMySQL},
	{"etcd", "etcd", (*member).prepareEtcd},
}

// TestBenchMemory measures the memory of the agent of this build, and of one before it read
// text logs, measured for tuning and looked for anomalies. PostgreSQL logs every statement;
// MySQL and etcd log little.
func TestBenchMemory(t *testing.T) {
	p := startPlane(t)
	fmt.Println("\n| agent of | build | at rest | under load | of it anonymous | of it files | most | program |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	for _, e := range engines {
		for _, build := range []string{"before", "now"} {
			t.Run(e.name+"/"+build, func(t *testing.T) {
				program, err := os.Stat(tree(agentProgram(build)))
				if err != nil && build == "before" {
					t.Skipf("there is no build from before: %v", err)
				}
				if err != nil {
					t.Fatal(err)
				}
				m := newMember(t, p, e.kind, build)
				if e.kind == "postgres" {
					m.config.Parameters = statementsLogged
				}
				m.start()
				load := e.prepare(m)
				time.Sleep(5 * time.Second)
				rest := readMemory(m.cmd.Process.Pid)
				under := m.measureMemory(load)
				fmt.Printf("| %s | %s | %s | %s | %s | %s | %s | %s |\n", e.name, build, mebibytes(rest["VmRSS"]),
					mebibytes(under["VmRSS"]), mebibytes(under["RssAnon"]), mebibytes(under["RssFile"]+under["RssShmem"]), mebibytes(under["VmHWM"]), mebibytes(float64(program.Size())))
			})
		}
	}
}

// prepareMySQL makes a table, of which each client changes a row again and again.
func (m *member) prepareMySQL() func() {
	m.t.Helper()
	config := mysql.NewConfig()
	config.User, config.Passwd, config.Net, config.Addr, config.DBName, config.TLSConfig = "app", appPassword, "tcp", "localhost:3306", "app", "skip-verify"
	connector, err := mysql.NewConnector(config)
	if err != nil {
		m.t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	m.t.Cleanup(func() { _ = db.Close() })
	m.await("the table", func(ctx context.Context) error {
		_, err := db.ExecContext(ctx, "create table if not exists counters (id int primary key, n bigint not null)")
		return err
	})
	for client := range clients {
		if _, err := db.ExecContext(m.t.Context(), "insert into counters values (?, 0)", client); err != nil {
			m.t.Fatal(err)
		}
	}
	return func() {
		m.runClients(func(ctx context.Context, client int) error {
			_, err := db.ExecContext(ctx, "update counters set n = n + 1 where id = ?", client)
			return err
		})
	}
}

// prepareEtcd connects clients, each of which writes a key again and again.
func (m *member) prepareEtcd() func() {
	m.t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"https://localhost:2379"}, Logger: zap.NewNop(), TLS: m.plane.clientTLS(m.t)})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = client.Close() })
	put := func(ctx context.Context, key int) error {
		_, err := client.Put(ctx, strconv.Itoa(key), time.Now().String())
		return err
	}
	m.await("a first key", func(ctx context.Context) error { return put(ctx, 0) })
	return func() { m.runClients(put) }
}

// runClients has each client do something again and again.
func (m *member) runClients(do func(ctx context.Context, client int) error) {
	m.t.Helper()
	end := time.Now().Add(loadSeconds * time.Second)
	var group sync.WaitGroup
	for client := range clients {
		group.Go(func() {
			for time.Now().Before(end) {
				if err := do(m.t.Context(), client); err != nil {
					m.t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}

// measureMemory is the median of the agent's memory in each second of a load, and the most
// that it ever was. Metrics are scraped every fifteen seconds meanwhile.
func (m *member) measureMemory(load func()) map[string]float64 {
	m.t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		load()
	}()
	seen := map[string][]float64{}
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for second := 1; ; second++ {
		select {
		case <-done:
			medians := map[string]float64{}
			for name, values := range seen {
				medians[name] = stats.Median(values)
			}
			medians["VmHWM"] = readMemory(m.cmd.Process.Pid)["VmHWM"]
			return medians
		case <-ticker.C:
			if second%15 == 0 {
				m.scrape()
			}
			for name, value := range readMemory(m.cmd.Process.Pid) {
				seen[name] = append(seen[name], value)
			}
			_ = os.Truncate(m.log, 0)
		}
	}
}

// readMemory is what the kernel counts of a process, in bytes.
func readMemory(pid int) map[string]float64 {
	file, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil
	}
	defer file.Close()
	counted := map[string]float64{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		name, rest, _ := strings.Cut(lines.Text(), ":")
		if fields := strings.Fields(rest); len(fields) == 2 && fields[1] == "kB" {
			kilobytes, _ := strconv.ParseFloat(fields[0], 64)
			counted[name] = kilobytes * 1024
		}
	}
	return counted
}

func mebibytes(bytes float64) string { return fmt.Sprintf("%.1f MiB", bytes/(1<<20)) }
