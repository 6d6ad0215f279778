package agentapi

import (
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// Wire types of engines, as their agents name them.

type (
	// FirstDatabase is postgresapi's.
	FirstDatabase = postgresapi.FirstDatabase
	// OlderDataRequest is postgresapi's.
	OlderDataRequest = postgresapi.OlderDataRequest
	// Reset is postgresapi's.
	Reset = postgresapi.Reset
	// WALComparison is postgresapi's.
	WALComparison = postgresapi.WALComparison
	// WALPoint is postgresapi's.
	WALPoint = postgresapi.WALPoint

	// Group is etcdapi's.
	Group = etcdapi.Group
	// GroupMember is etcdapi's.
	GroupMember = etcdapi.GroupMember
	// JoinGrant is etcdapi's.
	JoinGrant = etcdapi.JoinGrant
	// Recovery is etcdapi's.
	Recovery = etcdapi.Recovery
)

// Values of these types.
const (
	ComparisonPath = postgresapi.ComparisonPath
	ComparisonMost = postgresapi.ComparisonMost
	DetailDatabase = postgresapi.DetailDatabase
	DetailOwner    = postgresapi.DetailOwner
	DetailAbsent   = postgresapi.DetailAbsent

	PendingTrust = etcdapi.PendingTrust
	PendingLimit = etcdapi.PendingLimit
	PendingLog   = etcdapi.PendingLog
	JoinNew      = etcdapi.JoinNew
	JoinExisting = etcdapi.JoinExisting
	SeedMember   = etcdapi.SeedMember
)
