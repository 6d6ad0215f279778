package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/plugin/plan"
	"github.com/holdfast-db/holdfast/internal/plugin/web"
)

// endpoints are what the pages show.
func (o *uiOptions) endpoints() map[string]web.Endpoint {
	return map[string]web.Endpoint{
		"fleet":   func(ctx context.Context, _ url.Values) (any, error) { return o.reportFleet(ctx) },
		"cluster": func(ctx context.Context, q url.Values) (any, error) { return o.reportCluster(ctx, q) },
		"backups": func(ctx context.Context, _ url.Values) (any, error) { return o.reportBackups(ctx) },
		"plan":    func(ctx context.Context, _ url.Values) (any, error) { return o.reportPlan(ctx) },
	}
}

// FleetReport is every cluster that can be read.
type FleetReport struct {
	// Namespace that is shown; empty for all.
	Namespace string       `json:"namespace,omitempty"`
	Clusters  []FleetEntry `json:"clusters"`
	// Unknown says what could not be read, and why.
	Unknown []string `json:"unknown,omitempty"`
}

// FleetEntry is what the fleet's pages show of a cluster: all of it is in its object.
type FleetEntry struct {
	Kind      string      `json:"kind"`
	Namespace string      `json:"namespace"`
	Name      string      `json:"name"`
	Created   metav1.Time `json:"created"`
	Version   string      `json:"version,omitempty"`
	Phase     string      `json:"phase,omitempty"`
	Primary   string      `json:"primary,omitempty"`
	// ReadyReplicas of Replicas declared.
	ReadyReplicas int32 `json:"readyReplicas"`
	Replicas      int32 `json:"replicas"`
	Suspended     bool  `json:"suspended,omitempty"`
	// Message of Ready, and Synced's reason.
	Message  string                 `json:"message,omitempty"`
	Synced   string                 `json:"synced,omitempty"`
	Drift    []v1alpha1.DriftRecord `json:"drift,omitempty"`
	Backups  *BackupsReport         `json:"backups,omitempty"`
	Insights []InsightClass         `json:"insights,omitempty"`
	TuningReport
}

// TuningReport is what is recommended of a cluster, and what its operator does with it.
type TuningReport struct {
	Recommendations []v1alpha1.RecommendationStatus `json:"recommendations,omitempty"`
	// TuningMode that the spec declares, and Tuning, what mode Apply keeps, tries and does not try.
	TuningMode v1alpha1.TuningMode    `json:"tuningMode,omitempty"`
	Tuning     *v1alpha1.TuningStatus `json:"tuning,omitempty"`
}

func newTuningReport(c v1alpha1.Cluster) TuningReport {
	st := c.CommonStatus()
	return TuningReport{Recommendations: st.Recommendations, TuningMode: c.Common().Tuning.Mode, Tuning: st.Tuning}
}

// ClusterReport is one cluster in full.
type ClusterReport struct {
	Report   `json:",inline"`
	Insights []InsightClass `json:"insights"`
	TuningReport
}

// BackupReport is one Backup.
type BackupReport struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Kind      string `json:"kind"`
	Cluster   string `json:"cluster"`
	// Stage is its phase, and how far it is.
	Stage    string       `json:"stage,omitempty"`
	Started  *metav1.Time `json:"started,omitempty"`
	Duration string       `json:"duration,omitempty"`
	Size     string       `json:"size,omitempty"`
	Source   string       `json:"source,omitempty"`
	Message  string       `json:"message,omitempty"`
}

// BackupsOfFleet are all Backups that can be read, the newest first.
type BackupsOfFleet struct {
	Backups []BackupReport `json:"backups"`
	Unknown []string       `json:"unknown,omitempty"`
}

// shownNamespace is that of -n; empty for all.
func (o *uiOptions) shownNamespace() string { return o.overrides.Context.Namespace }

// listWhereAllowed reads a list in the shown namespace. Who may not list all namespaces
// gets that of the kubeconfig, and a note.
func (o *uiOptions) listWhereAllowed(ctx context.Context, list client.ObjectList, what string) (namespace string, notes []string, err error) {
	namespace = o.shownNamespace()
	err = o.client.List(ctx, list, client.InNamespace(namespace))
	if apierrors.IsForbidden(err) && namespace == "" {
		notes = append(notes, fmt.Sprintf("%ss in namespaces other than %s: %v", what, o.namespace, err))
		namespace = o.namespace
		err = o.client.List(ctx, list, client.InNamespace(namespace))
	}
	if apierrors.IsForbidden(err) {
		return namespace, append(notes, fmt.Sprintf("%ss in namespace %s: %v", what, namespace, err)), nil
	}
	if err != nil {
		err = fmt.Errorf("list %ss: %w", what, err)
	}
	return namespace, notes, err
}

