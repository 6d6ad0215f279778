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
	"github.com/holdfast-db/holdfast/internal/agent/elector"
	"github.com/holdfast-db/holdfast/internal/agent/health"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/accounts"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datacopy"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/dataspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/rolechange"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/slots"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/lease"
)

const (
	// passwordFile holds the owner's password.
	passwordFile = "app-password"
	// measureInterval is between two measurements of a primary's data.
	measureInterval = 30 * time.Second
)

// primaryDuty is what a running server is looked after for while it leads.
type primaryDuty struct {
	log    *slog.Logger
	host   *agent.Host
	health *health.Health
	// session is the reserved connection.
	session *server.Session
	// roles is the server, promoted how its timeline began, and reports the election.
	roles    *rolechange.Server
	promoted func() *rolechange.Promoted
	reached  *reachedMembers
	// findPods finds the members that receive some of the named streams.
	findPods func(streams []string) []string
	reports  elector.Reports
	leads    func() bool
	copies   *datacopy.Copies
	// pod is this member's, and credentials the directory of the mounted ones.
	pod, credentials string

	// prepared is closed when accounts and slots were ensured.
	prepared chan struct{}
	once     sync.Once
}

func newPrimaryDuty(a *postgresAgent, l *serverLife) *primaryDuty {
	return &primaryDuty{
		log: a.o.Log, host: a.Host, health: l.health, session: a.control,
		roles: l.roles, promoted: a.promoted.Load, reached: &a.reached, findPods: a.directory.ListStreaming, reports: a.reports, leads: a.isLeading, copies: a.copies,
		pod: a.o.Identity.Pod, credentials: a.o.CredentialsDir, prepared: make(chan struct{}),
	}
}

// awaitPrepared is closed when accounts and slots were ensured; nil once they were.
func (d *primaryDuty) awaitPrepared() <-chan struct{} {
	if d.isPrepared() {
		return nil
	}
	return d.prepared
}

// reachedMembers are the pods whose streams have flushed a record of this member's
// timeline.
type reachedMembers struct {
	mu   sync.Mutex
	pods []string
}

// listReached lists them.
func (r *reachedMembers) listReached() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pods
}

func (r *reachedMembers) recordReached(pods []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pods = pods
}

// reportProgress reports to the election how far this primary and its standbys have
// flushed.
func (d *primaryDuty) reportProgress(ctx context.Context) {
	if d.roles == nil {
		return // it is being stopped, and never answered
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	promoted := d.promoted()
	progress, err := d.roles.ReadProgress(ctx)
	if err != nil || promoted == nil {
		return
	}
	if at := progress.FindAcknowledged(d.roles.CurrentQuorum()); at.Position > 0 {
		d.reports.ReportAcknowledged(lease.Position{Timeline: at.Timeline, LSN: at.Position})
	}
	reached := d.findPods(progress.ListReached(*promoted))
	d.reached.recordReached(reached)
	if len(reached) > 0 {
		d.reports.ReportStreamed(promoted.Timeline)
		d.copies.RemoveOldData()
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
func (d *primaryDuty) observePrimary(ctx context.Context, observed server.Observation, err error) {
	prepared := d.isPrepared()
	if err == nil && !observed.Recovery {
		d.reportProgress(ctx)
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
	if err == nil && prepared && d.leads() && d.host.Store.Get().Role != v1alpha1.RolePrimary {
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
