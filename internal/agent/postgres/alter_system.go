package postgres

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/serverfiles"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/agent/statusserver"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// alteredRetry is between two attempts to reset them.
const alteredRetry = 10 * time.Second

// alteredSettings resets what ALTER SYSTEM sets of Holdfast's own settings.
type alteredSettings struct {
	log     *slog.Logger
	store   *statusserver.Store
	files   *serverfiles.Files
	session *server.Session
	major   int // version of the programs
	reload  func() error
	// clean is the time of the file that holds nothing of ours, and tried when
	// resetting them failed last; both are of the goroutine that observes.
	clean, tried time.Time
}

// dropAltered removes them from a stopped server's data, and reports them.
func (s *alteredSettings) dropAltered() error {
	values, err := s.files.DropAltered()
	if err == nil && values != nil {
		s.reportResets(values, time.Now())
	}
	return err
}

// reportResets reports settings that were reset, with the values that they had.
func (s *alteredSettings) reportResets(values map[string]string, at time.Time) {
	s.store.Update(func(to *agentapi.Status) {
		resets := slices.DeleteFunc(slices.Clone(readReplication(*to).Resets), func(r postgresapi.Reset) bool { _, again := values[r.Parameter]; return again })
		for _, name := range slices.Sorted(maps.Keys(values)) {
			resets = append(resets, postgresapi.Reset{Parameter: name, Was: settings.RedactValue(name, values[name]), Time: at.UTC().Truncate(time.Second)})
		}
		changeReplication(to, func(r *postgresapi.ReplicationStatus) { r.Resets = resets })
	})
}

// watchAltered resets what ALTER SYSTEM sets of Holdfast's own settings while the
// server runs. Of those that are arguments it never takes effect.
func (s *alteredSettings) watchAltered(ctx context.Context) {
	info, err := os.Stat(s.files.AlteredPath())
	if err != nil || info.ModTime().Equal(s.clean) || time.Since(s.tried) < alteredRetry {
		return
	}
	reset, err := s.resetAltered(ctx)
	if err != nil {
		s.tried = time.Now()
		s.log.Warn("settings of ALTER SYSTEM", "error", err.Error())
		return
	}
	if len(reset) == 0 {
		s.clean = info.ModTime()
		return
	}
	s.log.Warn("ALTER SYSTEM has set what Holdfast owns: it is reset", "settings", slices.Sorted(maps.Keys(reset)))
	if s.major < 17 { // dropAltered has reported them
		s.reportResets(reset, time.Now())
	}
}

// resetAltered has the server reset them, for it may be writing the file, and
// returns their values. From 17 on it refuses to, and no other process writes it.
func (s *alteredSettings) resetAltered(ctx context.Context) (reset map[string]string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	reset = map[string]string{}
	err = s.session.Do(ctx, func(ctx context.Context, c *pgx.Conn) error {
		const sql = "select name, coalesce(setting, '') from pg_file_settings where name is not null and sourcefile like '%/" + settings.AlterSystemFile + "' order by seqno"
		rows, err := c.Query(ctx, sql)
		if err != nil {
			return err
		}
		var name, value string
		if _, err := pgx.ForEachRow(rows, []any{&name, &value}, func() error {
			if settings.IsOwned(name) {
				reset[name] = value
			}
			return nil
		}); err != nil || s.major >= 17 {
			return err
		}
		for name := range reset {
			if _, err := c.Exec(ctx, "alter system reset "+pgx.Identifier{name}.Sanitize()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || len(reset) == 0 {
		return nil, err
	}
	if s.major >= 17 {
		if err := s.dropAltered(); err != nil {
			return nil, err
		}
	}
	return reset, s.reload()
}
