// Package postgres copies PostgreSQL as a base backup that is consistent by
// itself, and knows a good one.
package postgres

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backup"
	"github.com/holdfast-db/holdfast/internal/store"
)

// replicationRole streams, with the members' certificate.
const replicationRole = "holdfast_replication"

// Source is the members of a cluster.
type Source struct {
	// Identity is how PostgreSQL knows the pod.
	Identity backup.Identity
	// Programs is the directory of PostgreSQL's own.
	Programs string
	// System is the identifier of the only database system to copy; empty for
	// any.
	System string
	// AtLeast is the position that a copy must reach, such as 1:0/3000060;
	// empty for none.
	AtLeast string
	// Label of the backup, in PostgreSQL's own terms.
	Label string
	// Scratch is a directory with disk space for the WAL in a copy.
	Scratch string
	// Patience with a replica that is behind AtLeast.
	Patience store.Patience
}

// patience is for a replica that has to take in what its primary had when the
// copy was planned.
var patience = store.Patience{First: 500 * time.Millisecond, Longest: 5 * time.Second, Total: 2 * time.Minute}

// New is the source of a task, in its pod.
func New(task agentapi.BackupTask) (backup.Source, error) {
	id, err := backup.ReadIdentity()
	if err != nil {
		return nil, err
	}
	programs, err := backup.FindPostgres(programCopy, programWALDump)
	if err != nil {
		return nil, err
	}
	return &Source{
		Identity: id, Programs: programs, System: task.SystemIdentifier, AtLeast: task.AtLeast,
		Label: "Holdfast " + task.Name, Scratch: agentapi.RunDir, Patience: patience,
	}, nil
}

// Programs that a copy needs.
const (
	programCopy    = "pg_basebackup"
	programWALDump = "pg_waldump"
)

// CopyMember implements backup.Source: a tar of the data directory, with the WAL that
// it needs in it, and PostgreSQL's own manifest of the files.
func (s *Source) CopyMember(ctx context.Context, member agentapi.BackupSource, to io.Writer) (backup.Facts, error) {
	conn, facts, err := s.holdWAL(ctx, member.Address)
	if err != nil {
		return facts, err
	}
	defer hangUp(ctx, conn) // the slot goes with it
	if err := s.awaitFit(ctx, conn, member.Address); err != nil {
		return facts, fmt.Errorf("PostgreSQL at %s: %w", member.Address, err)
	}
	dir, err := os.MkdirTemp(s.Scratch, "identity-")
	if err != nil {
		return facts, fmt.Errorf("make a folder for the certificate: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it goes with the pod
	if err := s.writeIdentity(dir); err != nil {
		return facts, err
	}
	info, err := buildConninfo(member.Address, dir)
	if err != nil {
		return facts, err
	}
	cmd := exec.Command(filepath.Join(s.Programs, programCopy), //nolint:gosec // the image's own
		"--pgdata=-", "--format=tar", "--wal-method=fetch", "--checkpoint=fast", "--manifest-checksums=SHA256",
		"--label="+s.Label, "--no-password", "--dbname="+info)
	cmd.Env = []string{"LC_ALL=C", "TZ=UTC", "HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	return facts, s.streamOutput(ctx, cmd, to)
}

// lenience is how long a program has to end that is asked to.
var lenience = 10 * time.Second

// inVain is what pg_basebackup says that it says again of the same member.
var inVain = regexp.MustCompile("checksum|tablespace")

// streamOutput streams what a program writes. What it has written when it ends is taken in
// full, however long that takes.
func (s *Source) streamOutput(ctx context.Context, cmd *exec.Cmd, to io.Writer) error {
	watched, out, stop := backup.Watch(ctx, to)
	defer stop()
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = out, &stderr
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", programCopy, err)
	}
	defer context.AfterFunc(watched, func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		time.AfterFunc(lenience, func() { _ = cmd.Process.Kill() })
	})()
	err := cmd.Wait()
	switch {
	case err == nil:
		return nil
	case watched.Err() != nil:
		return context.Cause(watched)
	}
	err = fmt.Errorf("%s: %w: %s", programCopy, err, lastLine(stderr.String()))
	if inVain.MatchString(stderr.String()) {
		return &backup.Permanent{Err: err}
	}
	return err
}

// dialMember connects to a member as one that streams.
func (s *Source) dialMember(ctx context.Context, address string) (*pgconn.PgConn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("the address of the member: %w", err)
	}
	config, err := pgconn.ParseConfig(fmt.Sprintf("host=%s port=%s user=%s dbname=replication sslmode=require connect_timeout=10", host, port, replicationRole))
	if err != nil {
		return nil, fmt.Errorf("the address of the member: %w", err)
	}
	if config.TLSConfig, err = s.Identity.TLSConfig(); err != nil {
		return nil, err
	}
	config.TLSConfig.ServerName = host
	config.RuntimeParams = map[string]string{"replication": "true"}
	config.Fallbacks = nil
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("reach PostgreSQL: %w", err)
	}
	return conn, nil
}

func hangUp(ctx context.Context, conn *pgconn.PgConn) {
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = conn.Close(closing)
}

// holdWAL makes the member keep the WAL that the copy will need, for as long as
// the connection lives, and asks which database it is.
func (s *Source) holdWAL(ctx context.Context, address string) (*pgconn.PgConn, backup.Facts, error) {
	facts := backup.Facts{}
	conn, err := s.dialMember(ctx, address)
	if err != nil {
		return nil, facts, err
	}
	asking, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	seen, err := identifyMember(asking, conn)
	if err == nil && s.System != "" && seen.system != s.System {
		err = &backup.Permanent{Err: fmt.Errorf("it holds the database system %s, and %s is to be copied", seen.system, s.System)}
	}
	if err == nil {
		slot := "backup_" + strings.ToLower(rand.Text())
		options := pglogrepl.CreateReplicationSlotOptions{Mode: pglogrepl.PhysicalReplication, Temporary: true, SnapshotAction: "RESERVE_WAL"}
		if _, err = pglogrepl.CreateReplicationSlot(asking, conn, slot, "", options); err != nil {
			err = fmt.Errorf("keep the WAL that the copy needs: %w", err)
		}
	}
	if err != nil {
		hangUp(ctx, conn)
		return nil, facts, fmt.Errorf("PostgreSQL at %s: %w", address, err)
	}
	facts.SystemIdentifier = seen.system
	facts.Version, _, _ = strings.Cut(conn.ParameterStatus("server_version"), " ")
	return conn, facts, nil
}

// writeIdentity writes the identity where libpq finds it, with the modes that it asks for.
func (s *Source) writeIdentity(dir string) error {
	for name, data := range map[string][]byte{"tls.crt": s.Identity.CertPEM, "tls.key": s.Identity.KeyPEM, "roots.crt": s.Identity.RootsPEM} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return fmt.Errorf("write the certificate: %w", err)
		}
	}
	return nil
}

func buildConninfo(address, dir string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("the address of the member: %w", err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	var b strings.Builder
	for _, pair := range [][2]string{
		{"host", host}, {"port", port}, {"user", replicationRole}, {"application_name", "holdfast-backup"},
		{"sslmode", "verify-full"}, {"sslcert", at("tls.crt")}, {"sslkey", at("tls.key")}, {"sslrootcert", at("roots.crt")},
		{"connect_timeout", "10"}, {"keepalives_idle", "30"}, {"keepalives_interval", "10"}, {"keepalives_count", "6"},
	} {
		fmt.Fprintf(&b, "%s='%s' ", pair[0], strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(pair[1]))
	}
	return strings.TrimSpace(b.String()), nil
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndex(s, "\n")+1:]
}
