package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
)

// gate keeps etcd from starting where it must not: it finds out what to do
// next, and does whatever of it needs no etcd. All that it knows lasts on the
// volume or in the register, but for what etcd told of: the removal, and that
// nobody leads.
type gate struct {
	pod, dir string
	version  string // of etcd in the image
	log      *slog.Logger
	config   func() *agent.Config
	register register
	// confirm asks the group about a ticket, for a volume with the data of a
	// member or an empty one.
	confirm func(ctx context.Context, t etcdapi.JoinGrant, data logState) confirmation
	// object asks the other members what speaks against going on without them.
	object func(ctx context.Context, data logState) string
	space  func() diskspace.Space

	// cluster is the UID in the first configuration: a pod of an earlier
	// cluster of the name that is about to go reads the next one's, too.
	cluster string
	removed string
	// leaderless is the token of the order before which nobody led any more, for
	// the step that follows.
	leaderless string
}

// register is where all members keep the register.
type register interface {
	Look(ctx context.Context) (leaseclient.Register, error)
	Write(ctx context.Context, next leaseclient.Register) error
}

// next gathers the facts and decides.
func (g *gate) next(ctx context.Context) (decision, facts, error) {
	if err := tidy(g.dir); err != nil {
		return decision{}, facts{}, err
	}
	f, err := g.gather(ctx)
	if err != nil {
		return decision{}, facts{}, err
	}
	return decide(f), f, nil
}

func (g *gate) gather(ctx context.Context) (facts, error) {
	f := facts{Pod: g.pod, Version: g.version, Removed: g.removed, Leaderless: g.leaderless}
	var err error
	if f.Volume, err = inspect(g.dir); err != nil {
		return f, err
	}
	f.Volume.Space = g.space()
	if f.Volume.Content == contentData && f.mayBeOld() {
		last, err := oldForm(filepath.Join(g.dir, dataName))
		if err != nil {
			return f, err
		}
		f.OldForm = last > 0
	}
	if config := g.config(); config != nil {
		if g.cluster == "" {
			g.cluster = config.UID
		}
		f.ConfigKnown, f.Cluster, f.ConfigSystemIdentifier = true, config.UID, config.SystemIdentifier
		f.ConfigHash = config.Hash
		if config.UID == g.cluster {
			f.Fresh, f.Recovery = config.Fresh, config.Recovery
			if ticket, there := config.Tickets[g.pod]; there {
				f.Ticket = &ticket
			}
		}
	}
	if f.wantsRegister() {
		if f.Register, err = g.register.Look(ctx); err == nil {
			f.RegisterKnown = true
		} else {
			g.log.Info("the register of members cannot be read", "error", err.Error())
		}
	}
	if f.wantsConfirmation() {
		f.Confirmed = g.confirm(ctx, *f.Ticket, f.Volume.Log)
	}
	return f, nil
}

// do does what was decided, as far as it needs no etcd, and says whether that
// was all of it.
func (g *gate) do(ctx context.Context, d decision, f facts) (bool, error) {
	switch d.Action {
	case actOpen:
		next := leaseclient.Register{Cluster: f.Cluster}
		if !f.leftBehind() {
			next = f.Register
			next.Cluster = f.Cluster
		}
		return true, g.register.Write(ctx, next)
	case actName:
		return true, nameVolume(g.dir)
	case actRegister:
		return true, g.register.Write(ctx, g.recorded(f, f.Ticket.MemberID))
	case actLatch:
		next := g.recorded(f, f.Volume.Log.Member)
		next.SystemIdentifier = f.Volume.Log.Cluster
		return true, g.register.Write(ctx, next)
	case actSetAside:
		g.log.Warn("the data of a removed member is set aside", "member", f.Volume.Log.Member)
		return true, setAside(g.dir, f.Volume.Log.Member)
	default:
		return false, nil
	}
}

// recorded is the register with the member's start on this volume.
func (g *gate) recorded(f facts, id string) leaseclient.Register {
	next := f.Register.WithStart(leaseclient.Start{Member: id, Pod: g.pod, Volume: f.Volume.Mark.Volume})
	if next.Cluster == "" {
		next.Cluster = f.Cluster
	}
	return next
}

// settle puts a member that has data on record, and returns its ID once that
// has been done. To start on data that is on record it needs no API server. A
// ticket may have been overtaken, so that etcd joined as a newer member of the
// same address: the record is of what the data says.
func (g *gate) settle(ctx context.Context) (string, error) {
	v, err := inspect(g.dir)
	if err != nil || v.Content != contentData {
		return "", err
	}
	if v.Mark.Member == v.Log.Member && v.Mark.Cluster == v.Log.Cluster {
		return v.Mark.Member, nil
	}
	if v.Mark.Volume == "" {
		if err := nameVolume(g.dir); err != nil {
			return "", err
		}
		if v.Mark, err = readMark(g.dir); err != nil {
			return "", err
		}
	}
	if err := g.record(ctx, v); err != nil {
		return "", err
	}
	v.Mark.Member, v.Mark.Cluster = v.Log.Member, v.Log.Cluster
	return v.Log.Member, v.Mark.write(g.dir)
}

// errElsewhere says that the register has another volume for the member than
// the one that it runs on.
var errElsewhere = errors.New("the register of members says that it was started on another volume")

// keep puts a settled member on record again when the register has lost it. It
// costs one read while nothing is amiss.
func (g *gate) keep(ctx context.Context) error {
	v, err := inspect(g.dir)
	if err != nil || v.Content != contentData || v.Mark.Member != v.Log.Member {
		return err
	}
	if config := g.config(); config == nil || config.UID != g.cluster {
		return nil // the register is the next cluster's by now
	}
	return g.record(ctx, v)
}

// record writes the start of the volume's member, unless the register has it.
// One on another volume stays: whoever has that volume must be told apart.
func (g *gate) record(ctx context.Context, v volume) error {
	f := facts{Pod: g.pod, Volume: v}
	if config := g.config(); config != nil {
		f.Cluster, f.ConfigSystemIdentifier = config.UID, config.SystemIdentifier
	}
	var err error
	if f.Register, err = g.register.Look(ctx); err != nil {
		return err
	}
	start, there := f.Register.Start(v.Log.Member)
	switch {
	case f.foreign():
		return fmt.Errorf("the data is of the cluster %s, and this cluster's is %s", v.Log.Cluster, f.born())
	case there && start.Volume != v.Mark.Volume:
		return fmt.Errorf("%w: member %s on %q under %s, and this one is %q", errElsewhere, start.Member, start.Volume, start.Pod, v.Mark.Volume)
	case there && f.Register.SystemIdentifier != "":
		return nil
	}
	g.log.Info("records the member", "member", v.Log.Member, "volume", v.Mark.Volume)
	next := g.recorded(f, v.Log.Member)
	next.SystemIdentifier = v.Log.Cluster
	return g.register.Write(ctx, next)
}

// clearStart moves away what the first start of a member left that had not come
// so far as to have a log.
func (g *gate) clearStart() error {
	data := filepath.Join(g.dir, dataName)
	if _, err := os.Lstat(data); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if _, err := readLog(data); !errors.Is(err, errNoLog) {
		return errors.Join(err, errors.New("there is data where none should be"))
	}
	rest, err := os.MkdirTemp(g.dir, removedPrefix+"rest-")
	if err != nil {
		return fmt.Errorf("clear the data directory: %w", err)
	}
	return atomicfile.Move(data, filepath.Join(rest, dataName))
}
