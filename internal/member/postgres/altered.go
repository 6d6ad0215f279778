package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/internal/member"
)

// changedWhileRunning are Holdfast's own settings that may change while the
// server runs, or wait for its next start. All others are arguments of the
// server, which neither ALTER SYSTEM nor a file in the data directory overrules.
var changedWhileRunning = []string{
	"archive_command", "archive_mode", "max_replication_slots", "max_wal_senders", "primary_conninfo", "primary_slot_name", "superuser_reserved_connections",
	"allow_alter_system", // unknown before 17, and of no use as an argument
}

// neverSet are settings that Holdfast relies on to have their defaults, or that
// it gives the server otherwise.
var neverSet = []string{
	"archive_library", "config_file", "data_directory", "event_source", "external_pid_file", "promote_trigger_file",
	"recovery_target", "recovery_target_action", "recovery_target_inclusive", "recovery_target_lsn", "recovery_target_name",
	"recovery_target_time", "recovery_target_xid", "restore_command", "ssl_crl_dir", "ssl_crl_file", "unix_socket_group",
	"archive_cleanup_command",
}

// decisiveSettings are the server's arguments.
func decisiveSettings(in settingsInput) map[string]string {
	s := ownSettings(in)
	for _, name := range changedWhileRunning {
		delete(s, name)
	}
	return s
}

// owned says whether a setting is Holdfast's.
func owned(name string) bool {
	name = strings.ToLower(name)
	_, own := ownSettings(settingsInput{Major: 17})[name]
	return own || slices.Contains(neverSet, name)
}

var settingName = regexp.MustCompile(`^\s*"?([A-Za-z_][A-Za-z0-9_.$]*)"?\s*(?:=|\s)`)

// withoutOwned is the text of a configuration file without the lines that set
// what Holdfast owns, and the names that these set.
func withoutOwned(text string) (kept string, dropped []string) {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if match := settingName.FindStringSubmatch(line); match != nil && owned(match[1]) {
			dropped = append(dropped, strings.ToLower(match[1]))
			continue
		}
		b.WriteString(line)
	}
	slices.Sort(dropped)
	return b.String(), slices.Compact(dropped)
}

// dropAltered removes from a stopped server's data what ALTER SYSTEM has set of
// Holdfast's own settings: it came with a copy, from another version, or from a
// superuser. All else stays.
func (a *agent) dropAltered() error {
	path := filepath.Join(a.o.pgdata(), autoName)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", autoName, err)
	}
	kept, dropped := withoutOwned(string(data))
	if len(dropped) == 0 {
		return nil
	}
	a.log.Warn("ALTER SYSTEM has set what Holdfast owns: it is reset", "settings", strings.Join(dropped, ","))
	return member.WriteFile(path, []byte(kept))
}

// alteredRetry is between two attempts to reset them.
const alteredRetry = 10 * time.Second

// watchAltered resets what ALTER SYSTEM sets of Holdfast's own settings while the
// server runs. Of those that are arguments it never takes effect.
func (l *life) watchAltered(ctx context.Context) {
	info, err := os.Stat(filepath.Join(l.o.pgdata(), autoName))
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
	l.log.Warn("ALTER SYSTEM has set what Holdfast owns: it is reset", "settings", strings.Join(reset, ","))
	l.alteredReset = strings.Join(reset, ",")
}

// resetAltered has the server reset them, for it may be writing the file. From
// 17 on it refuses to, and nobody else writes it.
func (l *life) resetAltered(ctx context.Context) (reset []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var names []string
	err = l.agent.control.do(ctx, func(ctx context.Context, c *pgx.Conn) error {
		const sql = "select coalesce(array_agg(distinct name), '{}') from pg_file_settings where name is not null and sourcefile like '%/" + autoName + "'"
		if err := c.QueryRow(ctx, sql).Scan(&names); err != nil {
			return err
		}
		reset = slices.DeleteFunc(names, func(name string) bool { return !owned(name) })
		if l.major >= 17 {
			return nil
		}
		for _, name := range reset {
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
	slices.Sort(reset)
	return reset, l.server.reload()
}
