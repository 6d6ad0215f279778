package condition

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// reasonsOfEvents are those of events alone: no condition has them.
var reasonsOfEvents = []string{
	v1alpha1.ReasonBackupRetired, v1alpha1.ReasonBackupSkipped, v1alpha1.ReasonDataRetained,
	v1alpha1.ReasonDrillStarted, v1alpha1.ReasonDrillPassed, v1alpha1.ReasonDrillSkipped, v1alpha1.ReasonRestored, v1alpha1.ReasonImported,
	v1alpha1.ReasonDriftReverted, v1alpha1.ReasonDriftReported, v1alpha1.ReasonStepStarted, v1alpha1.ReasonStepFailed,
	v1alpha1.ReasonMemberState, v1alpha1.ReasonPrimaryChanged, v1alpha1.ReasonFenced, v1alpha1.ReasonRejoined, v1alpha1.ReasonMemberHeld, v1alpha1.ReasonAgentsOutdated, v1alpha1.ReasonMemberUnusual, v1alpha1.ReasonVolumeGrows, v1alpha1.ReasonVolumeKept,
	v1alpha1.ReasonRequestAccepted, v1alpha1.ReasonRequestCompleted,
	v1alpha1.ReasonTuningTried, v1alpha1.ReasonTuningKept, v1alpha1.ReasonTuningReleased, v1alpha1.ReasonTuningRolledBack, v1alpha1.ReasonTuningQuarantined,
}

// apiConstants are the string constants of api/v1alpha1 with a prefix: names and
// values.
func apiConstants(t *testing.T, prefix string) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../api/v1alpha1/conditions.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	constants := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, is := n.(*ast.ValueSpec); is && strings.HasPrefix(spec.Names[0].Name, prefix) {
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			constants[spec.Names[0].Name] = value
		}
		return true
	})
	return constants
}

// Each reason of the API has a place in the ranking of a condition, or is one of
// events alone; each place is that of a reason, and has it once.
func TestEveryReasonHasARank(t *testing.T) {
	ranked, values := map[string]bool{}, map[string]bool{}
	for _, reason := range apiConstants(t, "Reason") {
		values[reason] = true
	}
	types := slices.Sorted(maps.Values(apiConstants(t, "Condition")))
	if diff := cmp.Diff(types, slices.Sorted(maps.Keys(rankings))); diff != "" {
		t.Errorf("conditions with a ranking (-want +got):\n%s", diff)
	}
	for conditionType, groups := range rankings {
		places := map[string]bool{}
		for _, group := range groups {
			if group.Title == "" || len(group.Reasons) == 0 {
				t.Errorf("%s: group %q has the reasons %v", conditionType, group.Title, group.Reasons)
			}
			for _, reason := range group.Reasons {
				if !values[reason] {
					t.Errorf("%s: %s has a rank, and api/v1alpha1 has no such reason", conditionType, reason)
				}
				if places[reason] {
					t.Errorf("%s: %s has two places", conditionType, reason)
				}
				places[reason], ranked[reason] = true, true
			}
		}
	}
	for reason := range values {
		if events := slices.Contains(reasonsOfEvents, reason); ranked[reason] == events {
			t.Errorf("%s: ranked %v, of events alone %v: give it one place in rankings, or name it among reasonsOfEvents", reason, ranked[reason], events)
		}
	}
}

// reported are the ways in which the sources say a condition type and a reason
// beside each other. The type stands in the first group, where it is not implied.
var reported = []struct {
	pattern *regexp.Regexp
	implied string
}{
	{regexp.MustCompile(`v1alpha1\.(Condition\w+), (?:"\w+", |Status: metav1\.\w+, Reason: )?v1alpha1\.(Reason\w+)`), ""},
	{regexp.MustCompile(`(?:[sS]talled|StalledFact|stuck)(\()v1alpha1\.(Reason\w+)`), "ConditionStalled"},
	{regexp.MustCompile(`AddAvailable(\()(?:true|false), v1alpha1\.(Reason\w+)`), "ConditionAvailable"},
	{regexp.MustCompile(`(?:NotBackedUp|reportFault)(\()v1alpha1\.(Reason\w+)`), "ConditionBackedUp"},
	{regexp.MustCompile(`Standing(\{)v1alpha1\.(Reason\w+)`), "ConditionReconciling"},
}

