// Package postgres is the operational knowledge of PostgreSQL clusters: what
// objects one consists of, what state its members are in, and which one step
// brings it closer to what is declared.
package postgres

import (
	"context"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
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
var kind = objects.Kind{
	GVK:          v1alpha1.GroupVersion.WithKind("PostgresCluster"),
	App:          "postgresql",
	Container:    containerName,
	Log:          "WAL",
	User:         999,
	Ports:        []objects.Port{{Name: "postgres", Number: Port}},
	SharedMemory: true,
	Lease:        "-primary",
	Clients:      []string{suffixRW, suffixRO},
	Passwords:    []string{keyAppPassword},
}

// membersOf is the members of c.
func membersOf(c *v1alpha1.PostgresCluster) objects.Set {
	return objects.Set{Kind: kind, Cluster: c, Storage: c.Spec.Storage}
}

// MembersOf is the members of c, for those who forecast what becomes of them.
func MembersOf(c *v1alpha1.PostgresCluster) objects.Set { return membersOf(c) }

// Engine runs PostgreSQL clusters.
type Engine struct {
	*memberset.MemberEngine
}

// Observe implements engine.Engine.
func (e *Engine) Observe(ctx context.Context, c *v1alpha1.PostgresCluster) (memberset.Observation, error) {
	return e.MemberEngine.Observe(ctx, membersOf(c))
}

// Act implements engine.Engine.
func (e *Engine) Act(ctx context.Context, c *v1alpha1.PostgresCluster, s engine.Step) error {
	return e.MemberEngine.Act(ctx, membersOf(c), s)
}
