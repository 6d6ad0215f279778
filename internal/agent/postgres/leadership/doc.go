// Package leadership connects a member's election with its cluster: which pod runs on
// which volume, which volumes may lead and acknowledge, what the operator requests, and
// what is reported. It also makes the first record of the Lease, by which a cluster
// begins to elect.
package leadership