// What the operator reports of a condition has a rank in that very condition.
func TestEveryReportedReasonHasARank(t *testing.T) {
	types, reasons := apiConstants(t, "Condition"), apiConstants(t, "Reason")
	found := 0
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == "plugin":
			return fs.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, way := range reported {
			for _, match := range way.pattern.FindAllStringSubmatch(string(text), -1) {
				conditionType, reason := types[match[1]], reasons[match[2]]
				if way.implied != "" {
					conditionType = types[way.implied]
				}
				if found++; !HasRank(conditionType, reason) {
					t.Errorf("%s reports %s/%s, which has no rank", path, conditionType, reason)
				}
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 100 {
		t.Errorf("only %d reports were found: the patterns no longer match the sources", found)
	}
}

// What was under way becomes Degraded once the generation was rolled out.
func TestEveryStepHasARankAsARepair(t *testing.T) {
	c := rolledOut(cluster(2))
	for _, group := range slices.Concat(steps, lastSteps) {
		for _, reason := range group.Reasons {
			Resolve(c, Input{Facts: []Fact{serving, fact(v1alpha1.ConditionReconciling, reason)}})
			if got := conditions.GetReason(c, v1alpha1.ConditionDegraded); got != reason || !HasRank(v1alpha1.ConditionDegraded, reason) {
				t.Errorf("%s: Degraded/%s, ranked %v", reason, got, HasRank(v1alpha1.ConditionDegraded, reason))
			}
		}
	}
}

// Which part of the operator reports first changes nothing.
func TestTheHighestRankDecides(t *testing.T) {
	of := func(conditionType, reason, message string, ordinal int) Fact {
		return Fact{Type: conditionType, Status: metav1.ConditionTrue, Reason: reason, Message: message, Ordinal: ordinal}
	}
	for _, tc := range []struct {
		name      string
		condition string
		facts     []Fact
		want      string
	}{
		{"data before a schedule", v1alpha1.ConditionStalled, []Fact{
			of(v1alpha1.ConditionStalled, v1alpha1.ReasonDataStale, "older data", 0),
			of(v1alpha1.ConditionStalled, v1alpha1.ReasonNameConflict, "a name is taken", 0),
			of(v1alpha1.ConditionStalled, v1alpha1.ReasonInvalidSchedule, "31 February", 0),
		}, "DataStale: older data; a name is taken; 31 February"},
		{"the group before its members", v1alpha1.ConditionStalled, []Fact{
			of(v1alpha1.ConditionStalled, v1alpha1.ReasonQuorumLost, "most have lost their data", 0),
			of(v1alpha1.ConditionStalled, v1alpha1.ReasonDataMissing, "member 1 is empty", 1),
			of(v1alpha1.ConditionStalled, v1alpha1.ReasonDataMissing, "member 2 is empty", 2),
		}, "QuorumLost: most have lost their data; member 1 is empty; member 2 is empty"},
		{"a full volume before an archive that fails", v1alpha1.ConditionDegraded, []Fact{
			of(v1alpha1.ConditionDegraded, v1alpha1.ReasonVolumeFull, "volume 2 is full", 2),
			of(v1alpha1.ConditionDegraded, v1alpha1.ReasonMemberDown, "member 0 is down", 0),
			of(v1alpha1.ConditionDegraded, v1alpha1.ReasonMemberDown, "member 1 is down", 1),
			of(v1alpha1.ConditionDegraded, v1alpha1.ReasonArchiveFailing, "the store is away", 0),
			of(v1alpha1.ConditionDegraded, v1alpha1.ReasonMixedVersions, "two builds", 0),
		}, "VolumeFull: volume 2 is full; member 0 is down; member 1 is down; the store is away; two builds"},
		{"the change before the stages of its members, and what waits last", v1alpha1.ConditionReconciling, []Fact{
			of(v1alpha1.ConditionReconciling, v1alpha1.ReasonUpgrading, "member 2 is to be replaced", 2),
			of(v1alpha1.ConditionReconciling, v1alpha1.ReasonSyncing, "member 1 copies", 1),
			of(v1alpha1.ConditionReconciling, v1alpha1.ReasonScalingUp, "member 3 is starting", 3),
			of(v1alpha1.ConditionReconciling, v1alpha1.ReasonConfiguring, "member 0 has not taken up the settings", 0),
		}, "Upgrading: member 2 is to be replaced; member 1 copies; member 3 is starting; member 0 has not taken up the settings"},
		{"a reason without a rank comes last", v1alpha1.ConditionDegraded, []Fact{
			of(v1alpha1.ConditionDegraded, v1alpha1.ReasonMixedVersions, "two builds", 0),
			of(v1alpha1.ConditionDegraded, "Unheard", "unheard of", 0),
		}, "MixedVersions: two builds; unheard of"},
	} {
		for seed := range uint64(20) {
			facts := append(slices.Clone(tc.facts), serving)
			rand.New(rand.NewPCG(seed, 0)).Shuffle(len(facts), func(a, b int) { facts[a], facts[b] = facts[b], facts[a] })
			c := cluster(1)
			Resolve(c, Input{Facts: facts})
			if got := conditions.Get(c, tc.condition); got.Reason+": "+got.Message != tc.want {
				t.Fatalf("%s: %s: %s, want %s", tc.name, got.Reason, got.Message, tc.want)
			}
		}
	}
}

// Both kinds of drift are reported, and what returns decides.
func TestContestedBeforeDrifted(t *testing.T) {
	c := cluster(1)
	Resolve(c, Input{Facts: []Fact{serving}, Standing: []string{"Service/orders-rw"}, Contested: []string{"ConfigMap/orders-config"}})
	got := conditions.Get(c, v1alpha1.ConditionSynced)
	if got.Reason != v1alpha1.ReasonContested || !strings.Contains(got.Message, "ConfigMap/orders-config; find") || !strings.HasSuffix(got.Message, "left alone: Service/orders-rw") {
		t.Errorf("Synced/%s: %s", got.Reason, got.Message)
	}
}
