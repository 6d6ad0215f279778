package mysql

import "github.com/holdfast-db/holdfast/internal/engine/memberset"

// viewArchive is the archive of the binlog, as the primary reports it.
func (j *judgement) viewArchive() memberset.ArchiveView {
	v := memberset.ArchiveView{Judgement: &j.Judgement, Leader: j.g.leader}
	if j.g.takesWrites() {
		v.Status = j.g.status
	}
	return v
}
