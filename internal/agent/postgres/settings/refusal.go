package settings

import (
	"regexp"
	"strings"

	"github.com/holdfast-db/holdfast/internal/agent/process"
)

var (
	logLevel    = regexp.MustCompile(`^(?:.*? )?(?:LOG|ERROR|FATAL|WARNING):  (.*)$`)
	inFile      = regexp.MustCompile(` in file "[^"]*" line \d+`)
	inParameter = regexp.MustCompile(`(?: for)?(?: configuration)? parameter "([^"]+)"`)
)

// DescribeRefusal turns what the server writes about a configuration file into
// one line that begins with the parameter's name.
func DescribeRefusal(stderr string) string {
	var found []string
	for line := range strings.Lines(stderr) {
		match := logLevel.FindStringSubmatch(strings.TrimSpace(line))
		if match == nil || strings.Contains(match[1], "contains errors") {
			continue
		}
		message := inFile.ReplaceAllString(match[1], "")
		if name := inParameter.FindStringSubmatch(message); name != nil {
			short := strings.TrimSpace(strings.Replace(message, name[0], "", 1))
			if strings.HasPrefix(short, "unrecognized") {
				short = "unrecognized configuration parameter"
			}
			message = name[1] + ": " + short
		}
		found = append(found, message)
	}
	if len(found) == 0 {
		return process.LastLine(stderr)
	}
	return strings.Join(found, "; ")
}
