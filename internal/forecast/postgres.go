package forecast

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/forecast/settings"
)

// newIdentifier is the system identifier of a database system that begins in a world.
const newIdentifier = "7300000000000000001"

// PostgresAgents elect a primary by a Lease. Nothing fails: each of them has all WAL.
type PostgresAgents struct {
	// leads is the member that leads, or that led last; memberset.NoLeader before.
	leads int
	lease postgresapi.LeaseState
	// silent says that agents are of a version that reports neither Lease nor election.
	silent bool
	// begun says that there is data.
	begun bool
}

// NewPostgresAgents are those of a cluster, with the primary that its status names.
func NewPostgresAgents(c v1alpha1.Cluster) *PostgresAgents {
	st := c.CommonStatus()
	a := &PostgresAgents{leads: memberset.NoLeader, begun: st.SystemIdentifier != ""}
	a.silent = a.begun && st.Election == nil
	name := st.Primary
	if e := st.Election; e != nil {
		a.lease.Term = e.Term
		if name == "" {
			name = e.Leader
		}
	}
	if n, err := strconv.Atoi(strings.TrimPrefix(name, c.GetName()+"-")); err == nil {
		a.leads, a.lease.HolderPod = n, name
	}
	return a
}

// FindLeader is the member that holds the Lease and runs.
func (a *PostgresAgents) FindLeader(w *World) int {
	pod := w.Observed.Pods[max(0, a.leads)]
	if a.leads == memberset.NoLeader || pod == nil || a.lease.HolderUID != string(pod.UID) {
		return memberset.NoLeader
	}
	return a.leads
}

// ReportStatus implements Agents.
func (a *PostgresAgents) ReportStatus(w *World, ordinal int) agentapi.Status {
	a.elect(w)
	s := w.BaseStatus(ordinal)
	s.TLSHash = agentapi.HashTLS(w.Observed.Minted.TLS)
	leader := a.FindLeader(w)
	switch {
	case w.Reports(ordinal) < 2:
	case ordinal == leader:
		a.lead(w, &s)
	case leader != memberset.NoLeader:
		s.Role, s.State, s.Serving = v1alpha1.RoleReplica, agentapi.StateStreaming, true
	default:
		s.State = agentapi.StateWaiting
	}
	if s.Serving {
		a.takeParameters(w, ordinal, leader, &s)
	}
	if !a.silent {
		s.Engine = postgresapi.ReplicationStatus{Lease: new(a.lease), Election: a.describeElection(w, ordinal, leader)}
	}
	return s
}

// lead has a member report as the primary does.
func (a *PostgresAgents) lead(w *World, s *agentapi.Status) {
	s.Role, s.State, s.Serving, s.Flushed = v1alpha1.RolePrimary, agentapi.StateRunning, true, true
	if s.SystemIdentifier == "" {
		s.SystemIdentifier = newIdentifier
	}
	a.begun = true
	config := w.ReadConfig()
	if config.Database != "" {
		s.Details = map[string]string{postgresapi.DetailDatabase: config.Database, postgresapi.DetailOwner: config.Owner}
	}
	if config.Archive != nil {
		s.Archive = w.archiveStatus()
	}
}

// takeParameters has a member report which parameters wait, and for what.
func (a *PostgresAgents) takeParameters(w *World, ordinal, leader int, s *agentapi.Status) {
	catalogue := a.catalogue(w)
	declared := w.ReadConfig().Parameters
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		if fault := catalogue.FindFault(name, declared[name]); fault != "" {
			s.ConfigError = fault
			return
		}
	}
	pending := w.pendingParameters(ordinal, catalogue.EffectOf)
	if lowered := w.listLowered(ordinal, pending); ordinal != leader && len(w.listLowered(leader, lowered)) > 0 {
		s.WaitsForPrimary = lowered
		pending = slices.DeleteFunc(pending, func(name string) bool { return slices.Contains(lowered, name) })
	}
	if len(pending) > 0 {
		s.PendingRestart = pending
	}
}

// catalogue of the version that runs.
func (a *PostgresAgents) catalogue(w *World) settings.Catalogue {
	return settings.ForPostgres(majorOf(w.Cluster.CommonStatus().Version))
}

// EffectOf implements Agents.
func (a *PostgresAgents) EffectOf(w *World, parameter string) settings.Effect {
	return a.catalogue(w).EffectOf(parameter)
}

