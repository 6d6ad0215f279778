package agentapi

// DrillReport is what the pod of a restore drill leaves as its termination
// message, as JSON: it needs no right for that.
type DrillReport struct {
	// Backup that was restored, and Size of its data in bytes; empty where none
	// was.
	Backup string `json:"backup,omitempty"`
	Size   int64  `json:"size,omitempty"`
	// Checked says what was found to be good.
	Checked []string `json:"checked,omitempty"`
	// Error that ended the drill; empty where it has passed.
	Error string `json:"error,omitempty"`
}

// TerminationLog is where a container leaves its last words, of which the
// kubelet takes TerminationLimit bytes.
const (
	TerminationLog   = "/dev/termination-log"
	TerminationLimit = 4096
)
