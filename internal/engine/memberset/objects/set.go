// Package objects is what stands in Kubernetes for the members of a cluster: how
// its objects are named and what they hold. It is pure: each function returns a
// fresh apply configuration.
package objects

import (
	"net"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/pki"
)

// Suffixes of the names of a cluster's objects: a contract with users.
const (
	SuffixMembers  = "-members"
	SuffixConfig   = "-config"
	SuffixApp      = "-app"
	SuffixInternal = v1alpha1.SuffixInternal
	SuffixCA       = v1alpha1.SuffixCA
	SuffixTLS      = "-tls"
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
	ComponentBackup   = "backup"
)

// Kind is how the clusters of one kind differ from those of another.
type Kind struct {
	// GVK of the cluster's object.
	GVK schema.GroupVersionKind
	// App is the value of app.kubernetes.io/name.
	App string
	// Container is the name of the database's container, and of the agent's
	// subcommand that runs there.
	Container string
	// Log is what messages call the log that members archive; empty where they do not.
	Log string
	// User is the database's user and group in the upstream image.
	User int64
	// Ports that the database listens on.
	Ports []Port
	// SharedMemory says that the database wants a /dev/shm of its own.
	SharedMemory bool
	// Lease is the suffix of the Lease that agents keep.
	Lease string
	// Clients are the suffixes of the Services that clients connect to.
	Clients []string
	// Passwords are the keys in <cluster>-internal that hold one each, for
	// members to read.
	Passwords []string
	// Application is the common name that applications log in by, with a
	// certificate of their own; empty where they do not.
	Application string
	// Copier is the common name that Jobs log in by which copy a member, with a
	// certificate of their own; empty where they have another one.
	Copier string
}

// Port of the database.
type Port struct {
	Name   string
	Number int32
	// Peers says that only members of the cluster may reach it.
	Peers bool
	// Operator says that the operator connects to it, too.
	Operator bool
}

// Set is the members of one cluster.
type Set struct {
	Kind
	// Cluster is the object that declares them.
	Cluster v1alpha1.Cluster
	// Storage of each.
	Storage v1alpha1.StorageSpec
}

// Key is the name of the cluster and its namespace.
func (s Set) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: s.Cluster.GetNamespace(), Name: s.Cluster.GetName()}
}

// Named is the name of an object of the cluster.
func (s Set) Named(suffix string) string { return s.Cluster.GetName() + suffix }

// Host is the name that a Service of the cluster is reached by.
func (s Set) Host(suffix string) string {
	return s.Named(suffix) + "." + s.Cluster.GetNamespace() + ".svc"
}

// PodName is the name of the member with an ordinal.
func (s Set) PodName(ordinal int) string {
	return s.Cluster.GetName() + "-" + strconv.Itoa(ordinal)
}

// PodHost is the name that other members know a pod by.
func (s Set) PodHost(pod string) string { return pod + "." + s.Host(SuffixMembers) }

// VolumeName is the name of a member's PersistentVolumeClaim.
func (s Set) VolumeName(ordinal int) string { return "data-" + s.PodName(ordinal) }

// HostPort is the address of a port of a host.
func HostPort(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// Selector selects the pods of the cluster's members.
func (s Set) Selector() map[string]string {
	return map[string]string{
		v1alpha1.LabelCluster: s.Cluster.GetName(),
		v1alpha1.LabelKind:    strings.ToLower(s.GVK.Kind),
	}
}

// RoleSelector selects the members in a role.
func (s Set) RoleSelector(role string) map[string]string {
	selector := s.Selector()
	selector[v1alpha1.LabelRole] = role
	return selector
}

// Labels are those of every owned object. Component says what it is for.
func (s Set) Labels(component string) map[string]string {
	labels := s.Selector()
	labels["app.kubernetes.io/name"] = s.App
	labels["app.kubernetes.io/instance"] = s.Cluster.GetName()
	labels["app.kubernetes.io/component"] = component
	labels[v1alpha1.LabelManagedBy] = v1alpha1.ManagedBy
	return labels
}

// owner is the controller reference that lets garbage collection take an
// object along with its cluster.
func (s Set) owner() *metav1ac.OwnerReferenceApplyConfiguration {
	return metav1ac.OwnerReference().
		WithAPIVersion(s.GVK.GroupVersion().String()).WithKind(s.GVK.Kind).
		WithName(s.Cluster.GetName()).WithUID(s.Cluster.GetUID()).
		WithController(true).WithBlockOwnerDeletion(true)
}

// DataOwners is owner for what holds data, credentials or trust: empty while
// the deletion policy retains it.
func (s Set) DataOwners() []*metav1ac.OwnerReferenceApplyConfiguration {
	if s.Cluster.Common().DeletionPolicy == v1alpha1.DeletionDelete {
		return []*metav1ac.OwnerReferenceApplyConfiguration{s.owner()}
	}
	return nil
}

// ClientLeaf is what the certificate of a client says, who only calls.
func ClientLeaf(commonName string) pki.LeafRequest {
	return pki.LeafRequest{CommonName: commonName, Usage: pki.UsageClient}
}

// Leaf is what the members' certificate says. All members share one.
func (s Set) Leaf() pki.LeafRequest {
	namespace := "." + s.Cluster.GetNamespace()
	var names []string
	add := func(host string) {
		names = append(names, host, host+namespace, host+namespace+".svc", host+namespace+".svc.cluster.local")
	}
	for _, suffix := range s.Clients {
		add(s.Named(suffix))
	}
	add("*." + s.Named(SuffixMembers))
	return pki.LeafRequest{CommonName: agentapi.MemberName, DNSNames: append(names, "localhost"), Usage: pki.UsageServerAndClient}
}

// ServerNames are what a certificate for clients must carry: the names that
// the connection Secret and the status give out, and those by which members
// find each other.
func (s Set) ServerNames() []string {
	var names []string
	for _, suffix := range s.Clients {
		names = append(names, s.Host(suffix))
	}
	return append(names, "*."+s.Host(SuffixMembers))
}
