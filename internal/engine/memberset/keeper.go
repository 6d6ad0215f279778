package memberset

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/internal/members"
	"github.com/holdfast-db/holdfast/internal/pki"
)

// Settings are the operator's own, the same for every cluster of a kind.
type Settings struct {
	// ImageRepository that versions are looked up in, such as
	// docker.io/library/name.
	ImageRepository string
	// AgentImage holds the holdfast binary that is injected into members.
	AgentImage string
}

// Members is where an engine learns what members say of themselves.
type Members interface {
	Watch(cluster types.NamespacedName, owner types.UID, t members.Target)
	Get(cluster types.NamespacedName) map[string]members.Observation
}

// Keeper observes the members of all clusters of one kind, and does to them
// what is the same for every kind.
type Keeper struct {
	Settings
	// Reader reads from the cache.
	Reader client.Reader
	// Writer writes to the API server, which only Act does, and reads from it.
	// Nil where only what is declared is wanted.
	Writer client.Client
	// Members answers what the members' agents say.
	Members Members
	// Secrets answers what Secrets of users hold.
	Secrets Secrets
	// Clock is the time by which certificates are issued.
	Clock clock.PassiveClock

	vault   vault
	endings endings
	claims  claims
	pods    podMemory
}

// Forget drops what is remembered of a cluster that is gone.
func (k *Keeper) Forget(cluster types.NamespacedName) {
	k.claims.forget(k.vault.uid(cluster))
	k.vault.forget(cluster)
	k.endings.forget(cluster)
	k.pods.forget(cluster)
}

// Credentials are the operator's own for a cluster's databases, and whom it
// trusts there: clients may be shown another certificate than members are. None
// while there is no CA.
func (k *Keeper) Credentials(s Set) (members.ClientTLS, bool) {
	now := k.Clock.Now()
	m := k.vault.observe(s, nil, now)
	credentials, ok := k.vault.client(s, m, now)
	credentials.CAPEM = pki.Bundle(credentials.CAPEM, pki.ClientRoots(m.TLS))
	return credentials, ok
}
