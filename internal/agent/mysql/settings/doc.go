// Package settings computes the settings of a member of MySQL from what the user
// declared, from its memory and from what Holdfast relies on; it writes them as a
// file, and says how a running server gets others. It is pure.
package settings
