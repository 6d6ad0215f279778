//go:build mysql

// These tests read what real servers write:
//
//	HOLDFAST_MYSQL=$(cluster mysql 9.7) go test -tags mysql -run Real ./internal/binlog/
package binlog

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/mysql/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/mysqltest"
	"github.com/holdfast-db/holdfast/internal/mysqlgtid"
)

const groupName = "5b8f3c1e-0000-5000-8000-000000000001"

// newGroup is a group of two, of which the first leads and the second has cloned it.
func newGroup(t *testing.T) (primary, secondary *mysqltest.Member) {
	t.Helper()
	members := mysqltest.NewMembers(t, 2)
	for _, m := range members {
		m.JoinGroupNamed(groupName)
	}
	primary, secondary = members[0], members[1]
	if err := primary.Bootstrap(); err != nil {
		t.Fatal(err)
	}
	primary.Start()
	if err := primary.Group().Boot(t.Context(), groupName, true); err != nil {
		t.Fatal(err)
	}
	await(t, primary, func(o group.Observation) bool {
		p, ok := o.View.Primary()
		return ok && p.UUID == o.UUID && !o.SuperReadOnly
	})
	primary.Exec("CREATE DATABASE app", "CREATE TABLE app.t (id INT PRIMARY KEY AUTO_INCREMENT, x MEDIUMTEXT)")
	if err := secondary.CloneFrom(primary); err != nil {
		t.Fatal(err)
	}
	secondary.Start()
	if err := secondary.Group().Join(t.Context(), groupName, true); err != nil {
		t.Fatal(err)
	}
	await(t, secondary, func(o group.Observation) bool { return o.State == group.Online })
	return primary, secondary
}

func await(t *testing.T, m *mysqltest.Member, is func(group.Observation) bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		o, err := m.Group().Observe(t.Context())
		if err == nil && is(o) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %+v, %v", m.Pod, o, err)
		}
	}
}

// scanAll scans a member's binlogs. KEEP names a directory for copies of them: the samples in
// testdata are such.
func scanAll(t *testing.T, m *mysqltest.Member) (files []Summary, all []Transaction) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(m.Volume, datavolume.DataName, "binlog.0*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		summary, err := Scan(f, func(tx Transaction) error { all = append(all, tx); return nil })
		_ = f.Close()
		if info, statErr := os.Stat(path); err != nil || statErr != nil || summary.Size != info.Size() {
			t.Fatalf("%s: %+v, %v", path, summary, err)
		}
		files = append(files, summary)
		if dir := os.Getenv("KEEP"); dir != "" {
			data, _ := os.ReadFile(path)
			_ = os.WriteFile(filepath.Join(dir, m.Pod+"-"+filepath.Base(path)), data, 0o600)
		}
	}
	return files, all
}

// All that two members of a group have executed is found in their binlogs, each transaction
// with the time at which the primary committed it: large, compressed and tagged ones.
func TestRealBinlogsOfAGroup(t *testing.T) {
	primary, secondary := newGroup(t)
	before := time.Now()
	primary.Exec("INSERT INTO app.t (x) VALUES ('a')", "INSERT INTO app.t (x) VALUES (REPEAT('b', 3000))")
	primary.Exec("SET binlog_transaction_compression = ON", "INSERT INTO app.t (x) VALUES (REPEAT('c', 3000))", "SET binlog_transaction_compression = OFF")
	primary.Exec("SET gtid_next = 'AUTOMATIC:nightly'", "INSERT INTO app.t (x) VALUES ('tagged')", "INSERT INTO app.t (x) VALUES ('tagged')", "SET gtid_next = 'AUTOMATIC'")
	primary.Exec("FLUSH BINARY LOGS", "INSERT INTO app.t (x) VALUES ('d')")
	if os.Getenv("KEEP") == "" {
		primary.Exec("INSERT INTO app.t (x) VALUES (REPEAT('e', 8000000))")
	}
	executed, err := mysqlgtid.Parse(primary.Query("SELECT @@GLOBAL.gtid_executed"))
	if err != nil {
		t.Fatal(err)
	}
	await(t, secondary, func(o group.Observation) bool { return o.Executed.Contains(executed) })
	after := time.Now()

	files, all := scanAll(t, primary)
	copies, others := scanAll(t, secondary)
	last := files[len(files)-1]
	if got := last.Previous.Union(last.Transactions); !got.IsEqual(executed) || last.Closed || !files[len(files)-2].Closed {
		t.Errorf("the files hold %s of %s: %+v", got, executed, last)
	}
	// What came with the clone is in no binlog, and in no list of one.
	if first := copies[0]; !first.Previous.IsEmpty() || first.Transactions.Has(all[0].GTID) || !first.Transactions.Has(all[len(all)-1].GTID) {
		t.Errorf("%+v", first)
	}
	committed := map[mysqlgtid.GTID]time.Time{}
	for _, tx := range all {
		committed[tx.GTID] = tx.Committed
		if tx.Written.Before(tx.Committed) || tx.Written.After(after) {
			t.Errorf("%+v", tx)
		}
	}
	for _, tx := range others {
		if at := committed[tx.GTID]; !tx.Committed.Equal(at) || at.Before(before) || at.After(after) {
			t.Errorf("%s was committed at %s, and the secondary says %s", tx.GTID, at, tx.Committed)
		}
	}
	if len(others) < 6 {
		t.Errorf("the secondary has %d transactions", len(others))
	}
}

// A server that is killed leaves a file that is good up to its last whole transaction, and a
// server that encrypts its binlogs one that is refused.
func TestRealBinlogOfAKilledServer(t *testing.T) {
	primary, _ := newGroup(t)
	primary.Exec("INSERT INTO app.t (x) VALUES (REPEAT('b', 3000))")
	primary.Kill()
	files, all := scanAll(t, primary)
	if last := files[len(files)-1]; last.Closed || !last.Transactions.Has(all[len(all)-1].GTID) {
		t.Errorf("%+v", last)
	}
	path := filepath.Join(primary.Volume, datavolume.DataName, "binlog.000002")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "cut"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Write(data[:len(data)-100]); err != nil {
		t.Fatal(err)
	}
	if _, err := file.Seek(0, 0); err != nil {
		t.Fatal(err)
	}
	cut, err := Scan(file, func(Transaction) error { return nil })
	if !errors.Is(err, ErrTruncated) || cut.Transactions.Count() != files[1].Transactions.Count()-1 {
		t.Errorf("%+v, %v", cut, err)
	}
}
