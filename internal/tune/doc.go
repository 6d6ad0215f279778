// Package tune knows which database settings to change, and when: it derives advice from
// what members measured, and tries one change at a time. It is pure: time is an argument,
// and all that it must remember is in a State, which its caller persists before a value
// takes effect.
//
// It never goes over what the spec declares, never touches a setting that durability rests
// on, never changes a setting by more than a factor of two at a time, and keeps what
// memory settings can take together under MemoryShare of the limit.
package tune
