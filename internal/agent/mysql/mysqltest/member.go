//go:build mysql

package mysqltest

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/mysql/bootstrap"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/clone"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/server"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/settings"
	"github.com/holdfast-db/holdfast/internal/agent/process"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
)

// Host by which all members reach each other; each has a port of its own.
const Host = "localhost"

// Member is one member with a volume and a server of its own.
type Member struct {
	t                   *testing.T
	Pod                 string
	Ordinal             int
	Volume, RunDir      string
	Port                int
	Programs            server.Programs
	Lock                *volumelock.VolumeLock
	Parameters          map[string]string
	Memory              settings.Memory
	Mysqld              *server.Mysqld
	DB                  *sql.DB
	group, certificates string
	seeds               []string
}

// FindPrograms are MySQL's: of the directory that HOLDFAST_MYSQL names, or on the path.
func FindPrograms(t *testing.T) server.Programs {
	t.Helper()
	dir := os.Getenv("HOLDFAST_MYSQL")
	if dir == "" {
		var err error
		if dir, err = server.FindPrograms(); err != nil {
			t.Fatalf("set HOLDFAST_MYSQL to the folder that `cluster mysql 9.7` prints: %v", err)
		}
	}
	return server.Programs{Programs: process.Programs{Dir: dir, Processes: process.NewProcesses()}}
}

// NewMembers returns members with empty volumes, whose servers do not run.
func NewMembers(t *testing.T, count int) []*Member {
	t.Helper()
	programs, certificates := FindPrograms(t), newCertificates(t)
	// A socket's path has 107 bytes at most.
	base, err := os.MkdirTemp("", "hfmy")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	var members []*Member
	var seeds []string
	for i := range count {
		m := &Member{
			t: t, Pod: "a-" + strconv.Itoa(i), Ordinal: i, Port: FreePort(t), Programs: programs, certificates: certificates,
			Volume: filepath.Join(base, strconv.Itoa(i), "volume"), RunDir: filepath.Join(base, strconv.Itoa(i), "run"),
			Memory: settings.Memory{Request: settings.LeastMemory},
		}
		for _, dir := range []string{m.Volume, m.RunDir} {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if m.Lock, err = volumelock.LockVolume(m.Volume); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			m.Kill()
			_ = m.Lock.Close()
		})
		seeds = append(seeds, fmt.Sprintf("%s:%d", Host, m.Port))
		members = append(members, m)
	}
	for _, m := range members {
		m.seeds = seeds
	}
	return members
}

// FreePort is a port that no server has, and that connections do not take.
func FreePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := listener.Addr().(*net.TCPAddr).Port - 20000
		_ = listener.Close()
		if listener, err = net.Listen("tcp", ":"+strconv.Itoa(port)); err == nil {
			_ = listener.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// Settings of the member.
func (m *Member) Settings() settings.Input {
	return settings.Input{
		Host: Host, Port: m.Port, ServerID: settings.ServerID("test", m.Ordinal), GroupName: m.group, Seeds: m.seeds,
		RunDir: m.RunDir, DataDir: filepath.Join(m.Volume, datavolume.DataName), CertificateDir: m.certificates,
		Memory: m.Memory, Parameters: m.Parameters,
	}
}

// JoinGroupNamed has the member be of the group.
func (m *Member) JoinGroupNamed(name string) { m.group = name }

func (m *Member) log() *slog.Logger { return slog.New(slog.DiscardHandler) }

// Bootstrap makes the first data of the group.
func (m *Member) Bootstrap() error {
	m.t.Helper()
	return bootstrap.Bootstrap{
		Programs: m.Programs, Lock: m.Lock, Volume: m.Volume, Settings: m.Settings(), Group: m.group, SystemUser: SystemUser(m.t), Log: m.log(),
	}.MakeData(m.t.Context())
}

// SystemUser that the test runs as.
func SystemUser(t *testing.T) string {
	t.Helper()
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	return u.Username
}

// CloneFrom copies another member, whose server runs, and puts the copy into place.
func (m *Member) CloneFrom(donor *Member) error {
	m.t.Helper()
	err := clone.Cloner{Programs: m.Programs, Lock: m.Lock, Volume: m.Volume, Settings: m.Settings(), Log: m.log()}.
		CopyMember(m.t.Context(), clone.Donor{Pod: donor.Pod, Host: Host, Port: donor.Port, Group: donor.group})
	if err == nil {
		_, err = datavolume.Tidy(m.Volume)
	}
	return err
}

// SettingsFile writes the settings, and returns the file.
func (m *Member) SettingsFile() string {
	m.t.Helper()
	file := filepath.Join(m.RunDir, "my.cnf")
	if err := os.WriteFile(file, []byte(settings.RenderSettings(settings.ComputeSettings(m.Settings()))), 0o600); err != nil {
		m.t.Fatal(err)
	}
	return file
}

// Start the server, and wait until it answers.
func (m *Member) Start() {
	m.t.Helper()
	file := m.SettingsFile()
	var err error
	if m.Mysqld, err = m.Programs.StartMysqld(m.Lock, file, func(string) {}); err != nil {
		m.t.Fatal(err)
	}
	if m.DB, err = server.OpenSocket(settings.SocketPath(m.RunDir)); err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(m.t.Context(), 2*time.Minute)
	defer cancel()
	if err := m.Mysqld.AwaitReady(ctx, m.DB); err != nil {
		m.t.Fatal(err)
	}
}

// Stop the server in order.
func (m *Member) Stop() {
	m.t.Helper()
	if !m.Mysqld.StopInOrder(time.Minute) {
		m.t.Errorf("%s did not stop in order", m.Pod)
	}
	m.forget()
}

// Kill the server, if it runs.
func (m *Member) Kill() {
	if m.Mysqld == nil {
		return
	}
	if err := m.Mysqld.StopAtOnce(); err != nil {
		m.t.Error(err)
	}
	m.forget()
}

func (m *Member) forget() {
	if m.DB != nil {
		_ = m.DB.Close()
	}
	m.Mysqld, m.DB = nil, nil
}

// Group of the server.
func (m *Member) Group() group.Client { return group.Client{DB: m.DB} }

// Exec runs statements on one connection.
func (m *Member) Exec(statements ...string) {
	m.t.Helper()
	if err := m.Try(statements...); err != nil {
		m.t.Fatalf("%s: %v", m.Pod, err)
	}
}

// Try runs statements on one connection, for at most ten seconds.
func (m *Member) Try(statements ...string) error {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), 10*time.Second)
	defer cancel()
	conn, err := m.DB.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	for _, statement := range statements {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// Query reads one text.
func (m *Member) Query(query string) string {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), 10*time.Second)
	defer cancel()
	var text sql.NullString
	if err := m.DB.QueryRowContext(ctx, query).Scan(&text); err != nil {
		m.t.Fatalf("%s: %s: %v", m.Pod, query, err)
	}
	return text.String
}
