package plan

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/forecast"
)

// findConflicts finds objects that a new cluster would have and that are another owner's.
func (p *Planner) findConflicts(ctx context.Context, w *forecast.World) (found []forecast.Fact, notes []string) {
	if p.Client == nil {
		return nil, nil
	}
	unread := map[string]bool{}
	for _, u := range w.ListApplied() {
		live := &metav1.PartialObjectMetadata{}
		live.SetGroupVersionKind(u.GroupVersionKind())
		err := p.Client.Get(ctx, client.ObjectKeyFromObject(u), live)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			unread[u.GetKind()] = true
		case !isOwn(live, u):
			found = append(found, forecast.Fact{Reason: v1alpha1.ReasonNameConflict, Message: fmt.Sprintf(
				"%s/%s exists and is not this cluster's: it is left alone; rename or delete it, or give the cluster another metadata.name", u.GetKind(), u.GetName())})
		}
	}
	for _, u := range w.ListApplied() {
		if unread[u.GetKind()] {
			delete(unread, u.GetKind())
			notes = append(notes, fmt.Sprintf("whether a %s of a name that the cluster needs is another owner's could not be read", u.GetKind()))
		}
	}
	return found, notes
}

// isOwn says whether the operator would take an object for the cluster's: one that an
// earlier cluster of the name and kind left. Declared has the labels of the cluster's own.
func isOwn(live *metav1.PartialObjectMetadata, declared *unstructured.Unstructured) bool {
	if metav1.GetControllerOfNoCopy(live) != nil {
		return false
	}
	labels := declared.GetLabels()
	kind, hasKind := live.Labels[v1alpha1.LabelKind]
	return live.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy &&
		live.Labels[v1alpha1.LabelCluster] == labels[v1alpha1.LabelCluster] && (!hasKind || kind == labels[v1alpha1.LabelKind])
}

// unknownSettings say of which parameters the effect is not known, and by which catalogue it
// is.
func unknownSettings(k kind, fields []forecast.Change, version string) []string {
	var notes, unknown []string
	parameters := false
	for _, f := range fields {
		name, is := strings.CutPrefix(f.Path, ".spec.parameters.")
		parameters = parameters || is
		if is && f.Effect == forecast.EffectUnknown {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		notes = append(notes, fmt.Sprintf("whether %s takes a restart: the server decides, and the steps assume that it does", strings.Join(unknown, ", ")))
	}
	if parameters && k.describeCatalogue != nil {
		if note := k.describeCatalogue(version); note != "" {
			notes = append(notes, note)
		}
	}
	return notes
}

// listOneWay are the changes that a commit which reverts them does not revert, beside those
// of steps.
func listOneWay(k kind, fields []forecast.Change) []string {
	var list []string
	for _, f := range fields {
		switch f.Path {
		case ".spec.backup.retention", ".spec.backup.maxBackups":
			list = append(list, "backups that are not kept any more are deleted once the next one has succeeded")
		case ".spec.version":
			if k.explainOneWay == nil || f.Effect == forecast.EffectRefused {
				continue
			}
			if why := k.explainOneWay(fmt.Sprint(f.From), fmt.Sprint(f.To)); why != "" {
				list = append(list, why)
			}
		}
	}
	return list
}

// readDatabase reads a Database from an object.
func readDatabase(u *unstructured.Unstructured) (*v1alpha1.Database, error) {
	data, err := json.Marshal(u.Object)
	if err != nil {
		return nil, err
	}
	db := &v1alpha1.Database{}
	if err := json.Unmarshal(data, db); err != nil {
		return nil, fmt.Errorf("read the Database: %w", err)
	}
	if db.Spec.Storage.IsZero() {
		db.Spec.Storage = defaultStorage()
	}
	return db, nil
}

// repositoryOf is the repository of an image reference, without tag and digest.
func repositoryOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if colon := strings.LastIndex(image, ":"); colon > strings.LastIndex(image, "/") {
		image = image[:colon]
	}
	return image
}

// apiEqual says whether two values of the API are the same.
func apiEqual(a, b any) bool {
	one, errOne := json.Marshal(a)
	other, errOther := json.Marshal(b)
	if errOne != nil || errOther != nil {
		return reflect.DeepEqual(a, b)
	}
	return string(one) == string(other)
}
