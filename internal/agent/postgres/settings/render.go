package settings

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ArchiveCommand is what the database runs for each file: this program, which
// knows nothing but the way to the agent.
func ArchiveCommand(program, socket string) string {
	quote := func(s string) string {
		s = strings.ReplaceAll(s, "'", `'\''`)
		return "'" + strings.ReplaceAll(s, "%", "%%") + "'"
	}
	return quote(program) + " wal archive --socket " + quote(socket) + " %f"
}

// RenderSettings writes a configuration file, sorted.
func RenderSettings(s map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(&b, "%s = '%s'\n", name, quoteSetting(s[name]))
	}
	return b.String()
}

// quoteSetting escapes what means something inside the quotes of a
// configuration file, and keeps a value on its line.
func quoteSetting(value string) string {
	return strings.NewReplacer(`\`, `\\`, `'`, `''`, "\n", `\n`, "\r", `\r`).Replace(value)
}
