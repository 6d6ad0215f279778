// Package divergence finds out whether a member's data holds what its primary does
// not: by positions, by the history of timelines, and by the content of the WAL. It
// marks data that does, which is then neither started nor copied over.
package divergence
