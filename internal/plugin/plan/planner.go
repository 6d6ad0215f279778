package plan

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/backups"
	"github.com/holdfast-db/holdfast/internal/controller/database"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
	"github.com/holdfast-db/holdfast/internal/forecast"
	"github.com/holdfast-db/holdfast/internal/plugin/gitops"
)

// Planner plans with the rights of its client.
type Planner struct {
	// Client reads, and sends dry runs.
	Client client.Client
	// ReadOnly merges here what the input declares, and sends reads only.
	ReadOnly bool
	// FieldManager applies the input; empty for the one that managedFields name.
	FieldManager string
	// AllowLoss says that data may be lost.
	AllowLoss bool
	// Prices of the user; nil for none.
	Prices *Prices
	// Now is the time of the plan.
	Now time.Time

	quotas quotas
}

// plannedUID is that of clusters that are not there yet.
const plannedUID = types.UID("planned")

// agentImage stands for the operator's image where no cluster shows it.
const agentImage = "holdfast"

// Plan plans what an input does, and what becomes of clusters that it does not have and
// should.
func (p *Planner) Plan(ctx context.Context, in Input, gone []*unstructured.Unstructured) (Report, error) {
	var r Report
	for _, u := range in.Objects {
		c, err := p.planObject(ctx, u)
		if err != nil {
			return r, err
		}
		r.Clusters = append(r.Clusters, c)
	}
	for _, u := range gone {
		c, err := p.planDeletion(ctx, u)
		if err != nil {
			return r, err
		}
		r.Clusters = append(r.Clusters, c)
	}
	if p.ReadOnly {
		r.Notes = append(r.Notes, "admission was not asked: defaults, validation and policies of the API server are not part of this plan")
	}
	if in.Others > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%d objects of other kinds are not judged", in.Others))
	}
	refuseNamesakes(r.Clusters)
	r.conclude(p.AllowLoss)
	return r, nil
}

// refuseNamesakes refuses clusters of two kinds that would have the same objects.
func refuseNamesakes(all []Cluster) {
	for i := range all {
		for k := range i {
			a, b := &all[i], &all[k]
			if a.Namespace != b.Namespace || a.Name != b.Name || a.Action != ActionCreate && b.Action != ActionCreate || !hasMembers(a) || !hasMembers(b) {
				continue
			}
			a.refuse(v1alpha1.ReasonNameConflict, fmt.Sprintf("%s of that name would have the same objects: give one of them another metadata.name", identify(b.Kind, client.ObjectKey{Namespace: b.Namespace, Name: b.Name})))
		}
	}
}

// hasMembers says whether a planned object is a cluster, or has one, that is to stay.
func hasMembers(c *Cluster) bool { return c.Kind != "Backup" && c.Action != ActionDelete }

// planObject plans one object of the input.
func (p *Planner) planObject(ctx context.Context, u *unstructured.Unstructured) (Cluster, error) {
	c := Cluster{Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName(), Action: ActionUpdate}
	live, err := p.getLive(ctx, u)
	if err != nil {
		return c, err
	}
	if live == nil {
		c.Action = ActionCreate
	} else if tool := gitops.FindTool(live); tool != nil {
		c.By = tool.String()
	}
	d, err := p.declare(ctx, u, live)
	if err != nil {
		return c, err
	}
	c.Unknown = append(c.Unknown, d.notes...)
	if d.refusal != "" {
		c.refuse("Refused", d.refusal)
	}
	switch u.GetKind() {
	case "Backup":
		return p.planBackup(c, d, live), nil
	case "Database":
		return p.planDatabase(ctx, c, d, live)
	}
	return p.planCluster(ctx, c, kinds[u.GetKind()], d, live)
}

// declare is an object as it will be.
func (p *Planner) declare(ctx context.Context, u, live *unstructured.Unstructured) (declared, error) {
	if !p.ReadOnly {
		return p.askServer(ctx, u, live)
	}
	manager, notes := p.findManager(live)
	return declared{object: mergeOnClient(u, live, manager), notes: notes}, nil
}

// getLive reads an object as it is; nil where there is none.
func (p *Planner) getLive(ctx context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(u.GroupVersionKind())
	err := p.Client.Get(ctx, client.ObjectKeyFromObject(u), live)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // a missing object is no error
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", identify(u.GetKind(), client.ObjectKeyFromObject(u)), err)
	}
	return live, nil
}

