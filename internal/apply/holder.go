package apply

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
)

// FindInitImageHolder finds the manager beside Holdfast that holds the image of an init container
// in the template of an object, and since when it has its fields. It is empty while Holdfast holds
// the image itself: where another one than was applied stands there then, admission put it there.
func FindInitImageHolder(obj client.Object, container string) (manager string, since time.Time, err error) {
	image := fieldpath.MakePathOrDie("spec", "template", "spec", "initContainers", fieldpath.KeyByFields("name", container), "image")
	o, err := (&snapshot{managed: obj.GetManagedFields(), owners: obj.GetOwnerReferences()}).parseOwnership()
	if err != nil || o.own.Has(image) {
		return "", time.Time{}, err
	}
	e := o.findHolder(image)
	if e == nil {
		return "", time.Time{}, nil
	}
	if e.time != nil {
		since = e.time.Time
	}
	return e.manager, since, nil
}
