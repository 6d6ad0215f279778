package agentapi

import (
	"fmt"
	"time"
)

// ArchiveSocket is where a member's agent takes what its database archives, in
// RunDir.
const ArchiveSocket = "archive.sock"

// ArchivePrefix is where the WAL of a cluster lies in a store.
func ArchivePrefix(namespace, cluster, uid string) string {
	return fmt.Sprintf("%s/%s/%s/wal/", namespace, cluster, uid)
}

// ArchiveConfig says where a cluster's log is archived.
type ArchiveConfig struct {
	Store BackupStore `json:"store"`
	// Prefix of the archive's objects; it ends with a slash.
	Prefix string `json:"prefix"`
	// Secret is the name of the one that holds the store's keys; empty where the
	// pod's own identity counts.
	Secret string `json:"secret,omitempty"`
	// Budget is how much of its volume, in bytes, a member may fill with log
	// that the store has not taken.
	Budget int64 `json:"budget"`
}

// ArchiveStatus is what a member that archives says of it.
type ArchiveStatus struct {
	// Last is the newest file that the store has taken, and LastTime when.
	Last     string    `json:"last,omitempty"`
	LastTime time.Time `json:"lastTime,omitzero"`
	// Position is how far the archive goes, in the form of a result's endPosition, where
	// that does not follow from Last.
	Position string `json:"position,omitempty"`
	// Waiting is how many files wait, and Oldest the minute since when the first
	// does.
	Waiting int       `json:"waiting,omitempty"`
	Oldest  time.Time `json:"oldest,omitzero"`
	// Late says that the first has waited for longer than ArchivePatience.
	Late bool `json:"late,omitempty"`
	// Error is why the store does not take them; empty where it does. It stays
	// as it was first while the reason is the same. Permanent says that waiting
	// does not fix it.
	Error     string `json:"error,omitempty"`
	Permanent bool   `json:"permanent,omitempty"`
	// Gap is the newest hole in the archive; nil for none.
	Gap *ArchiveGap `json:"gap,omitempty"`
	// GapCause is why WAL is not kept for the store, while Gap goes on.
	GapCause GapCause `json:"gapCause,omitempty"`
}

// GapCause is why WAL that the store has not taken is not kept for it.
type GapCause string

const (
	// GapBudget says that more waits than ArchiveConfig.Budget.
	GapBudget GapCause = "Budget"
	// GapDiskSpace says that the volume is short of disk space, which would stop the
	// database.
	GapDiskSpace GapCause = "DiskSpace"
)

// ArchivePatience is how long a file may wait before a condition reports it.
const ArchivePatience = 5 * time.Minute

// ArchiveGap is log that is missing from the archive for good: no moment
// between its two times can be restored.
type ArchiveGap struct {
	// From and To are the first and the last segment that are missing; To is
	// empty while it goes on.
	From string `json:"from"`
	To   string `json:"to"`
	// After is the newest segment before them, and Begun when the store took it;
	// empty where the archive holds nothing before them.
	After string    `json:"after,omitempty"`
	Begun time.Time `json:"begun,omitzero"`
	// Ended is when the archive went on; zero while it does not. A base backup
	// that is begun later is the next that can be gone on from.
	Ended time.Time `json:"ended,omitzero"`
}
