package elector

import (
	"context"
	"log/slog"
	"sync/atomic"
)

// journalLength is how many lines may wait to be written.
const journalLength = 256

// journal writes lines to the text log beside the loop: the pipe behind standard error
// may be full, and that delays no fence. Lines that do not fit are counted instead.
type journal struct {
	log     *slog.Logger
	lines   chan journalLine
	dropped atomic.Int64
}

type journalLine struct {
	level   slog.Level
	message string
	values  []any
}

func newJournal(log *slog.Logger) *journal {
	return &journal{log: log, lines: make(chan journalLine, journalLength)}
}

func (j *journal) writeLine(level slog.Level, message string, values ...any) {
	select {
	case j.lines <- journalLine{level, message, values}:
	default:
		j.dropped.Add(1)
	}
}

// followLines writes lines until the channel is closed.
func (j *journal) followLines() {
	for line := range j.lines {
		j.log.Log(context.Background(), line.level, line.message, line.values...)
		if dropped := j.dropped.Swap(0); dropped > 0 {
			j.log.Warn("lines of the election were not written: the text log is slow", "lines", dropped)
		}
	}
}
