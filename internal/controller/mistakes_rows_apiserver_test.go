//go:build apiserver

package controller_test

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

const (
	cStalled  = v1alpha1.ConditionStalled
	cDegraded = v1alpha1.ConditionDegraded
	cBackedUp = v1alpha1.ConditionBackedUp
)

// mistakes that users make, by what they are made with.
var mistakes = slices.Concat(versionMistakes, storageMistakes, admissionMistakes, nameMistakes, certificateMistakes, caMistakes, storeSecretMistakes, storeMistakes, scheduleMistakes, backupMistakes, restoreMistakes, settingMistakes)

var versionMistakes = []mistake{
	{
		name: "an image of another major version", only: postgresKind,
		declare:   func(_ *world, c v1alpha1.Cluster) { setVersion(c, "16", "registry.example/postgres:17") },
		condition: cStalled, reason: v1alpha1.ReasonVersionMismatch,
		says: []string{`spec.image "registry.example/postgres:17" holds PostgreSQL 17.4`, `spec.version is "16"`, `name an image of PostgreSQL 16 in spec.image, or set spec.version to "17"`},
	},
	{
		name: "an image of another minor version", only: etcdKind,
		declare:   func(_ *world, c v1alpha1.Cluster) { setVersion(c, "3.5.26", "registry.example/etcd:v3.6.16") },
		condition: cStalled, reason: v1alpha1.ReasonVersionMismatch,
		says: []string{`spec.image "registry.example/etcd:v3.6.16" holds etcd 3.6.16`, `spec.version is "3.5.26"`, `name an image of etcd 3.5 in spec.image, or set spec.version to "3.6"`},
	},
	{
		name: "back to an older major version", only: postgresKind,
		change:    func(_ *world, c v1alpha1.Cluster) { setVersion(c, "16", "") },
		condition: cStalled, reason: v1alpha1.ReasonDowngradeRefused,
		says: []string{`spec.version "16" is older than the running 17.4`, `cannot read newer data`, `set spec.version to "17" again`},
	},
	{
		name: "back to an older minor version", only: etcdKind,
		change:    func(_ *world, c v1alpha1.Cluster) { setVersion(c, "3.5.26", "") },
		condition: cStalled, reason: v1alpha1.ReasonDowngradeRefused,
		says: []string{`spec.version "3.5.26" is older than the running 3.6.16`, `does not go back`, `set spec.version to "3.6.16" or newer`},
	},
	{
		name: "on to the next major version", only: postgresKind,
		change:    func(_ *world, c v1alpha1.Cluster) { setVersion(c, "18", "") },
		condition: cStalled, reason: v1alpha1.ReasonMajorUpgrade,
		says: []string{`spec.version "18"`, `over the running 17.4`, `set spec.version to "17" again`, "dump"},
	},
	{
		name: "back to an older series", only: mysqlKind,
		change:    func(_ *world, c v1alpha1.Cluster) { setVersion(c, "8.4", "") },
		condition: cStalled, reason: v1alpha1.ReasonDowngradeRefused,
		says: []string{`spec.version "8.4" is older than the running 9.7.4`, `cannot read data of a newer series`, `set spec.version to "9.7.4" again`},
	},
	{
		name: "on to the next series", only: mysqlKind,
		declare:   func(_ *world, c v1alpha1.Cluster) { setVersion(c, "8.4.6", "") },
		change:    func(_ *world, c v1alpha1.Cluster) { setVersion(c, "9.7", "") },
		condition: cStalled, reason: v1alpha1.ReasonMajorUpgrade,
		says: []string{`spec.version "9.7" is a new series over the running 8.4.6`, `set spec.version to "8.4.6" again`, "dump"},
	},
	{
		name: "over a minor version", only: etcdKind,
		declare:   func(_ *world, c v1alpha1.Cluster) { setVersion(c, "3.5.26", "") },
		change:    func(_ *world, c v1alpha1.Cluster) { setVersion(c, "3.7.0", "") },
		condition: cStalled, reason: v1alpha1.ReasonUpgradePath,
		says: []string{`spec.version "3.7.0" is more than one minor version ahead of the running 3.5.26`, `set spec.version to "3.6" first`},
	},
	{
		name: "an image that cannot be pulled",
		there: func(w *world) {
			w.simulation.change(func(s *simulation) {
				s.unpullable = "manifest for registry.example/team/db:nosuch not found: manifest unknown"
			})
		},
		declare:   func(_ *world, c v1alpha1.Cluster) { c.Common().Image = "registry.example/team/db:nosuch" },
		condition: cStalled, reason: v1alpha1.ReasonImageUnavailable,
		says: []string{"pod orders-0", "registry.example/team/db:nosuch", "manifest unknown", "check spec.image and spec.imagePullSecrets"},
	},
}

