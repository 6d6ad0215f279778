//go:build apiserver

package controller_test

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/store"
)

var certificateMistakes = []mistake{
	{
		name: "a certificate's Secret that is missing",
		declare: func(_ *world, c v1alpha1.Cluster) {
			c.Common().TLS.CertificateSecretRef = &v1alpha1.SecretReference{Name: "cert"}
		},
		condition: cStalled, reason: v1alpha1.ReasonSecretMissing,
		says: []string{"spec.tls.certificateSecretRef", `there is no Secret "cert" in this namespace`, "tls.crt", "tls.key", "or name another"},
	},
	{
		name: "a certificate's Secret without a key", there: func(w *world) {
			w.create(&corev1.Secret{ObjectMeta: w.meta("cert"), Data: map[string][]byte{"tls.crt": w.certificate(userCA(w.t))["tls.crt"]}})
		},
		declare: func(_ *world, c v1alpha1.Cluster) {
			c.Common().TLS.CertificateSecretRef = &v1alpha1.SecretReference{Name: "cert"}
		},
		condition: cStalled, reason: v1alpha1.ReasonCertificateRefused,
		says: []string{"spec.tls.certificateSecretRef", `Secret "cert"`, "it has no tls.key", "put it there in PEM form"},
	},
	{
		name: "a certificate that is none", there: func(w *world) {
			w.create(&corev1.Secret{ObjectMeta: w.meta("cert"), Data: map[string][]byte{"tls.crt": []byte("x"), "tls.key": []byte("x"), "ca.crt": []byte("x")}})
		},
		declare: func(_ *world, c v1alpha1.Cluster) {
			c.Common().TLS.CertificateSecretRef = &v1alpha1.SecretReference{Name: "cert"}
		},
		condition: cStalled, reason: v1alpha1.ReasonCertificateRefused,
		says: []string{"spec.tls.certificateSecretRef", `Secret "cert"`, "tls.crt is unreadable", "put the certificate there in PEM form"},
	},
	{
		name: "a certificate of other names", there: func(w *world) {
			w.create(&corev1.Secret{ObjectMeta: w.meta("cert"), Data: w.certificate(userCA(w.t), "db")})
		},
		declare: func(_ *world, c v1alpha1.Cluster) {
			c.Common().TLS.CertificateSecretRef = &v1alpha1.SecretReference{Name: "cert"}
		},
		condition: cStalled, reason: v1alpha1.ReasonCertificateRefused,
		says: []string{"spec.tls.certificateSecretRef", `Secret "cert"`, "lacks the DNS names", "add them"},
	},
}

var caMistakes = []mistake{
	{
		name: "a CA's Secret that is missing",
		declare: func(_ *world, c v1alpha1.Cluster) {
			c.Common().TLS.CASecretRef = &v1alpha1.SecretReference{Name: "ca"}
		},
		condition: cStalled, reason: v1alpha1.ReasonSecretMissing,
		says: []string{"spec.tls.caSecretRef", `there is no Secret "ca" in this namespace`, "tls.crt", "tls.key", "or name another"},
	},
	{
		name: "a CA's Secret with a leaf", there: func(w *world) {
			w.create(&corev1.Secret{ObjectMeta: w.meta("ca"), Data: w.certificate(userCA(w.t))})
		},
		declare: func(_ *world, c v1alpha1.Cluster) {
			c.Common().TLS.CASecretRef = &v1alpha1.SecretReference{Name: "ca"}
		},
		condition: cStalled, reason: v1alpha1.ReasonCertificateRefused,
		says: []string{"spec.tls.caSecretRef", `Secret "ca"`, "CA"},
	},
}

var storeSecretMistakes = []mistake{
	{
		name: "a store's Secret that is missing", declare: toStore(v1alpha1.BackupDestination{URL: "s3://acme"}),
		condition: cBackedUp, reason: v1alpha1.ReasonSecretMissing,
		says: []string{"spec.backup.destination.credentialsSecretRef", `there is no Secret "keys" in this namespace`, "AWS_ACCESS_KEY_ID", "or name another"},
	},
	{
		name: "a store's Secret with half of the keys", there: realStore(map[string]string{store.KeyS3ID: "id"}),
		declare:   toStore(v1alpha1.BackupDestination{URL: "s3://acme", Region: "eu-1"}),
		condition: cBackedUp, reason: v1alpha1.ReasonStoreUnusable,
		says: []string{"spec.backup.destination.credentialsSecretRef", "AWS_SECRET_ACCESS_KEY"},
	},
	{
		name: "a store's CA that is none", there: realStore(map[string]string{store.KeyS3ID: "id", store.KeyS3Secret: "s", store.KeyCA: "no PEM"}),
		declare:   toStore(v1alpha1.BackupDestination{URL: "s3://acme", Endpoint: "https://127.0.0.1:1", Region: "eu-1"}),
		condition: cBackedUp, reason: v1alpha1.ReasonStoreUnusable,
		says: []string{"spec.backup.destination.credentialsSecretRef", "ca.crt holds no certificate", "as PEM"},
	},
}