// planBackup says no more of a Backup than whether it is created or updated.
func (p *Planner) planBackup(c Cluster, d declared, live *unstructured.Unstructured) Cluster {
	if live == nil {
		return c
	}
	if apiEqual(live.Object["spec"], d.object.Object["spec"]) {
		c.Action = ActionNone
		return c
	}
	c.Fields = []forecast.Change{{Path: ".spec", Effect: forecast.EffectBackups}}
	return c
}

// planCluster plans one cluster.
func (p *Planner) planCluster(ctx context.Context, c Cluster, k kind, d declared, live *unstructured.Unstructured) (Cluster, error) {
	after, err := k.decode(d.object.Object)
	if err != nil {
		c.refuse("Refused", err.Error())
		return c, nil
	}
	var before v1alpha1.Cluster
	if live != nil {
		if before, err = k.decode(live.Object); err != nil {
			return c, err
		}
	}
	if d.refusal == "" {
		return p.planChange(ctx, c, k, before, after)
	}
	if before != nil {
		c.Fields = forecast.ListDifferences(before, after)
	}
	return c, nil
}

// planDatabase plans the cluster that a Database would own.
func (p *Planner) planDatabase(ctx context.Context, c Cluster, d declared, live *unstructured.Unstructured) (Cluster, error) {
	db, err := readDatabase(d.object)
	if err != nil {
		c.refuse("Refused", err.Error())
		return c, nil
	}
	runs, known := database.Engines()[db.Spec.Engine]
	if !known {
		c.refuse(v1alpha1.ReasonInvalidObject, fmt.Sprintf("spec.engine %q is none that Holdfast runs", db.Spec.Engine))
		return c, nil
	}
	c.Runs = runs.Kind
	if d.refusal != "" {
		return c, nil
	}
	if live != nil {
		if was, err := readDatabase(live); err == nil && was.Status.Cluster != nil && was.Status.Cluster.Kind != runs.Kind {
			c.refuse(v1alpha1.ReasonInvalidObject, fmt.Sprintf("spec.engine %q: its data is that of a %s, and is nothing to another engine; declare another Database", db.Spec.Engine, was.Status.Cluster.Kind))
			return c, nil
		}
	}
	k := kinds[runs.Kind]
	child, err := declareChild(db, runs)
	if err != nil {
		return c, err
	}
	var before v1alpha1.Cluster
	there := k.newCluster()
	err = p.Client.Get(ctx, client.ObjectKeyFromObject(db), there)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return c, fmt.Errorf("read the %s of Database %s: %w", runs.Kind, db.Name, err)
	case live == nil || !metav1.IsControlledBy(there, db):
		c.refuse(v1alpha1.ReasonNameConflict, fmt.Sprintf("%s %s exists and does not belong to this Database: give the Database another metadata.name", runs.Kind, db.Name))
		return c, nil
	default:
		before = there
		child.SetAnnotations(there.GetAnnotations())
	}
	return p.planChange(ctx, c, k, before, child)
}

// planChange forecasts what a declaration does to a cluster; before is nil for one that is
// not there.
func (p *Planner) planChange(ctx context.Context, c Cluster, k kind, before, after v1alpha1.Cluster) (Cluster, error) {
	c.lead, c.reads = k.lead, k.reads
	c.Unknown = append(c.Unknown, listUnknowns(after)...)
	start := before
	if before == nil {
		start = after.DeepCopyObject().(v1alpha1.Cluster) //nolint:forcetypeassert // a copy of a cluster
		start.SetUID(plannedUID)
		start.SetGeneration(1)
		start.Common().Restore = nil
	}
	applyDefaults(start)
	applyDefaults(after)
	w, notes, err := p.observe(ctx, k, start, before == nil)
	c.Unknown = append(c.Unknown, notes...)
	if err != nil {
		return c, err
	}
	return p.forecastChange(ctx, c, k, w, before, after)
}