var storageMistakes = []mistake{
	{
		name: "a smaller volume",
		change: func(w *world, c v1alpha1.Cluster) {
			w.kind.storage(c).Size = resource.MustParse("512Mi")
		},
		condition: cStalled, reason: v1alpha1.ReasonStorageShrink,
		says: []string{"spec.storage.size 512Mi is less than the 1Gi of volume data-orders-0", "cannot shrink", "set it to at least 1Gi"},
	},
	{
		name: "a smaller volume that grows by itself",
		declare: func(w *world, c v1alpha1.Cluster) {
			w.kind.storage(c).StorageClass, w.kind.storage(c).AutoGrow = w.class(true), &v1alpha1.AutoGrowSpec{MaxSize: resource.MustParse("4Gi")}
		},
		change:    func(w *world, c v1alpha1.Cluster) { w.kind.storage(c).Size = resource.MustParse("512Mi") },
		condition: cStalled, reason: v1alpha1.ReasonStorageShrink,
		says: []string{"spec.storage.size 512Mi is less than the 1Gi", "cannot shrink", "set it to at least 1Gi"},
	},
	{
		name:      "a storage class that does not exist",
		declare:   func(w *world, c v1alpha1.Cluster) { w.kind.storage(c).StorageClass = "fsat" },
		condition: cStalled, reason: v1alpha1.ReasonStorageClassMissing,
		says: []string{`spec.storage.storageClass "fsat" does not exist`, "create it, or name one that does"},
	},
	{
		name: "another storage class",
		change: func(w *world, c v1alpha1.Cluster) {
			w.kind.storage(c).StorageClass = w.class(true)
		},
		condition: cStalled, reason: v1alpha1.ReasonStorageClassChanged,
		says: []string{`spec.storage.storageClass is "mistakes-`, "volume data-orders-0 is of no class", "cannot change its class", "remove it"},
	},
	{
		name:      "a larger volume of a class that does not expand",
		declare:   func(w *world, c v1alpha1.Cluster) { w.kind.storage(c).StorageClass = w.class(false) },
		change:    func(w *world, c v1alpha1.Cluster) { w.kind.storage(c).Size = resource.MustParse("2Gi") },
		condition: cStalled, reason: v1alpha1.ReasonStorageNotExpandable,
		says: []string{"spec.storage.size 2Gi is more than the 1Gi of volume data-orders-0", "does not allow it to grow", "set the size back, or allowVolumeExpansion on the class"},
	},
	{
		name: "growth of a class that does not expand",
		declare: func(w *world, c v1alpha1.Cluster) {
			w.kind.storage(c).StorageClass, w.kind.storage(c).AutoGrow = w.class(false), &v1alpha1.AutoGrowSpec{MaxSize: resource.MustParse("4Gi")}
		},
		condition: cDegraded, reason: v1alpha1.ReasonStorageNotExpandable,
		says: []string{"spec.storage.autoGrow has no effect", "does not allow volumes to grow", "set allowVolumeExpansion on the class, or remove autoGrow"},
	},
}

