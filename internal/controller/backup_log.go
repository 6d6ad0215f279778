package controller

import (
	"net/url"
	"strings"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/memberapi"
)

// logOf says which of the archived log stays when a backup goes: all that any
// other good one of the same cluster in the same store may be gone on with. Even
// one that is about to go counts until it has gone, and one behind another
// endpoint, which may be another word for the same. Where none is left, or one
// does not say where it begins, all of the log stays.
func logOf(b *v1alpha1.Backup, all []*v1alpha1.Backup) *memberapi.LogTask {
	at := b.Status.Location
	if at == nil || at.ClaimName != "" || b.Status.ClusterUID == "" {
		return nil
	}
	log := &memberapi.LogTask{Prefix: memberapi.ArchivePrefix(b.Namespace, b.Spec.ClusterRef.Name, b.Status.ClusterUID)}
	for _, other := range all {
		to := other.Status.Location
		if other.UID == b.UID || !other.Succeeded() || to == nil || other.Status.ClusterUID != b.Status.ClusterUID ||
			!sameObjects(to.URL, at.URL) {
			continue
		}
		if other.Status.Result.StartPosition == "" {
			return nil
		}
		log.Kept = append(log.Kept, other.Status.Result.StartPosition)
	}
	if len(log.Kept) == 0 {
		return nil
	}
	return log
}

// sameObjects says whether two destinations mean the same bucket and prefix,
// however they are reached.
func sameObjects(a, b string) bool {
	x, err := url.Parse(a)
	y, wrong := url.Parse(b)
	if err != nil || wrong != nil {
		return a == b
	}
	return x.Scheme == y.Scheme && x.Host == y.Host && strings.Trim(x.Path, "/") == strings.Trim(y.Path, "/")
}
