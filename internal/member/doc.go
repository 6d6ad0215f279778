// Package member is the process beside the database, as far as it knows no
// engine: who the member is, what it says of itself and to whom, the lock on
// its volume, the Lease of the primary, the role label of its pod, and the
// processes that it looks after. Guard is the process above it.
//
// Losing the API server is not losing the database: whatever needs the API
// server is tried again in the background while the database goes on. A
// primary that cannot renew its Lease goes on too, because in this version no
// other member may take over; the fence by time comes with fail-over.
package member