var storeMistakes = []mistake{
	{
		name: "a host that is not known", there: realStore(goodKeys),
		declare:   toStore(v1alpha1.BackupDestination{URL: "s3://acme", Endpoint: "https://minio.invalid", Region: "eu-1", PathStyle: true}),
		condition: cBackedUp, reason: v1alpha1.ReasonStoreUnusable,
		says: []string{"spec.backup.destination.endpoint", "the host minio.invalid is not known", "check its name"},
	},
	{
		name: "a port that no server listens on", there: realStore(goodKeys),
		declare:   toStore(v1alpha1.BackupDestination{URL: "s3://acme", Endpoint: "https://127.0.0.1:1", Region: "eu-1", PathStyle: true}),
		condition: cBackedUp, reason: v1alpha1.ReasonStoreUnusable,
		says: []string{"spec.backup.destination.endpoint", "127.0.0.1:1", "check"},
	},
	{
		name: "keys without rights", there: realStore(goodKeys),
		declare:   answering(false, 403, "<Error><Code>AccessDenied</Code><Message>Access Denied.</Message><RequestId>4711</RequestId></Error>"),
		condition: cBackedUp, reason: v1alpha1.ReasonStoreUnusable,
		says: []string{"spec.backup.destination.credentialsSecretRef", "list, read, write and delete objects", "the store answered 403, AccessDenied"},
	},
	{
		name: "keys that the store does not know", there: realStore(goodKeys),
		declare:   answering(false, 403, "<Error><Code>InvalidAccessKeyId</Code></Error>"),
		condition: cBackedUp, reason: v1alpha1.ReasonStoreUnusable,
		says: []string{"spec.backup.destination.credentialsSecretRef", "does not know these credentials", "check the keys of the Secret"},
	},
	{
		name: "a bucket that does not exist", there: realStore(goodKeys),
		declare:   answering(false, 404, "<Error><Code>NoSuchBucket</Code></Error>"),
		condition: cBackedUp, reason: v1alpha1.ReasonStoreUnusable,
		says: []string{"spec.backup.destination.url", "there is no such bucket", "create it"},
	},
	{
		name: "what is no store", there: realStore(goodKeys),
		declare:   answering(false, 404, "<html><body>404 page not found</body></html>"),
		condition: cBackedUp, reason: v1alpha1.ReasonStoreUnusable,
		says: []string{"spec.backup.destination.endpoint", "the store answered 404", "check"},
	},
	{
		name: "a bucket in another region", there: realStore(goodKeys),
		declare:   answering(false, 400, "<Error><Code>AuthorizationHeaderMalformed</Code></Error>"),
		condition: cBackedUp, reason: v1alpha1.ReasonStoreUnusable,
		says: []string{"spec.backup.destination.region", "the bucket is in another region", "name it"},
	},
	{
		name: "a store that is down", there: realStore(goodKeys),
		declare:   answering(false, 503, "<html><body>no healthy upstream</body></html>"),
		condition: cBackedUp, reason: v1alpha1.ReasonStoreUnusable,
		says: []string{"spec.backup.destination.endpoint", "the store answered 503", "tried again"},
	},
	{
		name: "a certificate of an unknown CA", there: realStore(goodKeys),
		declare:   answering(true, 200, ""),
		condition: cBackedUp, reason: v1alpha1.ReasonStoreUnusable,
		says: []string{"spec.backup.destination.endpoint", "is not trusted", "put its CA into ca.crt of the Secret"},
	},
	{
		name: "a destination that is removed", there: realStore(goodKeys),
		declare: func(w *world, c v1alpha1.Cluster) {
			w.simulation.checks.mu.Lock()
			defer w.simulation.checks.mu.Unlock()
			w.simulation.checks.check = nil
			toStore(v1alpha1.BackupDestination{URL: "s3://acme/team"})(w, c)
		},
		change:    func(_ *world, c v1alpha1.Cluster) { c.Common().Backup.Destination = nil },
		condition: cStalled, reason: v1alpha1.ReasonDestinationRemoved,
		says: []string{"spec.backup.destination was removed, and backups went to s3://acme/team", "Declare the destination again", "spec.backup.volume", "spec.backup.enabled to false"},
	},
}

