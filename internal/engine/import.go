package engine

import "github.com/holdfast-db/holdfast/api/v1alpha1"

// Import is how the first database of a cluster is filled from another server,
// before clients are let in.
type Import struct {
	// Source that the spec declares; nil where it does no more.
	Source *v1alpha1.ImportSource
	// Living says that there is data, or was, that did not begin with an import.
	Living bool
	// Opened says that clients were let in.
	Opened bool
	// Leaving is a volume of an earlier cluster that is being deleted; empty for none.
	Leaving string
	// Serving says that a member takes writes and that the first database exists.
	Serving bool
	// Program of the Job that imports, the Image that holds the database's own
	// programs, and User whom the pod runs as.
	Program, Image string
	User           int64
	// Hosts of the members, one of which takes writes, and Port that they listen on.
	Hosts []string
	Port  int
	// Secret that applications connect with, whose owner the import logs in as.
	Secret string
}