var admissionMistakes = []mistake{
	{
		name: "a quota of pods", there: quota(corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}),
		condition: cStalled, reason: v1alpha1.ReasonForbidden,
		says: []string{"pod orders-0 cannot be created", "ResourceQuota team is used up", "raise the quota, or lower spec.replicas"},
	},
	{
		name: "a quota of memory", there: quota(corev1.ResourceList{corev1.ResourceLimitsMemory: resource.MustParse("1Gi")}),
		declare: func(_ *world, c v1alpha1.Cluster) {
			c.Common().Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")}
		},
		condition: cStalled, reason: v1alpha1.ReasonForbidden,
		says: []string{"pod orders-0 cannot be created", "ResourceQuota team", "spec.resources"},
	},
	{
		name: "a quota that asks for limits", there: quota(corev1.ResourceList{corev1.ResourceLimitsMemory: resource.MustParse("4Gi")}),
		condition: cStalled, reason: v1alpha1.ReasonForbidden,
		says: []string{"pod orders-0 cannot be created", "ResourceQuota team", "limits.memory", "set it in spec.resources"},
	},
	{
		name: "a quota of storage", there: quota(corev1.ResourceList{corev1.ResourceRequestsStorage: resource.MustParse("512Mi")}),
		condition: cStalled, reason: v1alpha1.ReasonForbidden,
		says: []string{"data-orders-0", "ResourceQuota team is used up (requested requests.storage=1Gi", "raise the quota, or lower spec.storage.size"},
	},
	{
		name:      "a priority class that does not exist",
		declare:   func(_ *world, c v1alpha1.Cluster) { c.Common().PriorityClassName = "databases" },
		condition: cStalled, reason: v1alpha1.ReasonForbidden,
		says: []string{"pod orders-0 cannot be created", `spec.priorityClassName "databases" does not exist`, "create the PriorityClass, or name one that does"},
	},
	{
		name: "less memory than the namespace asks for", there: least(corev1.LimitTypeContainer, corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}),
		declare: func(_ *world, c v1alpha1.Cluster) {
			c.Common().Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")}
		},
		condition: cStalled, reason: v1alpha1.ReasonForbidden,
		says: []string{"pod orders-0 cannot be created", "LimitRange", "minimum memory usage per Container is 1Gi", "change spec.resources, or the LimitRange"},
	},
	{
		name: "a smaller volume than the namespace asks for", there: least(corev1.LimitTypePersistentVolumeClaim, corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5Gi")}),
		condition: cStalled, reason: v1alpha1.ReasonForbidden,
		says: []string{"data-orders-0", "LimitRange", "minimum storage usage per PersistentVolumeClaim is 5Gi", "change spec.storage.size, or the LimitRange"},
	},
	{
		name: "a resource that does not exist",
		declare: func(_ *world, c v1alpha1.Cluster) {
			c.Common().Resources.Limits = corev1.ResourceList{"memry": resource.MustParse("2Gi")}
		},
		condition: cStalled, reason: v1alpha1.ReasonInvalidObject,
		says: []string{"spec.resources.limits[memry]", "change spec.resources"},
	},
	{
		name:      "a node label that is none",
		declare:   func(_ *world, c v1alpha1.Cluster) { c.Common().NodeSelector = map[string]string{"disk": "very fast"} },
		condition: cStalled, reason: v1alpha1.ReasonInvalidObject,
		says: []string{"spec.nodeSelector", "alphanumeric characters", "change spec.nodeSelector"},
	},
	{
		name: "a toleration that is none",
		declare: func(_ *world, c v1alpha1.Cluster) {
			c.Common().Tolerations = []corev1.Toleration{{Key: "db", Operator: "Equals", Value: "yes"}}
		},
		condition: cStalled, reason: v1alpha1.ReasonInvalidObject,
		says: []string{"spec.tolerations[0].operator", "Equal", "change spec.tolerations"},
	},
	{
		name:      "a pod label that is none",
		declare:   func(_ *world, c v1alpha1.Cluster) { c.Common().PodLabels = map[string]string{"team": "no label"} },
		condition: cStalled, reason: v1alpha1.ReasonInvalidObject,
		says: []string{"spec.podLabels", "alphanumeric characters", "change spec.podLabels"},
	},
	{
		name: "a pod annotation that is none",
		declare: func(_ *world, c v1alpha1.Cluster) {
			c.Common().PodAnnotations = map[string]string{"no annotation": "x"}
		},
		condition: cStalled, reason: v1alpha1.ReasonInvalidObject,
		says: []string{"spec.podAnnotations", "alphanumeric characters", "change spec.podAnnotations"},
	},
	{
		name: "an account's annotation that is none",
		declare: func(_ *world, c v1alpha1.Cluster) {
			c.Common().ServiceAccount.Annotations = map[string]string{"no annotation": "x"}
		},
		condition: cStalled, reason: v1alpha1.ReasonInvalidObject,
		says: []string{"spec.serviceAccount.annotations", "alphanumeric characters", "change spec.serviceAccount.annotations"},
	},
	{
		name: "a peer that cannot be selected",
		declare: func(_ *world, c v1alpha1.Cluster) {
			c.Common().Network.From = []v1alpha1.NetworkPeer{{PodSelector: &v1alpha1.PeerSelector{MatchLabels: map[string]v1alpha1.PeerLabelValue{"my app": "web"}}}}
		},
		condition: cStalled, reason: v1alpha1.ReasonInvalidObject,
		says: []string{"spec.network.from[0].podSelector.matchLabels", "alphanumeric characters", "change spec.network.from"},
	},
	{
		name: "a reader of metrics that cannot be selected",
		declare: func(_ *world, c v1alpha1.Cluster) {
			c.Common().Network.MetricsFrom = []v1alpha1.NetworkPeer{{NamespaceSelector: &v1alpha1.PeerSelector{
				MatchExpressions: []v1alpha1.PeerRequirement{{Key: "my team", Operator: "Exists"}}}}}
		},
		condition: cStalled, reason: v1alpha1.ReasonInvalidObject,
		says: []string{"spec.network.metricsFrom[0].namespaceSelector.matchExpressions[0].key", "alphanumeric characters", "change spec.network.metricsFrom"},
	},
	{
		name: "a node label that no node has",
		there: func(w *world) {
			w.simulation.change(func(s *simulation) {
				s.homeless = "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector. preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
			})
		},
		declare:   func(_ *world, c v1alpha1.Cluster) { c.Common().NodeSelector = map[string]string{"disk": "fsat"} },
		condition: cDegraded, reason: v1alpha1.ReasonMemberDown,
		says: []string{"pod orders-0: cannot be scheduled", "0/3 nodes are available", "check spec.nodeSelector and spec.affinity"},
	},
	{
		name: "more memory than a node has",
		there: func(w *world) {
			w.simulation.change(func(s *simulation) {
				s.homeless = "0/3 nodes are available: 1 node(s) had untolerated taint {db: }, 2 Insufficient memory."
			})
		},
		declare: func(_ *world, c v1alpha1.Cluster) {
			c.Common().Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("9Ti")}
		},
		condition: cDegraded, reason: v1alpha1.ReasonMemberDown,
		says: []string{"pod orders-0: cannot be scheduled", "2 Insufficient memory", "check spec.resources and spec.tolerations"},
	},
}

