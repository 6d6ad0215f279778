package postgres

import "github.com/holdfast-db/holdfast/internal/engine/memberset"

// viewArchive is the archive of the WAL, as the leader reports it.
func (j *judgement) viewArchive() memberset.ArchiveView {
	v := memberset.ArchiveView{Judgement: &j.Judgement, Leader: j.lead.leader}
	if j.lead.isLed() {
		v.Status = j.lead.status
	}
	return v
}
