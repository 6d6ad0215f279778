// Package archiver stores the binlogs of a group, which its primary does, and purges what a
// member needs no more. No file is purged that the archive lacks, unless the budget is used
// up or the volume is short of disk space: the database goes on then, and the archive
// has a gap.
//
// What is stored follows from the archive alone: a file is stored if its end is beyond what
// the archive reaches. So a new primary goes on where the one before ended, from its own
// binlogs, and an agent that was killed repeats nothing but the file it was at.
package archiver