// reportFleet lists each kind once.
func (o *uiOptions) reportFleet(ctx context.Context) (FleetReport, error) {
	r := FleetReport{Clusters: []FleetEntry{}}
	var asked answers
	for _, k := range allKinds() {
		list := k.newList()
		namespace, notes, err := o.listWhereAllowed(ctx, list, k.gvk.Kind)
		items, broken := k.itemsOf(list)
		asked.addAnswer(errors.Join(err, broken), "%s", k.gvk.Kind)
		r.Namespace, r.Unknown = namespace, append(r.Unknown, notes...)
		for _, c := range items {
			r.Clusters = append(r.Clusters, newFleetEntry(k, c))
		}
	}
	err := asked.joinErrors()
	if err != nil && len(r.Clusters) == 0 {
		return r, err
	}
	if err != nil {
		r.Unknown = append(r.Unknown, err.Error())
	}
	slices.SortStableFunc(r.Clusters, func(a, b FleetEntry) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return r, nil
}

func newFleetEntry(k kind, c v1alpha1.Cluster) FleetEntry {
	st := c.CommonStatus()
	var from Report
	from.addBackups(c)
	e := FleetEntry{
		Kind: k.gvk.Kind, Namespace: c.GetNamespace(), Name: c.GetName(), Created: c.GetCreationTimestamp(),
		Version: st.Version, Phase: st.Phase, Primary: st.Primary,
		ReadyReplicas: st.ReadyReplicas, Replicas: int32(c.Common().DesiredReplicas()), Suspended: c.Common().Suspend,
		Message: findCondition(st.Conditions, v1alpha1.ConditionReady).Message,
		Synced:  findCondition(st.Conditions, v1alpha1.ConditionSynced).Reason,
		Backups: from.Backups, Insights: statusInsights(c).Classes, TuningReport: newTuningReport(c),
	}
	if st.Drift != nil {
		e.Drift = st.Drift.Last
	}
	return e
}

// reportCluster is the cluster that the query names by kind, namespace and name.
func (o *uiOptions) reportCluster(ctx context.Context, q url.Values) (ClusterReport, error) {
	for _, k := range allKinds() {
		if k.gvk.Kind != q.Get("kind") {
			continue
		}
		c, err := k.getCluster(ctx, o.client, client.ObjectKey{Namespace: q.Get("namespace"), Name: q.Get("name")})
		if err != nil {
			return ClusterReport{}, err
		}
		return ClusterReport{Report: o.gatherReport(ctx, c), Insights: statusInsights(c).Classes, TuningReport: newTuningReport(c)}, nil
	}
	return ClusterReport{}, fmt.Errorf("%q is no kind of cluster: use one of %s", q.Get("kind"), strings.Join(kindNames(), ", "))
}

// reportBackups lists Backups.
func (o *uiOptions) reportBackups(ctx context.Context) (BackupsOfFleet, error) {
	r := BackupsOfFleet{Backups: []BackupReport{}}
	var list v1alpha1.BackupList
	_, notes, err := o.listWhereAllowed(ctx, &list, "Backup")
	if err != nil {
		return r, err
	}
	r.Unknown = notes
	slices.SortStableFunc(list.Items, func(a, b v1alpha1.Backup) int {
		return b.CreationTimestamp.Compare(a.CreationTimestamp.Time)
	})
	for i := range list.Items {
		b := &list.Items[i]
		r.Backups = append(r.Backups, BackupReport{
			Namespace: b.Namespace, Name: b.Name, Kind: b.Spec.ClusterRef.Kind, Cluster: b.Spec.ClusterRef.Name,
			Stage: describeStage(b), Started: b.Status.StartTime, Duration: b.Status.Duration, Size: b.Status.Size, Source: b.Status.Source,
			Message: cmp.Or(b.Status.Error, findCondition(b.Status.Conditions, v1alpha1.ConditionStalled).Message),
		})
	}
	return r, nil
}

// PlanPage is the plan of the files that ui was started with; nil without any.
type PlanPage struct {
	Plan *plan.Report `json:"plan"`
	// Text is what kubectl holdfast plan prints.
	Text string `json:"text,omitempty"`
}

// reportPlan plans the files as they are now. No dry run is sent: a page must not ask for
// the right to patch.
func (o *uiOptions) reportPlan(ctx context.Context) (PlanPage, error) {
	if len(o.files) == 0 {
		return PlanPage{}, nil
	}
	cmd := &cobra.Command{}
	cmd.SetContext(ctx)
	report, err := (&planOptions{session: o.session, files: o.files, readOnly: true}).makeReport(cmd)
	if err != nil {
		return PlanPage{}, err
	}
	return PlanPage{Plan: &report, Text: style{}.renderPlan(report)}, nil
}