// forecastChange runs a world to rest, changes what is declared, and runs it to rest again.
func (p *Planner) forecastChange(ctx context.Context, c Cluster, k kind, w *forecast.World, before, after v1alpha1.Cluster) (Cluster, error) {
	var first forecast.Outcome
	var err error
	used, asked := usageOf(w), demandOf(w)
	c.judgeBackups(before, after)
	if before != nil {
		c.Pauses = readPauses(before.CommonStatus())
		if first, err = w.Settle(); err != nil {
			return c, err
		}
		asked = demandOf(w)
		c.Fields = w.ListChanges(after)
		if len(c.Fields) == 0 {
			c.Action = ActionNone
		}
		w.Declare(after)
	}
	restore := after.Common().Restore
	if before == nil || len(c.Fields) > 0 {
		second, err := w.Settle()
		if err != nil {
			return c, err
		}
		if before == nil && restore != nil {
			second.Steps = append([]forecast.Step{{Kind: forecast.DataRestored, Message: "spec.restore says which backup"}}, second.Steps...)
		}
		c.take(first, second)
		c.Unknown = append(c.Unknown, unknownSettings(k, c.Fields, w.Cluster.CommonStatus().Version)...)
		c.OneWay = append(c.OneWay, listOneWay(k, c.Fields)...)
	} else {
		c.UnderWay = first.Steps
	}
	if before == nil {
		found, notes := p.findConflicts(ctx, w)
		c.Refused, c.Unknown = append(c.Refused, found...), append(c.Unknown, notes...)
	}
	if after.Common().Suspend && len(c.Fields) > 0 {
		c.Waits = nil
		c.Unknown = append(c.Unknown, "spec.suspend is true: nothing of this is done before it is false, and what happens then is not part of this plan")
	}
	c.setCost(p.Prices, asked, demandOf(w))
	return p.judgeQuota(ctx, c, used, usageOf(w))
}

// observe makes the world of a cluster as it is.
func (p *Planner) observe(ctx context.Context, k kind, c v1alpha1.Cluster, fresh bool) (*forecast.World, []string, error) {
	settings := objects.Settings{ImageRepository: k.repository, AgentImage: agentImage}
	if p.Client == nil {
		w := forecast.NewWorld(k.engineOf(c), c, settings, nil, p.Now)
		return w, nil, nil
	}
	o, precaution, err := k.observe(ctx, observer(p.Client), c)
	if err != nil {
		return nil, nil, fmt.Errorf("observe %s: %w; a plan needs the rights to list statefulsets, pods, persistentvolumeclaims and endpointslices", identify(k.name, client.ObjectKeyFromObject(c)), err)
	}
	settings.AgentImage = findOperatorImage(c, o.StatefulSet)
	if image := c.CommonStatus().Image; image != "" && c.Common().Image == "" {
		settings.ImageRepository = repositoryOf(image)
	}
	o.Settings = settings
	var notes []string
	if o.StorageClasses == nil {
		notes = append(notes, "storage classes could not be read: whether volumes can grow is not known")
	}
	if !fresh {
		notes = append(notes, describeState(c)...)
	}
	w, err := forecast.Observe(k.engineOf(c), c, o, p.Now)
	if err != nil {
		return nil, nil, err
	}
	w.Precaution = precaution
	return w, notes, nil
}

// findOperatorImage is the image of the operator, as far as a cluster shows it: an operator of
// another image than the members' agents says so in status.
func findOperatorImage(c v1alpha1.Cluster, set *appsv1.StatefulSet) string {
	if agent := c.CommonStatus().Agent; agent != nil && cmp.Or(agent.Available, agent.Image) != "" {
		return cmp.Or(agent.Available, agent.Image)
	}
	if set != nil {
		for i := range set.Spec.Template.Spec.InitContainers {
			if container := &set.Spec.Template.Spec.InitContainers[i]; container.Name == objects.InstallerName {
				return container.Image
			}
		}
	}
	return agentImage
}

// describeState says what of the cluster's state a forecast does not go by.
func describeState(c v1alpha1.Cluster) []string {
	var notes []string
	st := c.CommonStatus()
	if st.ObservedGeneration != c.GetGeneration() {
		notes = append(notes, "the operator has not observed the newest spec yet: its status is older")
	}
	for _, kind := range []string{v1alpha1.ConditionStalled, v1alpha1.ConditionReconciling} {
		if found := meta.FindStatusCondition(st.Conditions, kind); found != nil && found.Status == metav1.ConditionTrue {
			notes = append(notes, fmt.Sprintf("it is %s now, which only its members may know more of: %s", kind, found.Message))
		}
	}
	for _, m := range st.Members {
		if !slices.Contains([]string{"Running", "Streaming"}, m.State) {
			notes = append(notes, fmt.Sprintf("member %s is %s: the plan assumes that it serves again", m.Name, m.State))
		}
	}
	return notes
}

