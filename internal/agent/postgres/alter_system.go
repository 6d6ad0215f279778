package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// dropAltered removes from a stopped server's data what ALTER SYSTEM has set of
// Holdfast's own settings: it came with a copy, from another version, or from a
// superuser. All else stays.
func (a *postgresAgent) dropAltered() error {
	path := filepath.Join(a.o.pgdataPath(), settings.AlterSystemFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", settings.AlterSystemFile, err)
	}
	kept, dropped := settings.RemoveOwned(string(data))
	if len(dropped) == 0 {
		return nil
	}
	a.log.Warn("ALTER SYSTEM has set what Holdfast owns: it is reset", "settings", strings.Join(dropped, ","))
	if err := atomicfile.WriteDurably(path, []byte(kept)); err != nil {
		return err
	}
	a.reportResets(settings.ReadValues(string(data), dropped), time.Now())
	return nil
}

// reportResets reports settings that were reset, with the values that they had.
func (a *postgresAgent) reportResets(values map[string]string, at time.Time) {
	a.Store.Update(func(s *agentapi.Status) {
		resets := slices.DeleteFunc(slices.Clone(readReplication(*s).Resets), func(r postgresapi.Reset) bool { _, again := values[r.Parameter]; return again })
		for _, name := range slices.Sorted(maps.Keys(values)) {
			resets = append(resets, postgresapi.Reset{Parameter: name, Was: settings.RedactValue(name, values[name]), Time: at.UTC().Truncate(time.Second)})
		}
		changeReplication(s, func(r *postgresapi.ReplicationStatus) { r.Resets = resets })
	})
}

// alteredRetry is between two attempts to reset them.
const alteredRetry = 10 * time.Second

// watchAltered resets what ALTER SYSTEM sets of Holdfast's own settings while the
// server runs. Of those that are arguments it never takes effect.
func (l *life) watchAltered(ctx context.Context) {
	info, err := os.Stat(filepath.Join(l.o.pgdataPath(), settings.AlterSystemFile))
	if err != nil || info.ModTime().Equal(l.alteredAt) || time.Since(l.alteredTried) < alteredRetry {
		return
	}
	reset, err := l.resetAltered(ctx)
	if err != nil {
		l.alteredTried = time.Now()
		l.log.Warn("settings of ALTER SYSTEM", "error", err.Error())
		return
	}
	if len(reset) == 0 {
		l.alteredAt = info.ModTime()
		return
	}
	l.log.Warn("ALTER SYSTEM has set what Holdfast owns: it is reset", "settings", slices.Sorted(maps.Keys(reset)))
	if l.major < 17 { // dropAltered has reported them
		l.reportResets(reset, time.Now())
	}
}

// resetAltered has the server reset them, for it may be writing the file, and
// returns their values. From 17 on it refuses to, and no other process writes it.
func (l *life) resetAltered(ctx context.Context) (reset map[string]string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	reset = map[string]string{}
	err = l.postgresAgent.control.Do(ctx, func(ctx context.Context, c *pgx.Conn) error {
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
		}); err != nil || l.major >= 17 {
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
	if l.major >= 17 {
		if err := l.dropAltered(); err != nil {
			return nil, err
		}
	}
	return reset, l.server.ReloadSettings()
}
