// Package bootstrap makes the first data of a cluster of MySQL: on an empty volume, out
// of reach of clients and members, and in its place only when it is complete.
package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/accounts"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/server"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/settings"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
)

// Bootstrap makes the first data.
type Bootstrap struct {
	Programs server.Programs
	// Lock on the volume, and the volume's directory.
	Lock   *volumelock.VolumeLock
	Volume string
	// Settings of the member; those that the user declared are not used.
	Settings settings.Input
	// Group is the name of the group that the data is to belong to.
	Group string
	// SystemUser is the name of the operating system's user that the agent runs as.
	SystemUser string
	Log        *slog.Logger
}

// stopLimit is how long new data may take to be closed.
const stopLimit = time.Minute

// MakeData makes the data and puts it into place. It fails where the volume holds any, or
// has belonged to a group. What an interrupted call left is made anew.
func (b Bootstrap) MakeData(ctx context.Context) error {
	if _, err := datavolume.Tidy(b.Volume); err != nil {
		return err
	}
	v, err := datavolume.InspectVolume(b.Volume)
	if err != nil {
		return err
	}
	if err := v.MayBootstrapAs(b.Group); err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	in := b.Settings
	in.DataDir, in.Parameters, in.Isolated = filepath.Join(b.Volume, datavolume.BootstrapName), nil, true
	in.Memory = settings.Memory{} // a large buffer pool takes seconds to make
	file := filepath.Join(in.RunDir, "bootstrap.cnf")
	if err := atomicfile.WriteFile(file, []byte(settings.RenderSettings(settings.ComputeSettings(in)))); err != nil {
		return err
	}
	b.Log.Info("makes the first data", "group", b.Group)
	if err := b.Programs.MakeData(ctx, file, in.DataDir); err != nil {
		return err
	}
	if err := b.makeAccounts(ctx, file, in.RunDir); err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	return datavolume.InstallBootstrap(b.Volume, b.Group)
}

// makeAccounts starts the server on the new data, out of reach, and stops it in order.
func (b Bootstrap) makeAccounts(ctx context.Context, file, runDir string) error {
	mysqld, err := b.Programs.StartMysqld(b.Lock, file, func(string) {})
	if err != nil {
		return err
	}
	defer func() { _ = mysqld.StopAtOnce() }()
	db, err := server.OpenNew(settings.SocketPath(runDir))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if err := mysqld.AwaitReady(ctx, db); err != nil {
		return err
	}
	if err := accounts.Apply(ctx, db, accounts.BootstrapStatements(b.SystemUser)); err != nil {
		return err
	}
	if !mysqld.StopInOrder(stopLimit) {
		return errors.New("mysqld did not shut down in order on the new data")
	}
	return nil
}
