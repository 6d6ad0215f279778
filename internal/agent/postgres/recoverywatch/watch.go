package recoverywatch

import "time"

// Limit is how long a recovery may make no progress, and how long a server may crash
// again and again, while other members may lead.
const Limit = 30 * time.Second

// Progress follows one recovery. The zero value is that of one that begins.
type Progress struct {
	mark  Mark
	moved time.Duration
	begun bool
}

// Observe takes in a mark, and reports whether it shows progress since the last one.
func (p *Progress) Observe(now time.Duration, m Mark) bool {
	if p.begun && m == p.mark {
		return false
	}
	p.mark, p.moved, p.begun = m, now, true
	return true
}

// IsStuck reports whether there was no progress for Limit.
func (p *Progress) IsStuck(now time.Duration) bool { return p.begun && now-p.moved >= Limit }

// Crashes follows the recoveries of one run: PostgreSQL starts itself again after the
// crash of a session. The zero value is that of a run that serves.
type Crashes struct {
	recovery Progress
	// first is when the first of a row of crashes was seen, and served since when the
	// server has served since the last one.
	first, served time.Duration
	recovering    bool
}

// Observe takes in whether the server is in recovery now, and returns why its term has
// to end; empty if it need not. Several crashes are a row if the server served for less
// than Limit between two of them.
func (c *Crashes) Observe(now time.Duration, recovering bool, m Mark) string {
	if !recovering {
		if c.recovering {
			c.recovering, c.served = false, now
		}
		return ""
	}
	if !c.recovering {
		c.recovering, c.recovery = true, Progress{}
		switch {
		case c.first == 0 || now-c.served > Limit:
			c.first = now
		case now-c.first > Limit:
			return "it crashes again and again"
		}
	}
	c.recovery.Observe(now, m)
	if c.recovery.IsStuck(now) {
		return "its recovery makes no progress"
	}
	return ""
}
