// Package dataspace computes the disk space that data, a copy of it and its WAL
// take, and finds the WAL that nothing needs any more.
package dataspace
