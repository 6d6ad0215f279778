package backups

import (
	"net/url"
	"strings"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// RetainArchive says which archived WAL stays when a backup goes: all that any other
// good backup of the same cluster in the same store needs. A backup that is about
// to go counts until it has gone. So does one behind another endpoint, which may be
// another name of the same store. Without any other backup, or where one does not
// say where it begins, all of the archive stays.
func RetainArchive(b *v1alpha1.Backup, all []*v1alpha1.Backup) *agentapi.LogTask {
	at := b.Status.Location
	if at == nil || at.ClaimName != "" || b.Status.ClusterUID == "" {
		return nil
	}
	log := &agentapi.LogTask{Prefix: agentapi.ArchivePrefix(b.Namespace, b.Spec.ClusterRef.Name, b.Status.ClusterUID)}
	for _, other := range all {
		to := other.Status.Location
		if other.UID == b.UID || !other.HasSucceeded() || to == nil || other.Status.ClusterUID != b.Status.ClusterUID ||
			!isSameLocation(to.URL, at.URL) {
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

// isSameLocation says whether two destinations mean the same bucket and prefix,
// however they are reached.
func isSameLocation(a, b string) bool {
	x, err := url.Parse(a)
	y, wrong := url.Parse(b)
	if err != nil || wrong != nil {
		return a == b
	}
	return x.Scheme == y.Scheme && x.Host == y.Host && strings.Trim(x.Path, "/") == strings.Trim(y.Path, "/")
}
