// Package mysql is the operational knowledge of MySQL clusters: what objects one
// consists of, what state its group and its members are in, and which one step brings it
// closer to what is declared. Members elect their primary and come back after an outage
// by themselves (Group Replication): the operator asks for another primary, and reports.
package mysql

import (
	"context"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// Port that MySQL listens on, for clients and for its other members.
const Port = 3306

// Suffixes of the Services that clients connect to: a contract with users.
const (
	suffixRW = "-rw"
	suffixRO = "-ro"
)

// containerName of the database in a member's pod.
const containerName = "mysql"

// keyAppPassword is the application's password in <cluster>-internal.
const keyAppPassword = "app-password"

// kind is what a MySQLCluster's members are.
var kind = objects.Kind{
	GVK:       v1alpha1.GroupVersion.WithKind("MySQLCluster"),
	App:       "mysql",
	Container: containerName,
	Log:       "the binlog",
	User:      999,
	Ports:     []objects.Port{{Name: "mysql", Number: Port}},
	Lease:     "-members",
	Clients:   []string{suffixRW, suffixRO},
	Passwords: []string{keyAppPassword},
	Copier:    agentapi.CopierName,
}

// membersOf is the members of c.
func membersOf(c *v1alpha1.MySQLCluster) objects.Set {
	return objects.Set{Kind: kind, Cluster: c, Storage: c.Spec.Storage}
}

// MembersOf is the members of c, for those who forecast what becomes of them.
func MembersOf(c *v1alpha1.MySQLCluster) objects.Set { return membersOf(c) }

// Engine runs MySQL clusters.
type Engine struct {
	*memberset.MemberEngine
}

// Observe implements engine.Engine.
func (e *Engine) Observe(ctx context.Context, c *v1alpha1.MySQLCluster) (memberset.Observation, error) {
	return e.MemberEngine.Observe(ctx, membersOf(c))
}

// Act implements engine.Engine.
func (e *Engine) Act(ctx context.Context, c *v1alpha1.MySQLCluster, s engine.Step) error {
	return e.MemberEngine.Act(ctx, membersOf(c), s)
}
