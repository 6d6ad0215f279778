package plugin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// Report is what status -o json and -o yaml print. Fields are added, never
// renamed: they are as many, and as flat, as scripts read them.
type Report struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Created is when the cluster's object was made.
	Created metav1.Time `json:"created"`
	// Version that runs; DeclaredVersion is the spec's.
	Version string `json:"version,omitempty"`
	Image   string `json:"image,omitempty"`
	Phase   string `json:"phase,omitempty"`
	Primary string `json:"primary,omitempty"`
	// ReadyReplicas of Replicas declared.
	ReadyReplicas int32 `json:"readyReplicas"`
	Replicas      int32 `json:"replicas"`
	// Observed says whether the status speaks of the newest spec.
	Observed  bool   `json:"observed"`
	Suspended bool   `json:"suspended"`
	DriftMode string `json:"driftMode,omitempty"`
	// DeclaredBy is the Database that the cluster belongs to, and the Git tool that
	// applies either; empty where there is no sign of one.
	DeclaredBy string `json:"declaredBy,omitempty"`
	// Restore is the restore that the cluster began with.
	Restore   *v1alpha1.RestoreStatus   `json:"restore,omitempty"`
	Endpoints *v1alpha1.EndpointsStatus `json:"endpoints,omitempty"`
	// Agent is where the members' agents come from.
	Agent *v1alpha1.AgentStatus `json:"agent,omitempty"`
	// Election of the members; absent of a kind whose members hold none.
	Election   *v1alpha1.ElectionStatus `json:"election,omitempty"`
	Conditions []metav1.Condition       `json:"conditions,omitempty"`
	Members    []MemberReport           `json:"members,omitempty"`
	// RetainedVolumes held members that are gone.
	RetainedVolumes []VolumeReport `json:"retainedVolumes,omitempty"`
	// OtherVolumes hold neither a member nor backups.
	OtherVolumes []VolumeReport `json:"otherVolumes,omitempty"`
	// Backups that there are, and whether one was restored on trial.
	Backups *BackupsReport         `json:"backups,omitempty"`
	Drift   []v1alpha1.DriftRecord `json:"drift,omitempty"`
	Events  []EventReport          `json:"events,omitempty"`
	// Unknown says what could not be read, and why.
	Unknown []string `json:"unknown,omitempty"`

	of kind
}

// MemberReport is one member.
type MemberReport struct {
	v1alpha1.MemberStatus `json:",inline"`
	// Ready and Restarts are those of its pod.
	Ready    bool  `json:"ready"`
	Restarts int32 `json:"restarts"`
	// LagSeconds of a replica; absent while it is unknown.
	LagSeconds *float64 `json:"lagSeconds,omitempty"`
	// SettingsPendingRestart is how many settings wait for a restart.
	SettingsPendingRestart int `json:"settingsPendingRestart,omitempty"`
	// DataBytes is the data's size, and DataLimitBytes that at which no more is
	// written; absent where the engine has no limit of its own.
	DataBytes      *int64        `json:"dataBytes,omitempty"`
	DataLimitBytes *int64        `json:"dataLimitBytes,omitempty"`
	Volume         *VolumeReport `json:"volume,omitempty"`
}

// EventReport is one event about the cluster.
type EventReport struct {
	Time    metav1.Time `json:"time"`
	Type    string      `json:"type"`
	Reason  string      `json:"reason"`
	Message string      `json:"message"`
	Count   int32       `json:"count"`
}

// mostEvents that a report holds, the newest first.
const mostEvents = 8

// gatherReport gathers what there is to say of a cluster. What may not be read is
// left out and said so.
func (s *session) gatherReport(ctx context.Context, c v1alpha1.Cluster) Report {
	st, k := c.CommonStatus(), kindOf(c)
	r := Report{
		Kind: k.gvk.Kind, Namespace: c.GetNamespace(), Name: c.GetName(), Created: c.GetCreationTimestamp(),
		Version: st.Version, Image: st.Image, Phase: st.Phase, Primary: st.Primary,
		ReadyReplicas: st.ReadyReplicas, Replicas: int32(c.Common().DesiredReplicas()),
		Observed:  st.ObservedGeneration == c.GetGeneration(),
		Suspended: c.Common().Suspend, DriftMode: string(c.Common().Drift.Mode),
		Restore: st.Restore, Endpoints: st.Endpoints, Election: st.Election, Agent: st.Agent, Conditions: st.Conditions, of: k,
	}
	if st.Drift != nil {
		r.Drift = st.Drift.Last
	}
	for _, m := range st.Members {
		r.Members = append(r.Members, MemberReport{MemberStatus: m})
	}
	unknown := func(what string, err error) {
		if err != nil {
			r.Unknown = append(r.Unknown, fmt.Sprintf("%s: %v", what, err))
		}
	}
	declaredBy, err := s.describeDeclaration(ctx, c)
	unknown("its Database", err)
	r.DeclaredBy = declaredBy
	of := []client.ListOption{client.InNamespace(c.GetNamespace()), client.MatchingLabels{
		v1alpha1.LabelCluster: c.GetName(), v1alpha1.LabelKind: strings.ToLower(k.gvk.Kind),
	}}
	var pods corev1.PodList
	var volumes corev1.PersistentVolumeClaimList
	// Whatever mounts a volume is in the namespace, with whichever labels.
	unknown("pods", s.client.List(ctx, &pods, client.InNamespace(c.GetNamespace())))
	unknown("volumes", s.client.List(ctx, &volumes, of...))
	r.addPods(pods.Items)
	r.addBackups(c)
	r.addVolumes(volumes.Items, pods.Items)
	unknown("metrics", s.addMetrics(ctx, &r, k))
	events, err := s.listEvents(ctx, c)
	unknown("events", err)
	r.Events = events
	return r
}

