// Package sizing says how much CPU and memory a member needs, from samples of what its
// container used. It is pure: samples and times come in, an estimate goes out.
package sizing
