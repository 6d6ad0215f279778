// Package archive stores the WAL that PostgreSQL archives, in order and without
// gaps that are not recorded, and lets the database go on where the store takes
// nothing and the budget is used up.
package archive
