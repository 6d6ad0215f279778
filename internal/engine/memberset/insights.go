package memberset

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/loginsight"
)

const (
	// insightsInterval is the least time between two records of insights.
	insightsInterval = 10 * time.Minute
	// insightsAge is how long a class is reported after it was seen last.
	insightsAge = 24 * time.Hour
	// insightsSize is how many bytes of JSON a record may have.
	insightsSize = 2 << 10
)

// ReportInsights is what status says of the text logs, and when to look again; 0 for
// never. What is recorded stays while the members report the same, in steps: a cluster
// with no other events writes nothing.
func (view *View) ReportInsights() (report *v1alpha1.InsightsStatus, wait time.Duration) {
	was := view.Cluster.CommonStatus().Insights
	next := limitInsights(mergeInsights(was, view.listInsights(), view.Now), view.Now)
	if isSameInsights(was, next) {
		return was.DeepCopy(), 0
	}
	if was != nil {
		if wait := insightsInterval - view.Now.Sub(was.Time.Time); wait > 0 && wait <= insightsInterval {
			return was.DeepCopy(), wait
		}
	}
	return next, 0
}

// listInsights is what each member found, by its pod's name.
func (view *View) listInsights() map[string]*agentapi.Insights {
	found := map[string]*agentapi.Insights{}
	for _, pod := range view.Observed.Pods {
		if i := view.Observed.Members[pod.Name].Insights; i != nil && i.PodUID == string(pod.UID) {
			found[pod.Name] = i
		}
	}
	return found
}

// mergeInsights adds up what the members found in the last day, the worst first. Only
// classes of the whitelist count, whatever an agent says. What a member reported whose
// agent was started anew since stays for that day.
func mergeInsights(was *v1alpha1.InsightsStatus, members map[string]*agentapi.Insights, now time.Time) []v1alpha1.InsightStatus {
	merged := map[string]v1alpha1.InsightStatus{}
	for pod, found := range members {
		for _, i := range found.Classes {
			class := loginsight.FindClass(i.Class)
			if class == nil || !loginsight.IsReported(class.Severity) || isOldInsight(i.Last, now) {
				continue
			}
			seen := v1alpha1.InsightStatus{
				Class: class.Name, Severity: string(class.Severity), Count: i.Count, Member: pod,
				First: metav1.NewTime(i.First.UTC().Truncate(time.Second)), Last: metav1.NewTime(i.Last.UTC().Truncate(time.Second)),
			}
			if before, is := merged[class.Name]; is {
				seen = addInsight(before, seen)
			}
			merged[class.Name] = seen
		}
	}
	if was != nil {
		for _, before := range was.Classes {
			seen, is := merged[before.Class]
			switch {
			case isOldInsight(before.Last.Time, now) || loginsight.FindClass(before.Class) == nil:
			case !is:
				merged[before.Class] = before
			case before.First.Before(&seen.First):
				seen.First = before.First
				merged[before.Class] = seen
			}
		}
	}
	var list []v1alpha1.InsightStatus
	for _, i := range merged {
		list = append(list, i)
	}
	slices.SortFunc(list, compareInsights)
	return list
}

// compareInsights puts the worst first, and of those what was seen in the newest hour:
// the order, and what is left out, stay within an hour.
func compareInsights(a, b v1alpha1.InsightStatus) int {
	return cmp.Or(
		cmp.Compare(loginsight.Severity(a.Severity).Rank(), loginsight.Severity(b.Severity).Rank()),
		b.Last.Truncate(time.Hour).Compare(a.Last.Truncate(time.Hour)),
		cmp.Compare(a.Class, b.Class))
}

func isOldInsight(last, now time.Time) bool { return now.Sub(last) > insightsAge }

// addInsight adds what another member found of the same class. Of two members that
// found it in the same second, the first by name is named.
func addInsight(a, b v1alpha1.InsightStatus) v1alpha1.InsightStatus {
	if b.Last.After(a.Last.Time) || b.Last.Equal(&a.Last) && b.Member < a.Member {
		a.Last, a.Member = b.Last, b.Member
	}
	if b.First.Before(&a.First) {
		a.First = b.First
	}
	a.Count += b.Count
	return a
}

// isSameInsights says whether a record says all that is to be said: the same classes,
// whose counts and times are of the same step.
func isSameInsights(was, next *v1alpha1.InsightsStatus) bool {
	if was == nil || next == nil {
		return was == nil && next == nil
	}
	return was.Omitted == next.Omitted && slices.EqualFunc(was.Classes, next.Classes, func(a, b v1alpha1.InsightStatus) bool {
		return a.Class == b.Class && loginsight.Step(a.Count, a.Last.Time) == loginsight.Step(b.Count, b.Last.Time)
	})
}

// limitInsights records classes, and leaves out what is least bad until the record fits;
// nil for none.
func limitInsights(classes []v1alpha1.InsightStatus, now time.Time) *v1alpha1.InsightsStatus {
	if len(classes) == 0 {
		return nil
	}
	s := &v1alpha1.InsightsStatus{Time: metav1.NewTime(now.UTC().Truncate(time.Second)), Classes: classes}
	for len(s.Classes) > 0 {
		if text, err := json.Marshal(s); err == nil && len(text) <= insightsSize {
			break
		}
		s.Classes, s.Omitted = s.Classes[:len(s.Classes)-1], s.Omitted+1
	}
	return s
}
