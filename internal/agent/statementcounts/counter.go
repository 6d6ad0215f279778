// Package statementcounts sends to scrapes what the statements of a member did. Engines read
// their tables; what they differ in is no concern here.
package statementcounts

import (
	"sync"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/metricfamily"
	"github.com/holdfast-db/holdfast/internal/agent/statements"
)

// Counter counts by statement for scrapes. Its zero value has read nothing. It is safe for use
// by several goroutines.
type Counter[K comparable] struct {
	mu  sync.Mutex
	top statements.Top[K]
	// read is when the table was last read.
	read time.Time
}

// Collect reads the table, unless that was less than statements.LeastInterval ago, and sends what
// statements did: of at most so many, and of all others together. Families are the columns, in
// their order. If read fails, its error is returned as it is and nothing is sent.
func (c *Counter[K]) Collect(families []metricfamily.Family, most int, read func() ([]statements.Row[K], error), send metricfamily.Send) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); c.read.IsZero() || now.Sub(c.read) >= statements.LeastInterval {
		rows, err := read()
		if err != nil {
			return err
		}
		c.top.Update(now, rows, len(rows) < statements.MaxEntries, most)
		c.read = now
	}
	for i, f := range families {
		for _, s := range c.top.Chosen() {
			send(f, s.Values[i], s.ID, s.Database)
		}
		send(f, c.top.Rest()[i], statements.RestID, "")
	}
	return nil
}
