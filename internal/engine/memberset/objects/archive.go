package objects

import (
	"strings"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// Archive is where the members' log goes; nil for nowhere.
func (s Set) Archive() *agentapi.ArchiveConfig {
	declared := s.Cluster.Common().Backup
	if !declared.ArchivesWAL() {
		return nil
	}
	to := declared.Destination
	at := &agentapi.ArchiveConfig{
		Store:  agentapi.BackupStore{URL: strings.TrimRight(to.URL, "/"), Endpoint: to.Endpoint, Region: to.Region, PathStyle: to.PathStyle},
		Prefix: agentapi.ArchivePrefix(s.Key().Namespace, s.Key().Name, string(s.Cluster.GetUID())),
		Secret: s.storeSecret(), Budget: s.Storage.Size.Value() / 5,
	}
	if budget := declared.WALBudget; budget != nil {
		at.Budget = budget.Value()
	}
	return at
}

// storeIdentity is what gives members that archive an identity at the store. A
// cloud may hand it to new pods only.
func (s Set) storeIdentity() map[string]string {
	if !s.Cluster.Common().Backup.ArchivesWAL() {
		return nil
	}
	return s.Cluster.Common().ServiceAccount.Annotations
}

// storeSecret holds the keys that members archive with; empty where they do
// not, or have an identity of their own.
func (s Set) storeSecret() string {
	declared := s.Cluster.Common().Backup
	if !declared.ArchivesWAL() || declared.Destination.CredentialsSecretRef == nil {
		return ""
	}
	return declared.Destination.CredentialsSecretRef.Name
}
