// Package datacopy makes the data on a member's volume: it initializes a database
// system, copies the primary's data beside its place, puts a complete copy there,
// and keeps the data that it replaces until the copy streams.
package datacopy
