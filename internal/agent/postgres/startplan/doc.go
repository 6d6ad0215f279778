// Package startplan decides what a member does before its database runs: to wait,
// to hold what is on its volume, to initialise, copy or start it, and on which
// timeline. It is pure: what it decides from is an Observation.
package startplan
