// Package startplan decides what a member does before its database runs: to wait,
// to hold what is on its volume, to initialize, copy or start it. Each start is that of
// a standby; the election decides which member becomes the primary. It is pure: what it
// decides from is an Observation.
package startplan