var nameMistakes = []mistake{
	{
		name: "a Service of the name", there: stranger(func(meta metav1.ObjectMeta) client.Object {
			return &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
		}, "orders-members"),
		condition: cStalled, reason: v1alpha1.ReasonNameConflict,
		says: []string{"Service/orders-members exists and belongs to field manager kubectl-edit", "metadata.name", "rename or delete it, or give the cluster another name"},
	},
	{
		name: "a ConfigMap of the name", there: stranger(func(meta metav1.ObjectMeta) client.Object { return &corev1.ConfigMap{ObjectMeta: meta} }, "orders-config"),
		condition: cStalled, reason: v1alpha1.ReasonNameConflict,
		says: []string{"ConfigMap/orders-config exists and belongs to another client", "metadata.name", "rename or delete it, or give the cluster another name"},
	},
	{
		name: "a Secret of the name", there: stranger(func(meta metav1.ObjectMeta) client.Object { return &corev1.Secret{ObjectMeta: meta} }, "orders-app"),
		condition: cStalled, reason: v1alpha1.ReasonNameConflict,
		says: []string{"Secret/orders-app exists and belongs to", "metadata.name", "rename or delete it, or give the cluster another name"},
	},
	{
		name: "a StatefulSet of the name", there: stranger(func(meta metav1.ObjectMeta) client.Object {
			labels := map[string]string{"app": "web"}
			return &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}}}}}
		}, "orders"),
		condition: cStalled, reason: v1alpha1.ReasonNameConflict,
		says: []string{"StatefulSet/orders exists and belongs to field manager kubectl-edit", "metadata.name", "rename or delete it, or give the cluster another name"},
	},
	{
		name: "a PodDisruptionBudget of the name", there: stranger(func(meta metav1.ObjectMeta) client.Object {
			return &policyv1.PodDisruptionBudget{ObjectMeta: meta, Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}
		}, "orders"),
		condition: cStalled, reason: v1alpha1.ReasonNameConflict,
		says: []string{"PodDisruptionBudget/orders exists and belongs to field manager kubectl-edit", "metadata.name", "rename or delete it, or give the cluster another name"},
	},
	{
		name: "a cluster of another kind of the name", there: stranger(func(meta metav1.ObjectMeta) client.Object {
			meta.Labels = map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelCluster: "orders", v1alpha1.LabelKind: "othercluster"}
			return &corev1.ServiceAccount{ObjectMeta: meta}
		}, "orders"),
		condition: cStalled, reason: v1alpha1.ReasonNameConflict,
		says: []string{"ServiceAccount/orders exists and belongs to othercluster/orders", "metadata.name", "give the cluster another name"},
	},
}

