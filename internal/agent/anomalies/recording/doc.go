// Package recording has what was measured of a real server, in a file, and how that is made:
// under a load, with faults at known times. Only tests use it.
package recording