// listUnknowns are what no plan can tell of a cluster.
func listUnknowns(c v1alpha1.Cluster) []string {
	notes := []string{"space in the storage pool, and on nodes for new pods"}
	if names := c.Common().TLS.SecretNames(); len(names) > 0 {
		notes = append(notes, fmt.Sprintf("what Secret %s holds is not read", summarize(names)))
	}
	return notes
}

// applyDefaults sets what the schema sets, where no API server was asked.
func applyDefaults(c v1alpha1.Cluster) {
	common := c.Common()
	if common.Replicas == nil {
		common.Replicas = new(int32(1))
	}
	if common.DeletionPolicy == "" {
		common.DeletionPolicy = v1alpha1.DeletionRetain
	}
	if common.Backup == nil {
		common.Backup = &v1alpha1.ClusterBackup{}
	}
	if common.Backup.Enabled == nil {
		common.Backup.Enabled = new(true)
	}
	if common.Drift.Mode == "" {
		common.Drift.Mode = v1alpha1.DriftRevert
	}
	if common.ProgressDeadlineSeconds == nil {
		common.ProgressDeadlineSeconds = new(int32(600))
	}
}

// judgeBackups refuses what no backup can be made by. The operator does not plan them with
// the rest of the cluster.
func (c *Cluster) judgeBackups(before, after v1alpha1.Cluster) {
	declared := after.Common().Backup
	if !declared.IsEnabled() {
		return
	}
	if _, err := backups.ParseSchedule(after); err != nil {
		c.refuse(v1alpha1.ReasonInvalidSchedule, fmt.Sprintf("spec.backup.%v", err))
	}
	if before == nil {
		return
	}
	both := after.DeepCopyObject().(v1alpha1.Cluster) //nolint:forcetypeassert // a copy of a cluster
	st := both.CommonStatus()
	before.CommonStatus().DeepCopyInto(st)
	if was := before.Common().Backup; st.BackupPlace == nil && was.IsEnabled() && was.Destination != nil {
		st.BackupPlace = &v1alpha1.BackupPlace{URL: was.Destination.URL, Endpoint: was.Destination.Endpoint}
	}
	if url := backups.FindRemovedDestination(both, nil); url != "" {
		c.refuse(v1alpha1.ReasonDestinationRemoved, backups.DescribeRemovedDestination(url))
	}
}

// planDeletion plans a cluster that the input does not have, and should to stay.
func (p *Planner) planDeletion(ctx context.Context, u *unstructured.Unstructured) (Cluster, error) {
	c := Cluster{Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName(), Action: ActionDelete}
	live, err := p.getLive(ctx, u)
	if err != nil || live == nil {
		c.Action = ActionNone
		return c, err
	}
	if tool := gitops.FindTool(live); tool != nil {
		c.By = tool.String()
	}
	if live.GetKind() == "Backup" {
		return c, nil
	}
	object, k := live, kinds[live.GetKind()]
	if live.GetKind() == "Database" {
		db, err := readDatabase(live)
		if err != nil {
			return c, err
		}
		if db.Status.Cluster == nil {
			return c, nil
		}
		c.Runs, k = db.Status.Cluster.Kind, kinds[db.Status.Cluster.Kind]
		if object, err = p.getLive(ctx, named(db.Status.Cluster.Kind, db.Namespace, db.Status.Cluster.Name)); err != nil || object == nil {
			return c, err
		}
	}
	before, err := k.decode(object.Object)
	if err != nil {
		return c, err
	}
	c.lead, c.reads = k.lead, k.reads
	w, notes, err := p.observe(ctx, k, before, true)
	if err != nil {
		return c, err
	}
	c.Unknown = append(c.Unknown, notes...)
	c.take(forecast.Outcome{}, w.Delete())
	c.setCost(p.Prices, demandOf(w), demandAfter(w, c.Steps))
	return c, nil
}

// named is an object of Holdfast's of which nothing but the name is known.
func named(kind, namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}
