package settings

import (
	"fmt"
	"strings"
)

// optional are prefixes of settings that only a plugin knows: while the data directory
// is made no plugin is loaded, and the server would refuse them.
var optional = []string{"group_replication_", "clone_"}

// RenderSettings writes a configuration file, sorted.
func RenderSettings(s map[string]string) string {
	var b strings.Builder
	b.WriteString("[mysqld]\n")
	for _, name := range sortedNames(s) {
		prefix := ""
		for _, o := range optional {
			if strings.HasPrefix(name, o) {
				prefix = "loose_"
			}
		}
		fmt.Fprintf(&b, "%s%s=%s\n", prefix, name, quoteSetting(s[name]))
	}
	return b.String()
}

// quoteSetting writes a value so that no character of it means anything else: within
// quotes only escapes do, and a number sign begins no comment.
func quoteSetting(value string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", `\r`, "\t", `\t`).Replace(value) + `"`
}