var settingMistakes = []mistake{
	{
		name: "a parameter that the database does not know", only: postgresKind,
		there: agentSays(func(m *agentapi.Status) { m.ConfigError = "work_memm: unrecognized configuration parameter" }),
		declare: func(_ *world, c v1alpha1.Cluster) {
			asPostgres(c).Spec.Parameters = v1alpha1.Parameters{"work_memm": "8MB"}
		},
		condition: cStalled, reason: v1alpha1.ReasonInvalidParameter,
		says: []string{"spec.parameters.work_memm: unrecognized configuration parameter", "correct or remove it", "the settings in force stay"},
	},
	{
		name: "a flag that the database does not know", only: etcdKind,
		there: agentSays(func(m *agentapi.Status) { m.ConfigError = "snapshot-cuont: unrecognized parameter" }),
		declare: func(w *world, c v1alpha1.Cluster) {
			*w.kind.parameters(c) = v1alpha1.Parameters{"snapshot-cuont": "5000"}
		},
		condition: cStalled, reason: v1alpha1.ReasonInvalidParameter,
		says: []string{"spec.parameters.snapshot-cuont: unrecognized parameter", "correct or remove it", "the settings in force stay"},
	},
	{
		name: "another database than that of the data", only: postgresKind,
		there: agentSays(func(m *agentapi.Status) {
			m.Details = map[string]string{postgresapi.DetailDatabase: "app", postgresapi.DetailOwner: "app"}
		}),
		change:    func(_ *world, c v1alpha1.Cluster) { asPostgres(c).Spec.Bootstrap.Database = "orders" },
		condition: cStalled, reason: v1alpha1.ReasonBootstrapChanged,
		says: []string{`spec.bootstrap names database "orders"`, `the data was made with database "app"`, "set spec.bootstrap to these or remove it", "use SQL"},
	},
	{
		name: "another owner than that of the data", only: postgresKind,
		there: agentSays(func(m *agentapi.Status) {
			m.Details = map[string]string{postgresapi.DetailDatabase: "app", postgresapi.DetailOwner: "app"}
		}),
		change:    func(_ *world, c v1alpha1.Cluster) { asPostgres(c).Spec.Bootstrap.Owner = "shop" },
		condition: cStalled, reason: v1alpha1.ReasonBootstrapChanged,
		says: []string{`owner "shop"`, `owner "app"`, "set spec.bootstrap to these or remove it"},
	},
}
