// Package insights reads the text log of a database beside it, and answers what it
// found. It never makes the database wait: lines that come faster than they are read
// are dropped and counted. It keeps no text of a line: see loginsight.
package insights

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/loginsight"
)

const (
	// waitingLines is how many lines may wait to be read.
	waitingLines = 1024
	// defaultLongest is how much of a line is read where an engine needs no more.
	defaultLongest = 1 << 10
	// publishInterval is the least time between two revisions. What is found within
	// settleTime is published together, and checkInterval is how often that is checked.
	publishInterval = 10 * time.Minute
	settleTime      = time.Minute
	checkInterval   = 10 * time.Second
)

// TextLog is how an engine's text log is read.
type TextLog struct {
	// Parse reads a line.
	Parse loginsight.Parser
	// IsContinued says of a line that it belongs to the one before, and is not read; nil
	// where no line does.
	IsContinued func(line string) bool
	// Longest is how many bytes of a line are read; 0 for the default.
	Longest int
}

// Analyzer reads lines, and holds what it found in them. A nil one hears nothing.
type Analyzer struct {
	log         TextLog
	pod, podUID string
	lines       chan string
	dropped     atomic.Int64
	unread      atomic.Pointer[string]
	// addTo adds what else the agent knows to a report; nil for nothing.
	addTo atomic.Pointer[func(*agentapi.Insights)]

	mu           sync.Mutex
	ring         *loginsight.Ring
	since        time.Time
	read         int64
	unclassified int64
	// published is the revision that was published last, and publishedAt when. Another one
	// is there since changedAt; zero while there is none.
	published              string
	publishedAt, changedAt time.Time
}

// NewAnalyzer reads the text log of the database in a pod.
func NewAnalyzer(log TextLog, pod, podUID string) *Analyzer {
	if log.Longest == 0 {
		log.Longest = defaultLongest
	}
	return &Analyzer{
		log: log, pod: pod, podUID: podUID, lines: make(chan string, waitingLines),
		ring: loginsight.NewRing(), since: time.Now().UTC(),
	}
}

// Hear takes a line, and never waits.
func (a *Analyzer) Hear(line string) {
	if a == nil || a.unread.Load() != nil || a.log.IsContinued != nil && a.log.IsContinued(line) {
		return
	}
	if len(line) > a.log.Longest {
		line = strings.Clone(line[:a.log.Longest]) // the whole one is not kept in memory
	}
	select {
	case a.lines <- line:
	default:
		a.dropped.Add(1)
	}
}

// SetUnread says why lines are not read from now on; empty where they are.
func (a *Analyzer) SetUnread(reason string) {
	switch {
	case a == nil:
	case reason == "":
		a.unread.Store(nil)
	default:
		a.unread.Store(&reason)
	}
}

// Follow reads lines until ctx ends. It publishes a revision when there is another one,
// and at most one in ten minutes.
func (a *Analyzer) Follow(ctx context.Context, publish func(revision string)) {
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case line := <-a.lines:
			a.readLine(line, time.Now().UTC())
		case now := <-ticker.C:
			if revision, due := a.nextRevision(now); due {
				publish(revision)
			}
		}
	}
}

func (a *Analyzer) readLine(line string, now time.Time) {
	event, result := a.log.Parse(line, now)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.read++
	switch result {
	case loginsight.Known:
		if event.Time.After(now) {
			event.Time = now
		}
		a.ring.Add(event)
	case loginsight.Unknown:
		a.unclassified++
	}
}

// Note takes an event that no line reports.
func (a *Analyzer) Note(event loginsight.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ring.Add(event)
}

// AddToReports has further measurements in each report.
func (a *Analyzer) AddToReports(add func(*agentapi.Insights)) { a.addTo.Store(&add) }

// nextRevision is the revision to publish, if one is due.
func (a *Analyzer) nextRevision(now time.Time) (revision string, due bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	revision = a.ring.Revision()
	switch {
	case revision == a.published:
		a.changedAt = time.Time{}
		return "", false
	case a.changedAt.IsZero():
		a.changedAt = now
		return "", false
	case now.Sub(a.changedAt) < settleTime || !a.publishedAt.IsZero() && now.Sub(a.publishedAt) < publishInterval:
		return "", false
	}
	a.published, a.publishedAt, a.changedAt = revision, now, time.Time{}
	return revision, true
}

// Report is what was found until now.
func (a *Analyzer) Report() agentapi.Insights {
	report := a.reportLines()
	if add := a.addTo.Load(); add != nil {
		(*add)(&report)
	}
	return report
}

func (a *Analyzer) reportLines() agentapi.Insights {
	a.mu.Lock()
	defer a.mu.Unlock()
	report := agentapi.Insights{
		Pod: a.pod, PodUID: a.podUID, Revision: a.published, Since: a.since,
		Lines: a.read, Unclassified: a.unclassified, Dropped: a.dropped.Load(), Classes: a.ring.Report(),
	}
	if reason := a.unread.Load(); reason != nil {
		report.Unread = *reason
	}
	return report
}
