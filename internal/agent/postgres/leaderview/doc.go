// Package leaderview is what a member knows of the member that leads: which pod it
// is, by whom that is said, and at which address it is to be found. Everything that
// needs a primary (streaming, cloning, comparison, archiving) asks one View.
package leaderview
