package dashboards

import (
	"regexp"
	"strings"
)

// keptFamilies are those that dashboards and alerts may read. A scrape has many others, of
// Go's runtime and of gRPC, that would make a recording ten times as long.
var keptFamilies = regexp.MustCompile(`^(holdfast|pg|mysql|process|controller_runtime|workqueue|rest_client|leader_election)_|^etcd_(disk|mvcc|network|server)_|^go_goroutines$|^grpc_server_handled_total$`)

// sampleName is the name at the beginning of a line, and familyName that of a comment.
var (
	sampleName = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*`)
	familyName = regexp.MustCompile(`^# TYPE (\S+)`)
)

// TrimScrape leaves the families of a scrape that dashboards may read, without help texts
// and without methods of gRPC that were not called.
func TrimScrape(text string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		name := sampleName.FindString(line)
		if m := familyName.FindStringSubmatch(line); m != nil {
			name = m[1]
		}
		if name == "" || !keptFamilies.MatchString(name) || name == "grpc_server_handled_total" && strings.HasSuffix(line, "} 0\n") {
			continue
		}
		kept.WriteString(line)
	}
	return kept.String()
}
