// Package datavolume is what lies on the volume of a member of MySQL: the data
// directory, what a crash has left beside it, and the mark that is kept there. It
// decides only how to repair what a crash left.
package datavolume
