package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/parameters"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/archive"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/rolechange"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/serverfiles"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// liveSettings are the settings that a run of the server has: which parameters it
// started with, and what it takes up of a new configuration while it runs.
type liveSettings struct {
	log   *slog.Logger
	host  *agent.Host
	files *serverfiles.Files
	// session is the reserved connection.
	session *server.Session
	archive *archive.Archiver
	// reload has the server read its settings again, and restart asks for another run.
	reload  func() error
	restart func()
	// leads says whether the server runs as a primary now.
	leads func() bool
	// control is what pg_control said before the start, and readControl reads it as
	// it is now.
	control     server.ControlData
	readControl func(context.Context) (server.ControlData, error)

	// refused is the hash of a configuration that the server did not take.
	refused string

	// writing orders those that write the settings.
	writing sync.Mutex
	// role are the settings of the role that the server has, and parameters those of
	// the user that it runs with.
	role       rolechange.Live
	parameters map[string]string
}

// configureRole writes the settings of another role. The server reads them later.
func (s *liveSettings) configureRole(ctx context.Context, role rolechange.Live) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.role = role
	return s.files.ApplySettings(ctx, s.buildInput(s.parameters, s.readFloors(ctx)))
}

// applyParameters writes the settings with other parameters of the user.
func (s *liveSettings) applyParameters(ctx context.Context, parameters map[string]string, control server.ControlData) (settings.Input, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	in := s.buildInput(parameters, control)
	err := s.files.ApplySettings(ctx, in)
	if err == nil {
		s.parameters = parameters
		s.host.Insights.SetUnread(settings.ExplainUnreadLog(parameters))
	}
	return in, err
}

// buildInput is what the settings are computed from now.
func (s *liveSettings) buildInput(parameters map[string]string, control server.ControlData) settings.Input {
	config, _ := s.host.Config.Current()
	in := s.files.BuildInput(config, parameters, control, s.leads())
	in.Upstream, in.SynchronousNames, in.Promoting = s.role.Upstream, s.role.SynchronousNames, s.role.Promoting
	return in
}

// reportParameters reports which parameters the server runs with: those of the
// configuration, if they are the declared ones.
func (s *liveSettings) reportParameters(config *agent.Config, declared bool, refused error) {
	if declared {
		s.files.RecordProven(parameters.ReadTuned(config.Parameters, config.Tuned))
		s.reportInForce(config.Hash, settings.HeldBack(s.buildInput(config.Parameters, s.control)))
		return
	}
	if refused != nil {
		s.host.Store.Update(func(to *agentapi.Status) { to.ConfigError = refused.Error() })
	}
	s.refused = config.Hash
}

// reportInForce reports the configuration that the server runs with. What is said of
// the archive is of that one by then: who reads both takes the last file of the
// destination before for one of the next otherwise.
func (s *liveSettings) reportInForce(hash string, waits []string) {
	s.archive.ReportStatus()
	s.host.Store.Update(func(to *agentapi.Status) { to.ConfigHash, to.ConfigError, to.WaitsForPrimary = hash, "", waits })
}

// takeConfig takes a new configuration up without a restart, as far as that
// goes.
func (s *liveSettings) takeConfig(ctx context.Context, config *agent.Config) {
	status := s.host.Store.Get()
	known := config != nil && status.ConfigHash == config.Hash && maps.Equal(s.parameters, config.Parameters)
	if known && status.ConfigError != "" {
		// What is in force was declared again: going back repairs a refusal.
		s.refused = ""
		s.host.Store.Update(func(to *agentapi.Status) { to.ConfigError = "" })
	}
	if config == nil || known && len(status.WaitsForPrimary) == 0 || s.refused == config.Hash {
		return
	}
	floors := s.readFloors(ctx)
	waits := settings.HeldBack(s.buildInput(config.Parameters, floors))
	if known && slices.Equal(waits, status.WaitsForPrimary) {
		return
	}
	_, err := s.applyParameters(ctx, config.Parameters, floors)
	if err == nil {
		err = s.reloadSettings(ctx)
	}
	var refused *parameters.Refusal
	switch {
	case err == nil:
		s.refused = ""
		s.observePending(ctx)
		s.reportInForce(config.Hash, waits)
		if len(s.host.Store.Get().PendingRestart) == 0 {
			s.files.RecordProven(parameters.ReadTuned(config.Parameters, config.Tuned))
		}
		s.log.Info("configuration taken up", "hash", config.Hash)
	case errors.As(err, &refused):
		s.refuseConfig(ctx, config, floors, refused)
	default:
		s.log.Warn("configuration not taken up yet", "error", err.Error())
	}
}