var scheduleMistakes = []mistake{
	{
		name: "a day that never comes",
		declare: func(_ *world, c v1alpha1.Cluster) {
			c.Common().Backup = &v1alpha1.ClusterBackup{Schedule: "0 2 31 2 *"}
		},
		condition: cStalled, reason: v1alpha1.ReasonInvalidSchedule,
		says: []string{`spec.backup.schedule "0 2 31 2 *" never comes`, "name one that it has", "no backup is made by schedule"},
	},
	{
		name: "an hour that does not exist",
		declare: func(_ *world, c v1alpha1.Cluster) {
			c.Common().Backup = &v1alpha1.ClusterBackup{Schedule: "0 25 * * *"}
		},
		condition: cStalled, reason: v1alpha1.ReasonInvalidSchedule,
		says: []string{`spec.backup.schedule "0 25 * * *"`, "its fields are", "no backup is made by schedule"},
	},
	{
		name: "a drill that never comes",
		declare: func(_ *world, c v1alpha1.Cluster) {
			c.Common().Backup = &v1alpha1.ClusterBackup{Schedule: yearly, Verify: &v1alpha1.BackupVerify{Schedule: "0 3 30 2 *"}}
		},
		condition: cStalled, reason: v1alpha1.ReasonInvalidSchedule,
		says: []string{`spec.backup.verify.schedule "0 3 30 2 *" never comes`, "name one that it has"},
	},
	{
		name: "a defragmentation that never comes", only: etcdKind,
		declare: func(_ *world, c v1alpha1.Cluster) {
			c.(*v1alpha1.EtcdCluster).Spec.Defragmentation.Schedule = "0 3 30 2 *"
		},
		condition: cStalled, reason: v1alpha1.ReasonInvalidSchedule,
		says: []string{`spec.defragmentation.schedule "0 3 30 2 *" never comes`, "name one that it has"},
	},
}

// byHand is a Backup by hand, of a cluster as the row declares it.
func byHand(w *world) *v1alpha1.Backup { return w.backup("byhand", v1alpha1.DeletionRetain) }

var backupMistakes = []mistake{
	{
		name: "a quota without the volume for backups", there: quota(corev1.ResourceList{corev1.ResourceRequestsStorage: resource.MustParse("2Gi")}),
		declare:   func(_ *world, c v1alpha1.Cluster) { c.Common().Backup = &v1alpha1.ClusterBackup{Schedule: yearly} },
		condition: cBackedUp, reason: v1alpha1.ReasonForbidden,
		says: []string{"the volume for backups cannot be made", "ResourceQuota team is used up", "raise the quota, or lower spec.backup.volume.size", "spec.backup.enabled to false"},
	},
	{
		name: "a Backup of a cluster that does not exist", backup: byHand,
		condition: cStalled, reason: v1alpha1.ReasonClusterMissing,
		says: []string{"spec.clusterRef names", "orders, and there is none in this namespace", "create it, or delete this Backup"},
	},
	{
		name: "a Backup where backups are off", backup: byHand,
		declare:   func(*world, v1alpha1.Cluster) {},
		condition: cStalled, reason: v1alpha1.ReasonBackupNotConfigured,
		says: []string{"backups of", "orders are turned off", "set its spec.backup.enabled to true"},
	},
	{
		name: "a Backup of a suspended cluster", backup: byHand,
		declare: func(_ *world, c v1alpha1.Cluster) {
			c.Common().Suspend, c.Common().Backup = true, &v1alpha1.ClusterBackup{Schedule: yearly}
		},
		condition: cStalled, reason: v1alpha1.ReasonSuspended,
		says: []string{"orders is suspended", "set its spec.suspend to false"},
	},
	{
		name: "a Backup without the store's Secret", backup: byHand,
		declare:   toStore(v1alpha1.BackupDestination{URL: "s3://acme"}),
		condition: cStalled, reason: v1alpha1.ReasonSecretMissing,
		says: []string{"spec.backup.destination.credentialsSecretRef", `there is no Secret "keys" in this namespace`, "AWS_ACCESS_KEY_ID", "or name another"},
	},
}

