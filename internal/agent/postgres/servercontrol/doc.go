// Package servercontrol does to a member's PostgreSQL what the election asks for: stop
// receiving WAL, follow a leader, become the primary of a term, change the quorum, shut
// down, be fenced. It holds the server that runs now, if one does, and says what a
// volume holds whose server does not run.
//
// One goroutine, Work, does one command at a time. A newer command ends the one before.
// Fence alone is done by its caller, at once.
package servercontrol
