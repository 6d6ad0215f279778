package leadership

import (
	"slices"

	"github.com/holdfast-db/holdfast/internal/agent"
)

// ChooseSuccessor chooses the member that leads after this one shuts down in order: of
// those that stream from it and may lead, the one with the newest WAL. It is the ID of
// that one's volume; empty for none. Without a name, the member that shuts down could be
// elected again.
func (d *Directory) ChooseSuccessor(reached, mayLead []string, config *agent.Config) string {
	volumes, ends := d.ListVolumes(), d.ListEnds()
	chosen := ""
	for _, pod := range reached {
		excluded := config != nil && slices.Contains(config.NoFailover, pod)
		if excluded || volumes[pod] == "" || !slices.Contains(mayLead, volumes[pod]) {
			continue
		}
		if chosen == "" || ends[pod].Newer(ends[chosen]) {
			chosen = pod
		}
	}
	return volumes[chosen]
}
