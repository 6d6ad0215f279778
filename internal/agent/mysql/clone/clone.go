// Package clone copies a member's data beside the own: a throw-away server of its own
// asks the member for it, so that no data is ever cloned over.
package clone

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

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
	// Patience with a donor that another client clones: see Seed.
	Patience time.Duration
	Log      *slog.Logger
}

// Donor is the member to copy.
type Donor struct {
	Pod, Host string
	Port      int
	// Group that its data belongs to.
	Group string
}

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
	if err != nil {
		return fmt.Errorf("clone %s: %w", d.Pod, err)
	}
	return datavolume.CompleteCopy(c.Volume, copied)
}

// Prepare makes the data directory of the throw-away server, for a clone to come: it takes
// most of the time that a small cluster's data takes to copy. The volume holds no data.
func (c Cloner) Prepare(ctx context.Context) error {
	if err := datavolume.DropPrepared(c.Volume); err != nil {
		return err
	}
	if err := c.newSeed().makeData(ctx); err != nil {
		return fmt.Errorf("prepare a clone: %w", err)
	}
	return datavolume.KeepPrepared(c.Volume)
}

func (c Cloner) newSeed() Seed {
	return Seed{
		Programs: c.Programs, Lock: c.Lock, Settings: c.Settings, Account: accounts.Clone, Patience: c.Patience,
		Dir: filepath.Join(c.Volume, datavolume.SeedName), Prepared: filepath.Join(c.Volume, datavolume.PreparedName),
		Target: filepath.Join(c.Volume, datavolume.CopyName),
	}
}

// copyWithSeed has a throw-away server beside the data clone the donor.
func (c Cloner) copyWithSeed(ctx context.Context, d Donor) (datavolume.Copy, error) {
	version, err := c.newSeed().CloneServer(ctx, d.Host, d.Port)
	return datavolume.Copy{Group: d.Group, Donor: d.Pod, Version: version}, err
}
