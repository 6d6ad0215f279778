// Package mysql copies MySQL as the data directory of a clone, which a server of its own has
// shut down, and knows a good one.
package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/mysql/accounts"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/clone"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/offline"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/server"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/settings"
	"github.com/holdfast-db/holdfast/internal/agent/process"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backup"
	"github.com/holdfast-db/holdfast/internal/mysqlgtid"
	"github.com/holdfast-db/holdfast/internal/mysqlversion"
	"github.com/holdfast-db/holdfast/internal/store"
)

// Source is the members of a group.
type Source struct {
	// Identity is how MySQL knows the pod.
	Identity backup.Identity
	Programs server.Programs
	// Group is the system identifier of the only group to copy; empty for any. OtherNames
	// are names that it has gone on under.
	Group      string
	OtherNames []string
	// Members of the group, which are asked what a copy must have.
	Members []agentapi.BackupSource
	// Scratch is a directory with disk space for a copy, and RunDir one for sockets.
	Scratch, RunDir string
	// Patience with a member that is cloned already.
	Patience store.Patience
	// Bandwidth of the clone in bytes a second; 0 for no limit.
	Bandwidth int64
}

// patience is for another clone of the same member, such as that of a member that joins.
var patience = store.Patience{First: 5 * time.Second, Longest: 20 * time.Second, Total: 30 * time.Minute}

// New is the source of a task, in its pod.
func New(task agentapi.BackupTask) (backup.Source, error) {
	id, err := backup.ReadIdentity()
	if err != nil {
		return nil, err
	}
	dir, err := server.FindPrograms()
	if err != nil {
		return nil, &backup.Permanent{Err: err}
	}
	return &Source{
		Identity: id, Programs: server.Programs{Programs: process.Programs{Dir: dir, Processes: process.NewProcesses()}},
		Group: task.SystemIdentifier, OtherNames: task.OtherNames, Members: task.Sources, Scratch: agentapi.ScratchDir, RunDir: agentapi.RunDir, Patience: patience,
		Bandwidth: task.Bandwidth,
	}, nil
}

// Names on the scratch volume.
const (
	copyName = "copy"
	seedName = "seed"
)

// CopyMember implements backup.Source: a tar of the data directory of a clone. All of it
// is made before any goes on: a member does not wait for a store.
func (s *Source) CopyMember(ctx context.Context, member agentapi.BackupSource, to io.Writer) (backup.Facts, error) {
	db, err := s.dialMember(member.Address)
	if err != nil {
		return backup.Facts{}, err
	}
	defer func() { _ = db.Close() }()
	systemIdentifier, required, err := s.awaitFit(ctx, db, member)
	if err != nil {
		return backup.Facts{}, fmt.Errorf("MySQL at %s: %w", member.Address, err)
	}
	lock, err := s.clearScratch()
	if err != nil {
		return backup.Facts{}, err
	}
	defer func() { _ = lock.Close() }()
	if err := s.cloneMember(ctx, lock, member.Address); err != nil {
		return backup.Facts{}, err
	}
	about := aboutCopy{Format: aboutFormat, Group: systemIdentifier}
	if err := db.QueryRowContext(ctx, "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))").Scan(&about.EndedMicros); err != nil {
		return backup.Facts{}, fmt.Errorf("ask MySQL at %s for its clock: %w", member.Address, err)
	}
	state, err := s.closeCopy(ctx, lock)
	if err != nil {
		return backup.Facts{}, err
	}
	version, ok := mysqlversion.Parse(state.Version)
	if !ok {
		return backup.Facts{}, fmt.Errorf("the copy is of MySQL %q, which is no version", state.Version)
	}
	about.Version, about.Executed, about.Tablespaces = version.String(), state.Executed, state.Tablespaces
	facts, err := about.facts()
	if err != nil {
		return backup.Facts{}, err
	}
	if missing := required.Subtract(about.executed()); !missing.IsEmpty() {
		return backup.Facts{}, fmt.Errorf("the copy lacks %s, which members had before it was begun", missing)
	}
	if err := writeCopy(ctx, filepath.Join(s.Scratch, copyName), about, to); err != nil {
		return backup.Facts{}, fmt.Errorf("store the copy: %w", err)
	}
	return facts, nil
}

