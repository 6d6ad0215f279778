// Package settings knows what a change of a database's setting takes: a restart, new
// sessions, or nothing but a reload. Its catalogues are what real servers say of
// themselves. What is in none of them, only the server knows.
package settings

import (
	"embed"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Effect is what a change of a setting takes.
type Effect string

// The effects.
const (
	// Reload: the running server takes it up.
	Reload Effect = "reload"
	// NewSessions: it holds for sessions that begin later.
	NewSessions Effect = "new sessions"
	// Restart: it is taken up at the next start.
	Restart Effect = "restart"
	// Unknown: only the server knows.
	Unknown Effect = "unknown"
)

// Setting is one of a server's.
type Setting struct {
	Name string
	// Context as pg_settings has it, such as postmaster; of MySQL dynamic, session or
	// restart.
	Context string
	// Type is integer, real, bool, string or enum. Unit is that of a number without one.
	Type, Unit string
	// Least and Most bound a number; empty for no bounds.
	Least, Most string
}

// Catalogue is what the servers of one version say of their settings.
type Catalogue struct {
	// Version that it was taken from, such as 17 of PostgreSQL or 9.7 of MySQL, and Exact
	// says that it is the one that was asked for.
	Version string
	Exact   bool

	settings map[string]Setting
}

// The files are written by test/postgres-settings.sh and test/mysql-settings.sh.
//
//go:embed postgres_*.tsv mysql_*.tsv
var files embed.FS

var (
	readPostgres = sync.OnceValue(func() map[string]map[string]Setting { return readFiles("postgres_") })
	readMySQL    = sync.OnceValue(func() map[string]map[string]Setting { return readFiles("mysql_") })
)

// readFiles reads the catalogues of one engine, by version.
func readFiles(prefix string) map[string]map[string]Setting {
	all := map[string]map[string]Setting{}
	entries, err := files.ReadDir(".")
	if err != nil {
		panic(fmt.Sprintf("embedded files are listed: %v", err))
	}
	for _, e := range entries {
		version, is := strings.CutPrefix(strings.TrimSuffix(e.Name(), ".tsv"), prefix)
		if text, err := files.ReadFile(e.Name()); is && err == nil {
			all[version] = parse(string(text))
		}
	}
	return all
}

// parse reads a catalogue's file: a line for each setting, with tabs between its columns.
// MySQL's has the first two only.
func parse(text string) map[string]Setting {
	found := map[string]Setting{}
	for line := range strings.Lines(text) {
		columns := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if strings.HasPrefix(line, "#") || len(columns) < 2 {
			continue
		}
		columns = append(columns, make([]string, 4)...)
		s := Setting{Name: columns[0], Context: columns[1], Type: columns[2], Unit: columns[3], Least: columns[4], Most: columns[5]}
		found[strings.ToLower(s.Name)] = s
	}
	return found
}

// ForPostgres is the catalogue of a major version of PostgreSQL, or that of the nearest one
// before it.
func ForPostgres(major int) Catalogue {
	return chooseCatalogue(readPostgres(), strconv.Itoa(major))
}

// ForMySQL is the catalogue of the series of a version of MySQL, which is 9.7 of 9.7.4, or
// that of the nearest one before it; of the oldest where there is none.
func ForMySQL(version string) Catalogue {
	parts := strings.SplitN(version, ".", 3)
	return chooseCatalogue(readMySQL(), strings.Join(parts[:min(2, len(parts))], "."))
}

// chooseCatalogue is that of a version, of the newest one before it, or of the oldest.
func chooseCatalogue(all map[string]map[string]Setting, version string) Catalogue {
	known := slices.SortedFunc(maps.Keys(all), compareVersions)
	nearest := known[0]
	for _, have := range known {
		if compareVersions(have, version) <= 0 {
			nearest = have
		}
	}
	return Catalogue{Version: nearest, Exact: nearest == version, settings: all[nearest]}
}

// compareVersions compares numbers with dots between them. What is no number is 0.
func compareVersions(a, b string) int {
	return slices.Compare(parseNumbers(a), parseNumbers(b))
}

func parseNumbers(version string) []int {
	var numbers []int
	for part := range strings.SplitSeq(version, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			n = 0
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// Find a setting by its name.
func (c Catalogue) Find(name string) (Setting, bool) {
	s, found := c.settings[strings.ToLower(name)]
	return s, found
}

// EffectOf a change of a setting.
func (c Catalogue) EffectOf(name string) Effect {
	s, found := c.Find(name)
	if !found {
		return Unknown
	}
	return effectOfContext(s.Context)
}

// effectOfContext is what a change of a setting takes, by its context in pg_settings, or by
// what MySQL answered when it was asked to change it.
func effectOfContext(context string) Effect {
	switch context {
	case "postmaster", "restart":
		return Restart
	case "backend", "superuser-backend", "session":
		return NewSessions
	case "sighup", "superuser", "user", "dynamic":
		return Reload
	}
	return Unknown
}

// units of PostgreSQL in the smallest one of their kind, a byte or a microsecond.
var units = map[string]float64{
	"B": 1, "kB": 1 << 10, "8kB": 8 << 10, "MB": 1 << 20, "16MB": 16 << 20, "GB": 1 << 30, "TB": 1 << 40,
	"us": 1, "ms": 1e3, "s": 1e6, "min": 60e6, "h": 3600e6, "d": 86400e6,
}

var (
	sizes = []string{"B", "kB", "8kB", "MB", "16MB", "GB", "TB"}
	times = []string{"us", "ms", "s", "min", "h", "d"}
)

// FindFault says why a server refuses a value; empty where it takes it, or where only the
// server knows. Bounds of another version are not applied.
func (c Catalogue) FindFault(name, value string) string {
	s, found := c.Find(name)
	if !found || !c.Exact || s.Type != "integer" && s.Type != "real" {
		return ""
	}
	n, ok := s.parseNumber(value)
	if !ok {
		return fmt.Sprintf("%s: %q is no %s%s", name, value, map[string]string{"integer": "whole number", "real": "number"}[s.Type], s.describeUnit())
	}
	least, errLeast := strconv.ParseFloat(s.Least, 64)
	most, errMost := strconv.ParseFloat(s.Most, 64)
	if errLeast == nil && n < least || errMost == nil && n > most {
		return fmt.Sprintf("%s: %s is outside the valid range from %s to %s%s", name, value, s.Least, s.Most, s.describeUnit())
	}
	return ""
}

func (s Setting) describeUnit() string {
	if s.Unit == "" {
		return ""
	}
	return " in units of " + s.Unit
}

// parseNumber reads a value in units of the setting.
func (s Setting) parseNumber(value string) (float64, bool) {
	value = strings.TrimSpace(value)
	end := len(value)
	for end > 0 && (value[end-1] >= 'a' && value[end-1] <= 'z' || value[end-1] >= 'A' && value[end-1] <= 'Z') {
		end--
	}
	number, unit := strings.TrimSpace(value[:end]), value[end:]
	n, err := strconv.ParseFloat(number, 64)
	if err != nil {
		whole, hexErr := strconv.ParseInt(number, 0, 64)
		if hexErr != nil {
			return 0, false
		}
		n = float64(whole)
	}
	if unit != "" {
		sameKind := slices.Contains(sizes, unit) && slices.Contains(sizes, s.Unit) || slices.Contains(times, unit) && slices.Contains(times, s.Unit)
		if !sameKind {
			return 0, false
		}
		n *= units[unit] / units[s.Unit]
	}
	if s.Type == "integer" {
		n = math.RoundToEven(n)
	}
	return n, true
}
