// Package postgres is the operational knowledge of PostgreSQL clusters: what
// objects one consists of, what state its members are in, and which one step
// brings it closer to what is declared.
package postgres

import (
	"context"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
)

// Port that PostgreSQL listens on.
const Port = 5432

// Suffixes of the Services that clients connect to: a contract with users.
const (
	suffixRW = "-rw"
	suffixRO = "-ro"
)

// containerName of the database in a member's pod.
const containerName = "postgres"

// keyAppPassword is the application's password in <cluster>-internal.
const keyAppPassword = "app-password"

// kind is what a PostgresCluster's members are.
var kind = memberset.Kind{
	GVK:          v1alpha1.GroupVersion.WithKind("PostgresCluster"),
	App:          "postgresql",
	Container:    containerName,
	User:         999,
	Ports:        []memberset.Port{{Name: "postgres", Number: Port}},
	SharedMemory: true,
	Lease:        "-primary",
	Clients:      []string{suffixRW, suffixRO},
	Passwords:    []string{keyAppPassword},
}

// set is the members of c.
func set(c *v1alpha1.PostgresCluster) memberset.Set {
	return memberset.Set{Kind: kind, Cluster: c, Storage: c.Spec.Storage}
}

// Engine runs PostgreSQL clusters.
type Engine struct {
	*memberset.Keeper
}

// Observe implements engine.Engine.
func (e *Engine) Observe(ctx context.Context, c *v1alpha1.PostgresCluster) (memberset.Observation, error) {
	return e.Keeper.Observe(ctx, set(c))
}

// Act implements engine.Engine.
func (e *Engine) Act(ctx context.Context, c *v1alpha1.PostgresCluster, s engine.Step) error {
	return e.Keeper.Act(ctx, set(c), s)
}
