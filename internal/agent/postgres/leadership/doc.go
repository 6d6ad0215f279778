// Package leadership is a member's part in leading the cluster: the Lease as this
// process claimed it, what the other members hold, what the volume records of its
// time as a primary's, and the timelines that it reserves and begins.
package leadership
