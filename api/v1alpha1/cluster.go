package v1alpha1

import "sigs.k8s.io/controller-runtime/pkg/client"

// Cluster is what every kind of database cluster has in common.
// +kubebuilder:object:generate=false
type Cluster interface {
	client.Object
	// Common returns the shared part of the spec.
	Common() *CommonSpec
	// CommonStatus returns the shared part of the status.
	CommonStatus() *CommonStatus
}

// Common returns the shared part of the spec.
func (c *PostgresCluster) Common() *CommonSpec { return &c.Spec.CommonSpec }

// CommonStatus returns the shared part of the status.
func (c *PostgresCluster) CommonStatus() *CommonStatus { return &c.Status.CommonStatus }

// DesiredReplicas is the declared number of members; the schema's default
// where none is declared.
func (s *CommonSpec) DesiredReplicas() int {
	if s.Replicas == nil {
		return 1
	}
	return int(*s.Replicas)
}
