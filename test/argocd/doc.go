// Package argocd asks Argo CD's own code what it makes of this tree: health and
// actions by its Lua machine, sync status by its comparison, and the
// walk-through of docs/guides/argocd.md by its application controller. It is a module
// of its own, since Argo CD pins another version of Kubernetes' libraries.
package argocd
