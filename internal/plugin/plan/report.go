package plan

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-db/holdfast/internal/forecast"
)

// What becomes of an object.
const (
	ActionCreate = "create"
	ActionUpdate = "update"
	ActionDelete = "delete"
	ActionNone   = "no change"
)

// Exit codes of a plan: the most severe of its clusters decides.
const (
	ExitNothing = 0
	ExitChanges = 1
	ExitError   = 2
	ExitRefused = 3
	ExitAtRisk  = 4
)

// Report is a plan. As JSON, fields are added and never renamed.
type Report struct {
	// Clusters, and Databases and Backups, that the input or an inventory names.
	Clusters []Cluster `json:"clusters"`
	// Notes are about the whole plan.
	Notes []string `json:"notes,omitempty"`
	// Restarts, WritePauses and OneWay count steps of all clusters.
	Restarts    int `json:"restarts"`
	WritePauses int `json:"writePauses"`
	OneWay      int `json:"oneWay"`
	// Cost of a month of all clusters, by the user's prices; nil without them.
	Cost *Cost `json:"cost,omitempty"`
	// ExitCode of the command.
	ExitCode int `json:"exitCode"`
}

// Cluster is the plan of one cluster.
type Cluster struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Runs is the kind of the cluster that runs a Database; empty for others.
	Runs string `json:"runs,omitempty"`
	// Action is create, update, delete or no change.
	Action string `json:"action"`
	// By is what applies it; empty where there is no sign of a tool.
	By string `json:"by,omitempty"`
	// Fields that change, with what each does on its own.
	Fields []forecast.Change `json:"fields,omitempty"`
	// UnderWay are steps that the operator takes anyway, before those of the commit.
	UnderWay []forecast.Step `json:"underWay,omitempty"`
	// Steps of the commit, in order.
	Steps []forecast.Step `json:"steps,omitempty"`
	// Refused says what the API server or the operator does not take, or where the change
	// stalls. What stalls the cluster already is in Unknown.
	Refused []forecast.Fact `json:"refused,omitempty"`
	// Waits is what would still be under way when nothing moves any more.
	Waits []forecast.Fact `json:"waits,omitempty"`
	// Degraded is what would serve and not be as it should be.
	Degraded []forecast.Fact `json:"degraded,omitempty"`
	// Risks say which data the commit loses, and OneWay what a revert does not revert.
	Risks  []string `json:"risks,omitempty"`
	OneWay []string `json:"oneWay,omitempty"`
	// Quota is what becomes of the namespace's quotas.
	Quota []string `json:"quota,omitempty"`
	// Cost of a month, by the user's prices; nil without them.
	Cost *Cost `json:"cost,omitempty"`
	// Pauses are how long writes paused in the last events of the cluster; none where none
	// was measured.
	Pauses []Pause `json:"pauses,omitempty"`
	// Unknown is what no plan can tell.
	Unknown []string `json:"unknown,omitempty"`

	lead, reads string
}

// refuse adds why the change is not followed.
func (c *Cluster) refuse(reason, message string) {
	c.Refused = append(c.Refused, forecast.Fact{Reason: reason, Message: message})
}

// take adds what a forecast found.
func (c *Cluster) take(before, after forecast.Outcome) {
	c.UnderWay, c.Steps = before.Steps, after.Steps
	for _, f := range after.Stalled {
		if slices.Contains(before.Stalled, f) {
			c.Unknown = append(c.Unknown, fmt.Sprintf("what becomes of the cluster once this does not stall it any more, which the commit does not change: %s: %s", f.Reason, f.Message))
			continue
		}
		c.Refused = append(c.Refused, f)
	}
	if len(after.Stalled) == 0 {
		c.Waits = slices.DeleteFunc(after.Waiting, func(f forecast.Fact) bool { return slices.Contains(before.Waiting, f) })
	}
	for _, f := range after.Degraded {
		if !slices.Contains(before.Degraded, f) {
			c.Degraded = append(c.Degraded, f)
		}
	}
	c.weigh()
}

