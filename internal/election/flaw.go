package election

// The rules that a test can break. No value but zero is used outside tests.
const (
	flawNone flaw = iota
	flawNoFence
	flawDeadlineFromAnswer
	flawOldLease
	flawNoQuorum
	flawLessWAL
	flawConfirmOne
)
