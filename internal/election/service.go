package election

import (
	"fmt"
	"time"
)

// failedLimit is how many terms in a row a member may win without coming to serve before
// it stands back. A member that stands back votes, and its WAL counts where votes are
// mandatory. Otherwise others lead without its WAL, as without that of a member that
// does not answer.
const failedLimit = 3

// service follows whether the server of a term comes to serve.
type service struct {
	counted  bool          // the present term is one of Persistent.Failed
	promoted time.Duration // when the server became the primary
}

// begin counts a term that was won until its server serves: an agent that ends meanwhile
// has not forgotten it. The timeline is persisted with it.
func (s *service) begin(d *Persistent, timeline int64) []Effect {
	failed := d.Failed + 1
	d.recordTimelines([]int64{timeline})
	s.counted, d.Failed = true, failed
	return []Effect{Persist{*d}}
}

// fail counts a term that ends because of its server.
func (s *service) fail(d *Persistent) {
	if !s.counted {
		d.Failed++
	}
	s.counted = false
}

// excuse takes back a term that ended for another reason.
func (s *service) excuse(d *Persistent) []Effect {
	if !s.counted {
		return nil
	}
	s.counted = false
	d.Failed--
	return []Effect{Persist{*d}}
}

// recordServing forgets what failed once the server has served for a while: one that
// crashes soon after its promotion has not.
func (s *service) recordServing(m *member, now time.Duration) []Effect {
	if m.Disk.Failed == 0 || now-s.promoted < m.standBackTime() {
		return nil
	}
	s.counted, m.Disk.Failed = false, 0
	return []Effect{Persist{m.Disk}}
}

// standBackTime is how long a member that stands back leaves a free Lease to the others,
// and how long a server has to serve before what failed earlier is forgotten.
func (m member) standBackTime() time.Duration { return 6 * m.Config.Timing.Duration() }

// explainStandingBack says why this member leaves a free Lease to the others for a
// while; empty if it does not.
func (m member) explainStandingBack() string {
	if m.Disk.Failed < failedLimit {
		return ""
	}
	return fmt.Sprintf("this member won the last %d elections that it took part in, and its database did not come to serve: read what PostgreSQL wrote to the log of the pod. "+
		"It tries again after %s. If it holds WAL of the synchronous quorum that no other member has, none leads without it unless a person names one",
		m.Disk.Failed, m.standBackTime())
}
