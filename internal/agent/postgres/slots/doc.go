// Package slots keeps a replication slot for every other member on each member, so that
// whichever is promoted still has the WAL that the others need.
package slots