func (s *Source) dialMember(address string) (*sql.DB, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("the address of the member: %w", err)
	}
	config, err := s.Identity.TLSConfig()
	if err != nil {
		return nil, err
	}
	config.ServerName = host
	return server.OpenCopier(address, config)
}

// clearScratch removes what an attempt before has left, and locks the directory.
func (s *Source) clearScratch() (*volumelock.VolumeLock, error) {
	lock, err := volumelock.LockVolume(s.Scratch)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{copyName, seedName} {
		if err := os.RemoveAll(filepath.Join(s.Scratch, name)); err != nil {
			return nil, errors.Join(fmt.Errorf("free disk space for the copy: %w", err), lock.Close())
		}
	}
	return lock, nil
}

// cloneMember has a throw-away server clone a member. While another client clones it, it
// waits.
func (s *Source) cloneMember(ctx context.Context, lock *volumelock.VolumeLock, address string) error {
	certificates := filepath.Join(s.RunDir, "copier")
	if err := s.writeIdentity(certificates); err != nil {
		return err
	}
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("the address of the member: %w", err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("the address of the member: %w", err)
	}
	seed := clone.Seed{
		Programs: s.Programs, Lock: lock, Dir: filepath.Join(s.Scratch, seedName), Target: filepath.Join(s.Scratch, copyName), Account: accounts.Copier, Bandwidth: s.Bandwidth,
		Settings: settings.Input{Host: "copier", ServerID: 1, RunDir: s.RunDir, CertificateDir: certificates, Memory: settings.Memory{Request: settings.LeastMemory}},
	}
	began, pause := time.Now(), s.Patience.First
	for {
		_, err := seed.CloneServer(ctx, host, port)
		if !errors.Is(err, clone.ErrDonorBusy) || time.Since(began) > s.Patience.Total {
			if err != nil {
				err = fmt.Errorf("clone MySQL at %s: %w", address, err)
			}
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
		if err := os.RemoveAll(seed.Target); err != nil {
			return fmt.Errorf("remove what a clone has left: %w", err)
		}
		pause = min(2*pause, s.Patience.Longest)
	}
}

// writeIdentity writes the identity where a server finds its own.
func (s *Source) writeIdentity(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make a folder for the certificate: %w", err)
	}
	for name, data := range map[string][]byte{"server.crt": s.Identity.CertPEM, "server.key": s.Identity.KeyPEM, "ca.crt": s.Identity.RootsPEM} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return fmt.Errorf("write the certificate: %w", err)
		}
	}
	return nil
}

// closeCopy has a server recover the copy, and shut down. Then its files are whole.
func (s *Source) closeCopy(ctx context.Context, lock *volumelock.VolumeLock) (state offline.State, err error) {
	data := offline.Data{
		Programs: s.Programs, Lock: lock, Dir: filepath.Join(s.Scratch, copyName), RunDir: s.RunDir,
		Memory: settings.Memory{Request: settings.LeastMemory},
	}
	err = data.Run(ctx, func(ctx context.Context, db *sql.DB) error {
		var err error
		state, err = offline.ReadState(ctx, db)
		return err
	})
	if err != nil {
		return state, fmt.Errorf("close the copy: %w", err)
	}
	return state, nil
}

// parseSet reads transactions as MySQL writes them.
func parseSet(text string) (mysqlgtid.Set, error) {
	set, err := mysqlgtid.Parse(text)
	if err != nil {
		return set, fmt.Errorf("read the transactions: %w", err)
	}
	return set, nil
}
