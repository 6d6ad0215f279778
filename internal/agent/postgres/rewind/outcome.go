package rewind

import (
	"regexp"
	"strings"
)

// Result is what became of a rewind.
type Result int

const (
	// Failed says that the reason may pass. It is tried again.
	Failed Result = iota + 1
	// Rewound says that the data is a standby's, and can follow the primary.
	Rewound
	// NotNeeded says that what the volume holds is a part of what the primary does.
	NotNeeded
	// NotPossible says that the primary's data has to be copied again.
	NotPossible
	// Unexplained says that no recorded failover explains the divergence. Nothing was changed,
	// and a person has to judge.
	Unexplained
	// NoSpace says that the WAL which would be dropped does not fit on the volume beside the
	// data. Nothing was changed.
	NoSpace
)

func (r Result) String() string {
	return map[Result]string{Failed: "Failed", Rewound: "Rewound", NotNeeded: "NotNeeded", NotPossible: "NotPossible", Unexplained: "Unexplained", NoSpace: "NoSpace"}[r]
}

// Outcome is a Result with its reason.
type Outcome struct {
	Result Result
	// Reason of a Result that is not Rewound.
	Reason string
	// Kept is the directory on the volume that keeps the WAL which was dropped; empty
	// where none was.
	Kept string
	// DiskSpace is how many bytes have to be free on the volume, with NoSpace.
	DiskSpace int64
}

// neverPossible are messages of pg_rewind after which another try fails as well. It runs
// with English messages.
var neverPossible = []string{
	"target server needs to use either data checksums or",
	"could not find common ancestor",
	"could not find previous WAL record",
	"could not read WAL record",
	"clusters are not compatible",
	"source and target clusters are from different systems",
	"target server must be shut down cleanly",
	"target data directory is corrupt",
}

// classifyFailure says what it means that pg_rewind failed, by what it wrote.
func classifyFailure(lines []string, err error) Outcome {
	last := err.Error()
	for _, line := range lines {
		if _, text, found := strings.Cut(line, "pg_rewind: error: "); found {
			last = text
		} else if _, text, found := strings.Cut(line, "pg_rewind: fatal: "); found {
			last = text
		}
	}
	for _, line := range lines {
		for _, message := range neverPossible {
			if strings.Contains(line, message) {
				return Outcome{Result: NotPossible, Reason: "pg_rewind: " + last}
			}
		}
	}
	return Outcome{Result: Failed, Reason: "pg_rewind: " + last}
}

// checkpointLine is where pg_rewind says which checkpoint a standby will begin at.
var checkpointLine = regexp.MustCompile(`rewinding from last common checkpoint at ([0-9A-F]+/[0-9A-F]+) on timeline ([0-9]+)`)