// majorOf a version such as 17.4; 0 where it is none.
func majorOf(version string) int {
	head, _, _ := strings.Cut(version, ".")
	major, err := strconv.Atoi(head)
	if err != nil {
		return 0
	}
	return major
}

// describeElection is a member's part in the election.
func (a *PostgresAgents) describeElection(w *World, ordinal, leader int) *postgresapi.ElectionState {
	e := &postgresapi.ElectionState{Volume: w.volumeID(ordinal), Phase: "Standby"}
	running := w.listReporting()
	for _, n := range running {
		e.MayLead = append(e.MayLead, w.volumeID(n))
	}
	slices.Sort(e.MayLead)
	if ordinal != leader {
		return e
	}
	e.Phase = "Leading"
	for _, n := range running {
		if n != leader {
			e.Streaming = append(e.Streaming, w.Set().PodName(n))
		}
	}
	if s := w.ReadConfig().Synchronous; s != nil {
		e.Quorum, e.Write = slices.Clone(e.MayLead), min(s.Number, len(e.Streaming))+1
	}
	return e
}

// volumeID names a member's volume, as its agent does.
func (w *World) volumeID(ordinal int) string {
	if v := w.Observed.Volumes[ordinal]; v != nil {
		return string(v.UID)
	}
	return ""
}

// elect has a member claim the Lease that none holds: the one that led last if it runs, or
// the first that may. Before there is data that is the bootstrap member.
func (a *PostgresAgents) elect(w *World) {
	if a.FindLeader(w) != memberset.NoLeader {
		return
	}
	candidates := w.listReporting()
	if !a.begun {
		candidates = slices.DeleteFunc(candidates, func(n int) bool { return n != memberset.BootstrapOrdinal })
	}
	if i := slices.Index(candidates, a.leads); i >= 0 {
		candidates = candidates[i:]
	}
	never := w.ReadConfig().NoFailover
	for _, n := range candidates {
		if !slices.Contains(never, w.Set().PodName(n)) || n == a.leads {
			a.claim(w, n)
			return
		}
	}
}

// claim has a member hold the Lease in the next term.
func (a *PostgresAgents) claim(w *World, ordinal int) {
	pod := w.Observed.Pods[ordinal]
	a.leads = ordinal
	a.lease = postgresapi.LeaseState{HolderUID: string(pod.UID), HolderPod: pod.Name, Term: a.lease.Term + 1}
}

// EndPod has another member lead where the pod was the primary's: it stops in order, and
// all others have received its WAL.
func (a *PostgresAgents) EndPod(w *World, ordinal int) {
	if ordinal != a.leads {
		return
	}
	a.lease.HolderUID = ""
	a.elect(w)
}

// FollowRequests implements Agents: a switchover that is requested, and a restart of the
// primary in its term, for settings that no standby may have lower.
func (a *PostgresAgents) FollowRequests(w *World) bool {
	leader := a.FindLeader(w)
	if leader == memberset.NoLeader || w.Observed.Member(leader) == nil || !w.Observed.Member(leader).Serving {
		return false
	}
	pending := w.pendingParameters(leader, a.catalogue(w).EffectOf)
	if lowered := w.listLowered(leader, pending); len(lowered) > 0 && w.Observed.Member(leader).ConfigError == "" {
		w.lifeOf(leader).parameters = maps.Clone(w.ReadConfig().Parameters)
		w.record(Step{Kind: RestartInPlace, Members: []string{w.Set().PodName(leader)}, Settings: pending, WritesPause: true,
			Message: "no standby may have " + strings.Join(lowered, ", ") + " lower than its primary, so the primary restarts first"})
		return true
	}
	r := w.ReadConfig().Switchover
	if r == nil || r.Term != a.lease.Term {
		return false
	}
	target := w.ordinalOfPod(r.Target)
	if r.Target == "" {
		target = a.otherThan(w, leader)
	}
	if target == memberset.NoLeader || target == leader || w.Reports(target) < 2 {
		return false
	}
	a.claim(w, target)
	w.record(Step{Kind: Switchover, Members: []string{w.Set().PodName(leader), w.Set().PodName(target)}, WritesPause: true, Successor: true})
	return true
}

// otherThan is a member that runs beside one; memberset.NoLeader for none.
func (a *PostgresAgents) otherThan(w *World, ordinal int) int {
	for _, n := range w.listReporting() {
		if n != ordinal {
			return n
		}
	}
	return memberset.NoLeader
}

// CarryOut implements Agents: PostgreSQL has no steps of its own.
func (*PostgresAgents) CarryOut(*World, engine.Step) bool { return false }