// refuseConfig reports that the server does not take a configuration.
func (s *liveSettings) refuseConfig(ctx context.Context, config *agent.Config, floors server.ControlData, refused error) {
	s.refused = config.Hash
	s.host.Store.Update(func(to *agentapi.Status) { to.ConfigError = refused.Error() })
	s.log.Warn("configuration refused", "hash", config.Hash, "error", refused.Error())
	if err := s.rollBackTuned(ctx, config, floors); err != nil {
		s.refused = "" // it is tried again, and then this, too
		s.log.Warn("what was tuned is not rolled back yet", "error", err.Error())
	}
}

// rollBackTuned has the server run without what a refused configuration no longer tunes: a
// declared setting that is refused must not keep a tried value in force.
func (s *liveSettings) rollBackTuned(ctx context.Context, config *agent.Config, floors server.ControlData) error {
	now := parameters.Tuned{Parameters: s.parameters, Values: s.files.ReadProven().Values}
	next := now.Follow(config.Parameters, config.Tuned)
	if maps.Equal(next.Parameters, now.Parameters) {
		return nil
	}
	if _, err := s.applyParameters(ctx, next.Parameters, floors); err != nil {
		return err
	}
	if err := s.reloadSettings(ctx); err != nil {
		return err
	}
	s.files.RecordProven(next)
	s.log.Info("what was tuned is rolled back, and the configuration is refused", "hash", config.Hash)
	return nil
}

// readFloors are what pg_control says now of the primary's settings: it follows
// what is replayed. What a life began with serves where it cannot be read.
func (s *liveSettings) readFloors(ctx context.Context) server.ControlData {
	if s.leads() {
		return s.control
	}
	control, err := s.readControl(ctx)
	if err != nil {
		return s.control
	}
	return control
}

// reloadSettings has the server read its settings again, and waits until it has.
func (s *liveSettings) reloadSettings(ctx context.Context) error {
	loaded := func() (t time.Time, err error) {
		err = s.session.Do(ctx, func(ctx context.Context, c *pgx.Conn) error {
			return c.QueryRow(ctx, "select pg_conf_load_time()").Scan(&t)
		})
		return t, err
	}
	before, err := loaded()
	if err != nil {
		return err
	}
	if err := s.reload(); err != nil {
		return fmt.Errorf("reload: %w", err)
	}
	for range 100 {
		clock.Sleep(ctx, 20*time.Millisecond)
		if after, err := loaded(); err != nil || !after.Equal(before) {
			return err
		}
	}
	return errors.New("the database does not read its settings again")
}

// takeCertificate has the server read its certificates again where they differ.
func (s *liveSettings) takeCertificate() {
	before := s.files.ReadTLS()
	bundle, _ := s.host.Certificates.Current()
	err := s.files.WriteTLS(bundle)
	if s.files.ReadTLS() != before {
		s.log.Info("the certificate has changed: reload")
		err = errors.Join(err, s.reload())
	}
	if err != nil {
		s.log.Warn("the certificate is not taken up", "error", err.Error())
	}
}

// restartLowered restarts a primary, in its term, for settings that are declared lower
// than it runs with and that its replicas must not be below. In another pod it would
// start as a standby, with what it had; and so would its successor.
func (s *liveSettings) restartLowered(ctx context.Context, pending []string) bool {
	config, _ := s.host.Config.Current()
	if !s.leads() || config == nil {
		return false
	}
	wanted := settings.ComputeSettings(s.buildInput(config.Parameters, s.control))
	for _, name := range pending {
		if _, isFloor := s.control.Floors[name]; !isFloor {
			continue
		}
		var text string
		err := s.session.Do(ctx, func(ctx context.Context, c *pgx.Conn) error {
			return c.QueryRow(ctx, "select current_setting($1)", name).Scan(&text)
		})
		now, nowErr := strconv.ParseInt(text, 10, 64)
		next, nextErr := strconv.ParseInt(wanted[name], 10, 64)
		if errors.Join(err, nowErr, nextErr) == nil && next < now {
			s.log.Info("restarts the primary in its term for a lower setting", "setting", name, "from", now, "to", next)
			s.restart()
			return true
		}
	}
	return false
}

// observePending finds what waits for a restart, and what a client set with
// ALTER SYSTEM.
func (s *liveSettings) observePending(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var pending, altered []string
	err := s.session.Do(ctx, func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, `select
			coalesce(array_agg(name order by name) filter (where pending_restart), '{}'),
			coalesce(array_agg(name order by name) filter (where sourcefile like '%/postgresql.auto.conf'), '{}')
			from pg_settings`).Scan(&pending, &altered)
	})
	if err != nil {
		return
	}
	slices.Sort(pending)
	if s.restartLowered(ctx, pending) {
		return
	}
	s.host.Store.Update(func(to *agentapi.Status) {
		to.PendingRestart = pending
		if len(pending) == 0 {
			to.PendingRestart = nil
		}
		details := maps.Clone(to.Details)
		if details == nil {
			details = map[string]string{}
		}
		delete(details, "alterSystem")
		if len(altered) > 0 {
			details["alterSystem"] = strings.Join(altered, ",")
		}
		if len(details) == 0 {
			details = nil
		}
		to.Details = details
	})
}