var restoreMistakes = []mistake{
	{
		name: "a restore to a moment from a volume", only: postgresKind, there: func(w *world) {
			b := w.monday("")
			before := b.DeepCopy()
			b.Status.Location = &v1alpha1.BackupLocation{URL: "file:///backups", ClaimName: "old-backups", Prefix: "shop/orders/o-uid/monday-1/"}
			if err := w.person.Status().Patch(w.t.Context(), b, client.MergeFrom(before)); err != nil {
				w.t.Fatal(err)
			}
			claim := w.claim("old-backups")
			claim.Labels = map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelCluster: "old"}
			claim.Spec = corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}
			w.create(claim)
		},
		declare:   restored(&v1alpha1.RestoreTarget{Time: "2026-01-01T00:00:00Z"}),
		condition: cStalled, reason: v1alpha1.ReasonRestoreRefused,
		says: []string{"spec.restore.target asks for a point in time in the WAL", "backup monday lies on volume old-backups", "remove the target", "or name one in an object store"},
	},
	{
		name: "a restore of a Backup that does not exist", declare: restored(nil),
		condition: cStalled, reason: v1alpha1.ReasonBackupMissing,
		says: []string{"spec.restore.backup names monday", "no such Backup in this namespace", "create it"},
	},
	{
		name: "a restore of a Backup that failed", there: func(w *world) { w.monday("the volume was full") }, declare: restored(nil),
		condition: cStalled, reason: v1alpha1.ReasonRestoreRefused,
		says: []string{"spec.restore.backup", "monday has failed: the volume was full", "name another backup"},
	},
	{
		name: "a restore of another kind's Backup", there: func(w *world) {
			other := w.backup("monday", v1alpha1.DeletionRetain)
			other.Spec.ClusterRef.Kind = "PostgresCluster"
			if w.kind == postgresKind {
				other.Spec.ClusterRef.Kind = "EtcdCluster"
			}
			w.create(other)
		}, declare: restored(nil),
		condition: cStalled, reason: v1alpha1.ReasonRestoreRefused,
		says: []string{"spec.restore.backup", "monday is of the kind", "name a backup of that kind"},
	},
	{
		name: "a restore without the store's Secret", there: func(w *world) { w.monday("") }, declare: restored(nil),
		condition: cStalled, reason: v1alpha1.ReasonSecretMissing,
		says: []string{"spec.restore.backup", `there is no Secret "keys" in this namespace`, "backup monday", "create it with AWS_ACCESS_KEY_ID"},
	},
	{
		name: "a restore from a store without its Secret",
		declare: func(_ *world, c v1alpha1.Cluster) {
			c.Common().Restore = &v1alpha1.ClusterRestore{Source: &v1alpha1.RestoreSource{BackupDestination: v1alpha1.BackupDestination{
				URL: "s3://acme", CredentialsSecretRef: &v1alpha1.SecretReference{Name: "keys"}}}}
		},
		condition: cStalled, reason: v1alpha1.ReasonSecretMissing,
		says: []string{"spec.restore.source.credentialsSecretRef", `there is no Secret "keys" in this namespace`, "AWS_ACCESS_KEY_ID", "or name another"},
	},
	{
		name: "a restore to the future", only: postgresKind, there: func(w *world) { w.monday(""); w.create(w.keys()) },
		declare:   restored(&v1alpha1.RestoreTarget{Time: "2999-01-01T00:00:00Z"}),
		condition: cStalled, reason: v1alpha1.ReasonRestoreRefused,
		says: []string{"spec.restore.target.time 2999-01-01T00:00:00Z is in the future", "name a time that has passed", "latest: true"},
	},
	{
		name: "a restore to before the backup", only: postgresKind,
		there:     restoreFails("spec.restore.target: the time 2026-01-01T00:00:00Z lies before the end of the backup monday, which is 0/5000028, at 2026-03-01T00:00:00Z: no backup ends before it, and what can be brought back begins with the end of monday, at 2026-03-01T00:00:00Z"),
		declare:   restored(&v1alpha1.RestoreTarget{Time: "2026-01-01T00:00:00Z"}),
		condition: cStalled, reason: v1alpha1.ReasonRestoreFailed,
		says: []string{"nothing was restored: spec.restore.target", "lies before the end of the backup monday", "begins with the end of monday, at 2026-03-01T00:00:00Z"},
	},
	{
		name: "a restore into a cluster that has data", there: func(w *world) {
			volume := w.claim("data-orders-0")
			volume.Labels = map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelCluster: "orders",
				v1alpha1.LabelKind: strings.ToLower(w.kind.name), v1alpha1.LabelMember: "0"}
			volume.Annotations = map[string]string{v1alpha1.AnnotationSystemIdentifier: system, v1alpha1.AnnotationCluster: "earlier"}
			volume.Spec = corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}
			w.create(volume)
			w.monday("")
		}, declare: restored(nil),
		condition: cStalled, reason: v1alpha1.ReasonRestoreRefused,
		says: []string{"volume data-orders-0 of an earlier cluster of this name", "nothing is restored over it", "remove spec.restore", "or give the cluster another name"},
	},
}
