package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/health"
	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/accounts"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/dataspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/leadership"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/slots"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

const (
	// passwordFile holds the owner's password.
	passwordFile = "app-password"
	// checkpointAge is how old a checkpoint must be to be surely on the disk: it is
	// read from a file that may not have been synchronised yet.
	checkpointAge = 4 * time.Second
	// measureInterval is between two measurements of a primary's data.
	measureInterval = 30 * time.Second
)

// primaryDuty is what a running server is looked after for while it leads.
type primaryDuty struct {
	log    *slog.Logger
	host   *agent.Host
	health *health.Health
	// session is the reserved connection.
	session    *server.Session
	lease      *leaseclient.Lease
	leadership *leadership.Leadership
	// pod is this member's, and credentials the directory of the mounted ones.
	pod, credentials string

	// prepared is closed when accounts and slots were ensured.
	prepared chan struct{}
	once     sync.Once
	// checkpointed is the checkpoint that was observed last, and since when.
	checkpointed   lsn.Point
	checkpointedAt time.Duration
}

func newPrimaryDuty(a *postgresAgent, alive *health.Health) *primaryDuty {
	return &primaryDuty{
		log: a.o.Log, host: a.Host, health: alive, session: a.control, lease: a.lease, leadership: a.leadership,
		pod: a.o.Identity.Pod, credentials: a.o.CredentialsDir, prepared: make(chan struct{}),
	}
}

func (d *primaryDuty) isPrepared() bool {
	select {
	case <-d.prepared:
		return true
	default:
		return false
	}
}

// observePrimary reports what the server does: a primary serves once its accounts and
// slots are ensured.
func (d *primaryDuty) observePrimary(observed server.Observation, err error) {
	prepared := d.isPrepared()
	if err == nil && !observed.Recovery {
		d.leadership.SetFlushed(lsn.Point{Timeline: observed.Timeline, Position: uint64(observed.Position)})
	}
	if serving, message := d.health.Serving(); !serving && prepared {
		reportHung(d.host, message)
		return
	}
	d.host.Store.Update(func(s *agentapi.Status) {
		s.Serving = err == nil && prepared
		switch {
		case err != nil:
			s.Message = "the database does not answer"
			return
		case !prepared:
			s.State, s.Message = agentapi.StateRecovering, "prepares accounts and slots"
			return
		}
		s.State, s.Message, s.Hold = agentapi.StateRunning, "", ""
		s.Position, s.Lag = uint64(observed.Position), 0
		changeReplication(s, func(r *postgresapi.ReplicationStatus) { r.Timeline = observed.Timeline })
	})
	if err == nil && prepared && d.host.Store.Get().Role != v1alpha1.RolePrimary {
		d.log.Info("takes writes")
		d.host.SetRole(v1alpha1.RolePrimary)
	}
}

// reportHung takes a server that accepts no new connection out of its Services.
func reportHung(host *agent.Host, message string) {
	host.Store.Update(func(s *agentapi.Status) {
		s.State, s.Message, s.Serving = agentapi.StateHung, message, false
	})
	host.SetRole(v1alpha1.RoleMember)
}

// prepareServing ensures what clients and replicas need, and says whether it is there.
// The configuration is nil before the first.
func (d *primaryDuty) prepareServing(ctx context.Context, config *agent.Config) bool {
	if err := d.ensureAccounts(ctx, config); err != nil {
		d.log.Warn("accounts and slots", "error", err.Error())
		return false
	}
	d.recordCheckpoint(ctx)
	d.once.Do(func() { close(d.prepared) })
	return true
}

// ensureAccounts keeps roles, first database and slots of a primary.
func (d *primaryDuty) ensureAccounts(ctx context.Context, config *agent.Config) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	newest, _ := d.host.Config.Current()
	account, accountErr := readAccount(newest, d.credentials)
	return d.session.Do(ctx, func(ctx context.Context, c *pgx.Conn) error {
		err := accounts.EnsureReplicationRole(ctx, c)
		if err == nil {
			err = accounts.EnsureRewindRole(ctx, c)
		}
		if err == nil && config != nil {
			err = slots.KeepSlots(ctx, c, config.Members, slots.Own{Member: d.pod, Primary: true}, nil)
		}
		if err == nil && accountErr == nil {
			var details map[string]string
			if details, err = accounts.EnsureAccount(ctx, c, account); err == nil {
				d.reportDetails(details)
			}
		}
		return errors.Join(err, accountErr)
	})
}

// readAccount is the account of the configuration, with the mounted password.
func readAccount(config *agent.Config, credentials string) (accounts.Account, error) {
	if config == nil {
		return accounts.Account{}, errors.New("no configuration yet")
	}
	password, err := os.ReadFile(filepath.Join(credentials, passwordFile))
	if err != nil {
		return accounts.Account{}, fmt.Errorf("read the owner's password: %w", err)
	}
	return accounts.Account{Database: config.Database, Owner: config.Owner, Password: strings.TrimRight(string(password), "\n")}, nil
}

// reportDetails reports what the data says of its first database.
func (d *primaryDuty) reportDetails(found map[string]string) {
	d.host.Store.Update(func(s *agentapi.Status) {
		details := maps.Clone(s.Details)
		if details == nil {
			details = map[string]string{}
		}
		for _, key := range []string{postgresapi.DetailDatabase, postgresapi.DetailOwner, postgresapi.DetailAbsent} {
			delete(details, key)
		}
		maps.Copy(details, found)
		s.Details = details
	})
}

// recordCheckpoint keeps on the Lease how far the data on the disk goes, so
// that an older volume is distinguished from this one.
func (d *primaryDuty) recordCheckpoint(ctx context.Context) {
	var timeline int64
	var position string
	err := d.session.Do(ctx, func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, "select timeline_id::int8, checkpoint_lsn::text from pg_control_checkpoint()").Scan(&timeline, &position)
	})
	observed, now := lsn.Parse(timeline, position), clock.Boottime()
	if err != nil || observed != d.checkpointed {
		d.checkpointed, d.checkpointedAt = observed, now
		return
	}
	record, held := d.lease.LastRecord()
	// Another timeline is recorded by a renewal first, which forgets the checkpoint.
	if !held || now-d.checkpointedAt < checkpointAge || record.Timeline != timeline || !observed.Newer(lsn.Parse(timeline, record.Checkpoint)) {
		return
	}
	err = d.lease.AnnotateLease(ctx, map[string]string{leaseclient.AnnotationCheckpoint: position})
	if err != nil {
		d.log.Info("the checkpoint is not recorded yet", "error", err.Error())
	}
}

// measureData reports how much a copy of a primary's data takes, until ctx ends.
func (d *primaryDuty) measureData(ctx context.Context, pgdata string) {
	for ctx.Err() == nil {
		if size, err := dataspace.MeasureData(ctx, pgdata); err == nil {
			d.host.Store.Update(func(s *agentapi.Status) { s.DataSize = size })
		} else if ctx.Err() == nil {
			d.log.Info("the size of the data is not known", "error", err.Error())
		}
		clock.Sleep(ctx, measureInterval)
	}
}