func (r *Report) findMember(name string) *MemberReport {
	for i := range r.Members {
		if r.Members[i].Name == name {
			return &r.Members[i]
		}
	}
	return nil
}

func (r *Report) addPods(pods []corev1.Pod) {
	for i := range pods {
		m := r.findMember(pods[i].Name)
		if m == nil || pods[i].Labels[v1alpha1.LabelCluster] != r.Name {
			continue
		}
		for _, cond := range pods[i].Status.Conditions {
			m.Ready = m.Ready || cond.Type == corev1.PodReady && cond.Status == corev1.ConditionTrue
		}
		for _, container := range pods[i].Status.ContainerStatuses {
			m.Restarts += container.RestartCount
		}
	}
}

// metricsTimeout bounds how long a member may take to answer.
const metricsTimeout = 3 * time.Second

// addMetrics asks the members that are ready, through the API server.
func (s *session) addMetrics(ctx context.Context, r *Report, k kind) error {
	ctx, cancel := context.WithTimeout(ctx, metricsTimeout)
	defer cancel()
	errs := make([]error, len(r.Members))
	var asking sync.WaitGroup
	for i := range r.Members {
		m := &r.Members[i]
		if !m.Ready {
			continue
		}
		asking.Go(func() {
			body, err := s.kube.CoreV1().RESTClient().Get().Namespace(r.Namespace).Resource("pods").
				Name(fmt.Sprintf("%s:%d", m.Name, agentapi.ProbePort)).SubResource("proxy").Suffix("metrics").DoRaw(ctx)
			if err != nil {
				// The API server's own words name neither the resource nor what is missing.
				errs[i] = fmt.Errorf("get pods/proxy of %s: %w", m.Name, err)
				return
			}
			errs[i] = m.readMetrics(string(body), k)
		})
	}
	asking.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// readMetrics takes what a report shows from a member's metrics.
func (m *MemberReport) readMetrics(metrics string, k kind) error {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(metrics))
	if err != nil {
		return fmt.Errorf("the metrics of %s: %w", m.Name, err)
	}
	value := func(name string) (float64, bool) {
		family := families[name]
		if family == nil || len(family.GetMetric()) != 1 || family.GetMetric()[0].GetGauge() == nil {
			return 0, false
		}
		return family.GetMetric()[0].GetGauge().GetValue(), true
	}
	if lag, known := value(k.lag); known && m.Role != v1alpha1.RolePrimary {
		m.LagSeconds = &lag
	}
	size, sized := value(k.size)
	if limit, limited := value(k.limit); sized && limited {
		m.DataBytes, m.DataLimitBytes = new(int64(size)), new(int64(limit))
	}
	if pending, known := value(k.pendingRestart); known {
		m.SettingsPendingRestart = int(pending)
	}
	return nil
}

// listEvents about the cluster, the newest first.
func (s *session) listEvents(ctx context.Context, c v1alpha1.Cluster) ([]EventReport, error) {
	list, err := s.kube.CoreV1().Events(c.GetNamespace()).List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"involvedObject.name": c.GetName(), "involvedObject.uid": string(c.GetUID())}.String(),
	})
	if err != nil {
		return nil, err
	}
	var out []EventReport
	for i := range list.Items {
		e := &list.Items[i]
		report := EventReport{Time: lastObserved(e), Type: e.Type, Reason: e.Reason, Message: e.Message, Count: max(e.Count, 1)}
		if e.Series != nil {
			report.Count = max(e.Series.Count, 1)
		}
		out = append(out, report)
	}
	slices.SortStableFunc(out, func(a, b EventReport) int { return b.Time.Compare(a.Time.Time) })
	return out[:min(len(out), mostEvents)], nil
}

func lastObserved(e *corev1.Event) metav1.Time {
	switch {
	case e.Series != nil:
		return metav1.NewTime(e.Series.LastObservedTime.Time)
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp
	case !e.EventTime.IsZero():
		return metav1.NewTime(e.EventTime.Time)
	}
	return e.CreationTimestamp
}
