package engine

import (
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestDescribeInvalid(t *testing.T) {
	container := field.NewPath("spec", "template", "spec", "containers").Index(0)
	refused := func(kind, name string, list ...*field.Error) error {
		return fmt.Errorf("apply: %w", apierrors.NewInvalid(schema.GroupKind{Kind: kind}, name, list))
	}
	for _, tc := range []struct {
		err  error
		want string
	}{
		{refused("StatefulSet", "orders", field.Invalid(container.Child("resources", "requests"), "2Gi", "must be less than or equal to memory limit of 1Gi")),
			`spec.resources.requests cannot be used for StatefulSet orders: Invalid value: "2Gi": must be less than or equal to memory limit of 1Gi: change spec.resources.requests`},
		{refused("StatefulSet", "orders", field.Invalid(field.NewPath("spec", "template", "spec", "tolerations").Index(0).Child("operator"), "Is", "bad")),
			`spec.tolerations[0].operator cannot be used for StatefulSet orders: Invalid value: "Is": bad: change spec.tolerations[0].operator`},
		{refused("StatefulSet", "orders", field.Invalid(field.NewPath("spec", "template", "labels"), "a b", "bad")),
			`spec.podLabels cannot be used for StatefulSet orders: Invalid value: "a b": bad: change spec.podLabels`},
		{refused("PersistentVolumeClaim", "data-orders-0", field.Forbidden(field.NewPath("spec", "resources", "requests", "storage"), "no")),
			`spec.storage.size cannot be used for PersistentVolumeClaim data-orders-0: Forbidden: no: change spec.storage.size`},
		{refused("PersistentVolumeClaim", "orders-backups", field.Forbidden(field.NewPath("spec", "resources", "requests", "storage"), "no")),
			`spec.backup.volume.size cannot be used for PersistentVolumeClaim orders-backups: Forbidden: no: change spec.backup.volume.size`},
		{refused("Job", "orders-drill-1", field.Invalid(container.Child("resources", "limits"), "x", "bad")),
			`spec.backup.verify.resources.limits cannot be used for Job orders-drill-1: Invalid value: "x": bad: change spec.backup.verify.resources.limits`},
		{refused("ServiceAccount", "orders", field.Invalid(field.NewPath("metadata", "annotations"), "a b", "bad")),
			`spec.serviceAccount.annotations cannot be used for ServiceAccount orders: Invalid value: "a b": bad: change spec.serviceAccount.annotations`},
		{refused("NetworkPolicy", "orders", field.Invalid(field.NewPath("spec", "ingress").Index(0).Child("from").Index(1).Child("ipBlock", "cidr"), "x", "bad")),
			`spec.network.from[1].ipBlock.cidr cannot be used for NetworkPolicy orders: Invalid value: "x": bad: change spec.network.from[1].ipBlock.cidr`},
		{refused("StatefulSet", "orders", field.Invalid(field.NewPath("spec", "template", "spec", "nodeSelector"), "a b", "bad (e.g. 'a', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')")),
			`spec.nodeSelector cannot be used for StatefulSet orders: Invalid value: "a b": bad (e.g. 'a'): change spec.nodeSelector`},
		{refused("Service", "orders-rw", field.Invalid(field.NewPath("spec", "type"), "x", "bad")),
			`the API server refuses spec.type of Service orders-rw: Invalid value: "x": bad`},
	} {
		if got := DescribeInvalid(tc.err); got != tc.want {
			t.Errorf("got  %s\nwant %s", got, tc.want)
		}
	}
}

func TestDescribeForbidden(t *testing.T) {
	for _, tc := range []struct{ message, want string }{
		{`pods "orders-1" is forbidden: exceeded quota: compute, requested: limits.memory=1Gi,pods=1, used: limits.memory=2Gi,pods=3, limited: limits.memory=2Gi,pods=3`,
			"ResourceQuota compute is used up (requested limits.memory=1Gi,pods=1, used limits.memory=2Gi,pods=3, limited to limits.memory=2Gi,pods=3): raise the quota, or lower spec.replicas or spec.resources"},
		{`apply PersistentVolumeClaim data-x-1: persistentvolumeclaims "data-x-1" is forbidden: exceeded quota: full, requested: persistentvolumeclaims=1, used: persistentvolumeclaims=1, limited: persistentvolumeclaims=1`,
			"ResourceQuota full is used up (requested persistentvolumeclaims=1, used persistentvolumeclaims=1, limited to persistentvolumeclaims=1): raise the quota, or lower spec.replicas"},
		{`pods "orders-0" is forbidden: failed quota: compute: must specify limits.memory for: install,postgres`,
			"ResourceQuota compute wants every container to declare limits.memory for: install,postgres: set it in spec.resources, and let a LimitRange give defaults to the others"},
		{`pods "orders-0" is forbidden: no PriorityClass with name databases was found`,
			`spec.priorityClassName "databases" does not exist: create the PriorityClass, or name one that does`},
		{`pods "orders-0" is forbidden: maximum memory usage per Container is 512Mi, but limit is 1Gi`,
			"a LimitRange of the namespace forbids it: maximum memory usage per Container is 512Mi, but limit is 1Gi: change spec.resources, or the LimitRange"},
		{`persistentvolumeclaims "data-orders-0" is forbidden: minimum storage usage per PersistentVolumeClaim is 5Gi, but request is 1Gi`,
			"a LimitRange of the namespace forbids it: minimum storage usage per PersistentVolumeClaim is 5Gi, but request is 1Gi: change spec.storage.size, or the LimitRange"},
		{`persistentvolumeclaims "orders-backups" is forbidden: exceeded quota: full, requested: requests.storage=2Gi, used: requests.storage=1Gi, limited: requests.storage=2Gi`,
			"ResourceQuota full is used up (requested requests.storage=2Gi, used requests.storage=1Gi, limited to requests.storage=2Gi): raise the quota, or lower spec.backup.volume.size"},
		{`admission webhook "deny.example.com" denied the request: no databases here`,
			`admission webhook "deny.example.com" denied the request: no databases here: check quotas, admission policies and the operator's RBAC`},
	} {
		if got := DescribeForbidden(tc.message); got != tc.want {
			t.Errorf("got  %s\nwant %s", got, tc.want)
		}
	}
}
