// Package replica judges a replica by what it observes of its primary and of itself:
// how far it is behind, whether the primary is down or only out of reach, and
// whether the replica may serve reads. It is pure: time is an argument.
package replica
