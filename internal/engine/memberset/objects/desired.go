package objects

import (
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// MostMembers is the schema's limit of spec.replicas.
const MostMembers = 9

// Desired is what the objects are made from: the spec, where it can be
// followed, and what is there, where it cannot.
type Desired struct {
	// Asked is the image that the spec maps to, and Image the one to declare:
	// its pinned build once that is known. Pull is what was pulled until then,
	// where Asked names a minor version that is no tag.
	Asked, Image, Pull string
	// AgentImage is the image that members take their agents from.
	AgentImage string
	// EarlierTemplate says that the template stays of version 1, as its pods are.
	EarlierTemplate bool
	// Count of members.
	Count int
	// Volumes to apply, by ordinal, former members' too.
	Volumes []Volume
	// Template is the volume of the StatefulSet's claim template, which cannot
	// change.
	Template Volume
	// SystemIdentifier that is recorded; empty before bootstrap.
	SystemIdentifier string
	// Fresh says that nothing is there from before the cluster's object.
	Fresh bool
	// Data is what every volume says of its data, as annotations, for a cluster
	// that is created again over it.
	Data map[string]string
	// Backups is the volume that backups are kept on; nil for none. BackupsLater
	// says that it is made with the first of them.
	Backups      *Volume
	BackupsLater bool
	// Config is the ClusterConfig as the members get it.
	Config []byte
	// EarlierConfigs are hashes of what members had before the last step of tuning.
	EarlierConfigs []string
	Minted         SecretData
	Settings       Settings
}

// Volume is the claim of a member, or of a former one, as it should be.
type Volume struct {
	Ordinal int
	// Member says whether it holds a current member.
	Member bool
	Size   resource.Quantity
	// Capacity that it has by now; zero where there is none yet.
	Capacity resource.Quantity
	Class    string
	// Waits says that it grows when the rest of it is as desired.
	Waits bool
	// Ahead says that its data holds what the primary's does not.
	Diverged bool
	// Cluster is the UID of the cluster that it was made for; empty where it
	// does not say.
	Cluster string
	// Left is what spec.deletionPolicy said when its member was scaled away;
	// empty for a member's.
	Left v1alpha1.DeletionPolicy
}

// Settings are the operator's own, the same for every cluster of a kind.
type Settings struct {
	// ImageRepository that versions are looked up in, such as
	// docker.io/library/name.
	ImageRepository string
	// AgentImage is the operator's own image. It holds the holdfast binary that is
	// injected into members when their pods are created for a change.
	AgentImage string
	// OperatorNamespace is where the operator's pods are; empty where it has none, as
	// outside of the cluster.
	OperatorNamespace string
}

// SecretData is the data of the cluster's three Secrets that was made once and
// cannot be computed again. A nil map means that it does not exist.
type SecretData struct {
	CA, TLS, Internal map[string][]byte
	// Complete says whether everything that pods mount was made.
	Complete bool
}
