// Package gitops tests what Git tools make of this tree: what kustomize builds
// from the components and overlays, and what a real API server says of it.
package gitops
