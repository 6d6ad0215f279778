// Package datavolume is what lies on the volume of a member of PostgreSQL: the data
// directory, what a crash has left beside it, the marks and records that are kept
// there, and how far its WAL goes. It decides only how to repair what a crash left.
package datavolume
