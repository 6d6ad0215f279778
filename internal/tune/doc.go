// Package tune knows which database settings and resources to change: it derives
// recommendations from what members measured. It is pure: time is an argument, and what it must remember stands
// in the recommendations that were recorded before.
//
// It never recommends a setting that durability rests on, never more than twice the current
// value, and keeps what memory settings can take together under MemoryShare of the limit.
package tune
