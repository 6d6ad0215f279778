// Package clone copies a member's data beside the own: a throw-away server of its own
// asks the member for it, so that no data is ever cloned over.
package clone

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/accounts"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/server"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/settings"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
)

// Cloner copies members.
type Cloner struct {
	Programs server.Programs
	// Lock on the volume, and the volume's directory.
	Lock   *volumelock.VolumeLock
	Volume string
	// Settings of the member that the copy is for.
	Settings settings.Input
	Log      *slog.Logger
}

// Donor is the member to copy.
type Donor struct {
	Pod, Host string
	Port      int
	// Group that its data belongs to.
	Group string
}

// ErrDonorBusy says that another member clones the donor: it serves one at a time.
var ErrDonorBusy = errors.New("another member clones the donor")

// busyDonor is how the donor says that: the number of its own error is in the text.
var busyDonor = regexp.MustCompile(`\b3634\b|concurrent clone operations`)

// CopyMember copies a donor beside the own data, whose server does not run meanwhile, and
// marks the copy as complete. datavolume.Tidy puts it into place.
func (c Cloner) CopyMember(ctx context.Context, d Donor) error {
	if _, err := datavolume.Tidy(c.Volume); err != nil {
		return err
	}
	v, err := datavolume.InspectVolume(c.Volume)
	if err != nil {
		return err
	}
	switch {
	case v.Content == datavolume.ContentUnknown:
		return fmt.Errorf("clone: the volume holds %s, which is no data of MySQL", v.Unknown)
	case v.Mark.Group != "" && v.Mark.Group != d.Group:
		return fmt.Errorf("clone: %w: %s, and not %s", datavolume.ErrOtherGroup, v.Mark.Group, d.Group)
	}
	c.Log.Info("clones a member", "donor", d.Pod)
	copied, err := c.copyWithSeed(ctx, d)
	if err != nil && busyDonor.MatchString(err.Error()) {
		err = errors.Join(ErrDonorBusy, err)
	}
	if err != nil {
		return fmt.Errorf("clone %s: %w", d.Pod, err)
	}
	return datavolume.CompleteCopy(c.Volume, copied)
}

// copyWithSeed runs the throw-away server, whose data is removed at the end.
func (c Cloner) copyWithSeed(ctx context.Context, d Donor) (datavolume.Copy, error) {
	seed := filepath.Join(c.Volume, datavolume.SeedName)
	defer func() { _ = os.RemoveAll(seed) }()
	in := c.Settings
	in.DataDir, in.Parameters, in.Isolated = seed, nil, true
	s := settings.ComputeSettings(in)
	// Small: it holds nothing.
	s["innodb_redo_log_capacity"], s["innodb_buffer_pool_size"] = strconv.Itoa(8<<20), strconv.Itoa(32<<20)
	s["innodb_buffer_pool_chunk_size"] = strconv.Itoa(32 << 20)
	file := filepath.Join(in.RunDir, "clone.cnf")
	if err := atomicfile.WriteFile(file, []byte(settings.RenderSettings(s))); err != nil {
		return datavolume.Copy{}, err
	}
	if err := c.Programs.MakeData(ctx, file, seed); err != nil {
		return datavolume.Copy{}, err
	}
	mysqld, err := c.Programs.StartMysqld(c.Lock, file, func(string) {})
	if err != nil {
		return datavolume.Copy{}, err
	}
	defer func() { _ = mysqld.StopAtOnce() }()
	db, err := server.OpenNew(settings.SocketPath(in.RunDir))
	if err != nil {
		return datavolume.Copy{}, err
	}
	defer func() { _ = db.Close() }()
	if err := mysqld.AwaitReady(ctx, db); err != nil {
		return datavolume.Copy{}, err
	}
	if err := c.askForCopy(ctx, db, d); err != nil {
		return datavolume.Copy{}, err
	}
	copied := datavolume.Copy{Group: d.Group, Donor: d.Pod}
	err = db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&copied.Version)
	if err == nil {
		err = mysqld.StopAtOnce()
	}
	return copied, err
}

// askForCopy has the seed copy the donor. Both are of one series and patch: MySQL refuses
// others.
func (c Cloner) askForCopy(ctx context.Context, db *sql.DB, d Donor) error {
	address := net.JoinHostPort(d.Host, strconv.Itoa(d.Port))
	return accounts.Apply(ctx, db, []string{
		"SET GLOBAL clone_valid_donor_list = " + accounts.Quote(address),
		fmt.Sprintf("CLONE INSTANCE FROM %s@%s:%d IDENTIFIED BY '' DATA DIRECTORY = %s REQUIRE SSL",
			accounts.Quote(accounts.Clone), accounts.Quote(d.Host), d.Port, accounts.Quote(filepath.Join(c.Volume, datavolume.CopyName))),
	})
}