// weigh lists what of the steps loses data, and what is one-way.
func (c *Cluster) weigh() {
	for _, s := range c.Steps {
		if s.OneWay != "" && !slices.Contains(c.OneWay, s.OneWay) {
			c.OneWay = append(c.OneWay, s.OneWay)
		}
		if s.DataAtRisk {
			c.Risks = append(c.Risks, "the data on "+summarize(s.Volumes)+" is deleted")
		}
	}
	for _, f := range c.Fields {
		if text := riskyRequests[strings.Trim(strings.TrimPrefix(f.Path, ".metadata.annotations"), "[]")]; text != "" && f.To != nil {
			c.Risks = append(c.Risks, text)
		}
	}
}

// riskyRequests are the annotations by which a person accepts a loss.
var riskyRequests = map[string]string{
	"holdfast.dev/promote":                  "one member leads with what it has: what others have beyond that is lost",
	"holdfast.dev/continue-with-older-data": "the cluster continues with older data: what is newer is lost",
	"holdfast.dev/recover-quorum":           "the group continues without the members that do not answer: what only they have is lost",
	"holdfast.dev/discard-volume":           "a volume is discarded, with what only it has",
}

// Changes says whether anything happens to the cluster.
func (c *Cluster) Changes() bool {
	return c.Action == ActionCreate || c.Action == ActionDelete || len(c.Fields) > 0 || len(c.Steps) > 0
}

// exitCode of one cluster.
func (c *Cluster) exitCode(allowLoss bool) int {
	switch {
	case len(c.Risks) > 0 && !allowLoss:
		return ExitAtRisk
	case len(c.Refused) > 0 || len(c.Waits) > 0:
		return ExitRefused
	case c.Changes():
		return ExitChanges
	}
	return ExitNothing
}

// conclude counts, masks, and decides the exit code.
func (r *Report) conclude(allowLoss bool) {
	for i := range r.Clusters {
		c := &r.Clusters[i]
		for n := range c.Fields {
			maskChange(&c.Fields[n])
		}
		for _, s := range c.Steps {
			switch s.Kind {
			case forecast.MemberRestarts, forecast.RestartInPlace:
				r.Restarts++
			}
			if s.WritesPause {
				r.WritePauses++
			}
			if s.OneWay != "" {
				r.OneWay++
			}
		}
		r.ExitCode = max(r.ExitCode, c.exitCode(allowLoss))
	}
	r.Cost = addCosts(r.Clusters)
}

// secretName matches fields whose values a plan does not show.
var secretName = regexp.MustCompile(`(?i)(password|passwd|passphrase|secret|token|credential|api_?key|private_?key)`)

const masked = "***"

// maskChange hides the values of a field whose name speaks of a secret. The name of a Secret
// is none.
func maskChange(c *forecast.Change) {
	last := c.Path[strings.LastIndexAny(c.Path, ".[")+1:]
	if !secretName.MatchString(c.Path) || strings.Contains(c.Path, "SecretRef") || strings.Contains(c.Path, "PullSecrets") || last == "name" {
		return
	}
	if c.From != nil {
		c.From = masked
	}
	if c.To != nil {
		c.To = masked
	}
}

// summarize names things, and shortens those that differ in a last number that counts up:
// data-orders-0…2.
func summarize(names []string) string {
	if len(names) < 3 {
		return strings.Join(names, " and ")
	}
	prefix, first := cutNumber(names[0])
	for i, name := range names {
		p, n := cutNumber(name)
		if p != prefix || n != first+i || first < 0 {
			return strings.Join(names, ", ")
		}
	}
	return fmt.Sprintf("%s…%d", names[0], first+len(names)-1)
}

// cutNumber divides a name from the number at its end; -1 where it has none.
func cutNumber(name string) (string, int) {
	at := strings.LastIndex(name, "-") + 1
	n := -1
	if _, err := fmt.Sscanf(name[at:], "%d", &n); err != nil {
		return name, -1
	}
	return name[:at], n
}
