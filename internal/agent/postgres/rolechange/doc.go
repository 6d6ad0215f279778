// Package rolechange changes the role of a PostgreSQL server while it runs: it stops
// receiving WAL, is promoted to exactly a reserved timeline, follows another primary,
// changes its quorum, and shuts down with a known end. It decides nothing: which of
// these is due is the election's part.
//
// A timeline is reserved when the lease names it, and reached when the server writes
// WAL to it. Right after a promotion pg_control still names the timeline of the last
// checkpoint; the position that WAL is inserted at has the one that is reached.
package rolechange
