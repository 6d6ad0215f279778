// Package postgres is the operational knowledge of PostgreSQL clusters: what
// objects one consists of, what state its members are in, and which one step
// brings it closer to what is declared.
package postgres

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/members"
)

// Port that PostgreSQL listens on.
const Port = 5432

// userID is the database's user and group in the upstream image.
const userID int64 = 999

// Suffixes of the names of a cluster's objects: a contract with users.
const (
	suffixMembers  = "-members"
	suffixRW       = "-rw"
	suffixRO       = "-ro"
	suffixConfig   = "-config"
	suffixApp      = "-app"
	suffixInternal = "-internal"
	suffixCA       = "-ca"
	suffixTLS      = "-tls"
	suffixPrimary  = "-primary"
)

// Values of the label app.kubernetes.io/component.
const (
	componentDatabase = "database"
	componentCA       = "ca"
	componentTLS      = "tls"
	componentInternal = "internal"
	componentApp      = "connection"
	componentConfig   = "configuration"
	componentAccess   = "access"
)

// keyAppPassword is the application's password in <cluster>-internal.
const keyAppPassword = "app-password"

// Members is where the engine learns what members say of themselves.
type Members interface {
	Watch(cluster types.NamespacedName, owner types.UID, t members.Target)
	Get(cluster types.NamespacedName) map[string]members.Observation
}

// Settings are the operator's own, the same for every cluster.
type Settings struct {
	// ImageRepository that version is looked up in, such as
	// docker.io/library/postgres.
	ImageRepository string
	// AgentImage holds the holdfast binary that is injected into members.
	AgentImage string
}

// Engine runs PostgreSQL clusters.
type Engine struct {
	Settings
	// Reader reads from the cache.
	Reader client.Reader
	// Writer writes to the API server; only Act uses it.
	Writer client.Client
	// Members answers what the members' agents say.
	Members Members
	// Clock is the time by which certificates are issued.
	Clock clock.PassiveClock

	vault vault
}

// Forget drops what is remembered of a cluster that is gone.
func (e *Engine) Forget(cluster types.NamespacedName) { e.vault.forget(cluster) }

// identity names what belongs to c.
func identity(c *v1alpha1.PostgresCluster) engine.Identity {
	return engine.Identity{
		Cluster: c,
		GVK:     v1alpha1.GroupVersion.WithKind("PostgresCluster"),
		App:     "postgresql",
	}
}

// podName is the name of the member with an ordinal.
func podName(c *v1alpha1.PostgresCluster, ordinal int) string {
	return c.Name + "-" + strconv.Itoa(ordinal)
}

// volumeName is the name of a member's PersistentVolumeClaim.
func volumeName(c *v1alpha1.PostgresCluster, ordinal int) string {
	return "data-" + podName(c, ordinal)
}

// databaseContainer finds the database's container in a pod.
func databaseContainer(spec corev1.PodSpec) *corev1.Container {
	for i := range spec.Containers {
		if spec.Containers[i].Name == containerName {
			return &spec.Containers[i]
		}
	}
	return nil
}
