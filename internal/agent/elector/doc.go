// Package elector runs one member's part in the election of PostgreSQL's primary. It
// owns the only election.State of the member, passes inputs to it, and does its
// effects: on the Lease, the volume, the guard, the server and the other members.
//
// One goroutine, the loop, has the state. It never waits: not for the API server, the
// volume, another member, the server or the text log. What may take time runs beside it
// and posts its outcome to the mailbox. So a volume that hangs delays no renewal, no
// extension of the guard and no fence. The outbox says how effects wait for the volume.
package elector
