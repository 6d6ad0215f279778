package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Cluster is what every kind of database cluster has in common.
// +kubebuilder:object:generate=false
type Cluster interface {
	client.Object
	// Common returns the shared part of the spec.
	Common() *CommonSpec
	// CommonStatus returns the shared part of the status.
	CommonStatus() *CommonStatus
	// GetConditions returns the conditions.
	GetConditions() []metav1.Condition
	// SetConditions replaces the conditions.
	SetConditions([]metav1.Condition)
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

// GetConditions returns the conditions.
func (c *PostgresCluster) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions replaces the conditions.
func (c *PostgresCluster) SetConditions(l []metav1.Condition) { c.Status.Conditions = l }

// Common returns the shared part of the spec.
func (c *EtcdCluster) Common() *CommonSpec { return &c.Spec.CommonSpec }

// CommonStatus returns the shared part of the status.
func (c *EtcdCluster) CommonStatus() *CommonStatus { return &c.Status.CommonStatus }

// GetConditions returns the conditions.
func (c *EtcdCluster) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions replaces the conditions.
func (c *EtcdCluster) SetConditions(l []metav1.Condition) { c.Status.Conditions = l }

// Common returns the shared part of the spec.
func (c *MySQLCluster) Common() *CommonSpec { return &c.Spec.CommonSpec }

// CommonStatus returns the shared part of the status.
func (c *MySQLCluster) CommonStatus() *CommonStatus { return &c.Status.CommonStatus }

// GetConditions returns the conditions.
func (c *MySQLCluster) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions replaces the conditions.
func (c *MySQLCluster) SetConditions(l []metav1.Condition) { c.Status.Conditions = l }
