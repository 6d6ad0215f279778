// Package recovery recovers a base backup before it becomes the data of a
// cluster, and checks that all of its data can be read. Restores use it.
package recovery
