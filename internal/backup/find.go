package backup

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/store"
)

// ManifestName is the last part of a manifest's key.
const ManifestName = manifestName

// DataOf is the prefix of the parts that a manifest lists.
func DataOf(manifest string) string { return strings.TrimSuffix(manifest, manifestName) + dataPrefix }

// OpenStore opens a store with the credentials that the operator mounts.
func OpenStore(ctx context.Context, at agentapi.BackupStore) (*store.Store, error) {
	secret, err := store.ReadSecret(agentapi.StoreDir)
	if err != nil {
		return nil, err
	}
	return store.Open(ctx, store.Location{URL: at.URL, Volume: at.Volume, Size: at.Size, Endpoint: at.Endpoint, Region: at.Region, PathStyle: at.PathStyle}, secret)
}

// CheckWhole says why a backup is none although it has a manifest: an earlier
// removal, or an attempt that was abandoned, may have taken parts of it.
func CheckWhole(ctx context.Context, s *store.Store, manifest string, m Manifest) error {
	stored, err := s.List(ctx, DataOf(manifest))
	if err != nil {
		return err
	}
	if name := m.findMissing(DataOf(manifest), stored); name != "" {
		return &Permanent{fmt.Errorf("%s lists the part %s, which is not there, or not of its size", manifest, name)}
	}
	return nil
}

// findMissing names a part that is not among the objects below a prefix; empty for
// none.
func (m Manifest) findMissing(prefix string, stored []store.Object) string {
	sizes := map[string]int64{}
	for _, o := range stored {
		sizes[o.Key] = o.Size
	}
	for _, p := range m.Parts {
		if size, found := sizes[prefix+p.Name]; !found || size != p.Size {
			return p.Name
		}
	}
	return ""
}

// eraseObjects removes all that lies below a prefix, manifests first: whenever it is
// cut off, what is left is not taken for a backup.
func eraseObjects(ctx context.Context, s *store.Store, prefix string) error {
	return s.DeleteAll(ctx, prefix, isManifest)
}

func isManifest(key string) bool { return strings.HasSuffix(key, "/"+manifestName) }
