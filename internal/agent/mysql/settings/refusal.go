package settings

import (
	"regexp"
	"strings"

	"github.com/holdfast-db/holdfast/internal/agent/process"
)

var (
	errorLine    = regexp.MustCompile(`\[ERROR\] \[MY-\d+\] \[\w+\] (.*)$`)
	adjustedLine = regexp.MustCompile(`\[Warning\] \[MY-\d+\] \[\w+\] option '([\w-]+)': (.*adjusted to .*)$`)
	unknownName  = regexp.MustCompile(`unknown (?:variable|option) '-*(?:loose[-_])?([\w-]+)[^']*'`)
	quotedName   = regexp.MustCompile(`(?:to|variable|option) '([a-z][\w-]+)'`)
)

// DescribeRefusal turns what the server writes about its settings into one line, in
// which each part begins with the setting's name.
func DescribeRefusal(stderr string) string {
	var found []string
	for line := range strings.Lines(stderr) {
		match := errorLine.FindStringSubmatch(strings.TrimSpace(line))
		if match == nil || match[1] == "Aborting" {
			continue
		}
		message := strings.TrimPrefix(match[1], "mysqld: ")
		message = strings.TrimSuffix(message, ".")
		if name := unknownName.FindStringSubmatch(message); name != nil {
			message = underscored(name[1]) + ": unknown system variable"
		} else if name := quotedName.FindStringSubmatch(message); name != nil {
			message = underscored(name[1]) + ": " + message
		}
		found = append(found, message)
	}
	if len(found) == 0 {
		return process.LastLine(stderr)
	}
	return strings.Join(found, "; ")
}

// FindAdjusted are the settings, by name, that the server takes with another value, and
// what it says of each.
func FindAdjusted(stderr string) map[string]string {
	adjusted := map[string]string{}
	for line := range strings.Lines(stderr) {
		if match := adjustedLine.FindStringSubmatch(strings.TrimSpace(line)); match != nil {
			adjusted[underscored(match[1])] = strings.TrimSuffix(match[2], ".")
		}
	}
	return adjusted
}

func underscored(name string) string { return strings.ReplaceAll(name, "-", "_") }
