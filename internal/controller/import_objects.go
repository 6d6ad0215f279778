package controller

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	batchv1ac "k8s.io/client-go/applyconfigurations/batch/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/job"
)

// kindImport is what the label for the kind says of what imports need.
const kindImport = "import"

// importReport is what the pods of an import say.
type importReport struct {
	object *corev1.ConfigMap
	// pod that said it; empty while none has.
	pod                 string
	step, progress, err string
	permanent           bool
	result              *v1alpha1.ImportResult
}

// importReportOf reads the report of an import into the cluster with a UID, from the
// source with a hash.
func importReportOf(m *corev1.ConfigMap, uid, source string) *importReport {
	r := &importReport{object: m}
	if m.Data[agentapi.RestoreKeyClusterUID] != uid || m.Data[agentapi.ImportKeySource] != source {
		return r // nothing was said yet
	}
	r.pod = m.Data[agentapi.RestoreKeyPod]
	r.step, r.progress, r.err = m.Data[agentapi.RestoreKeyStep], m.Data[agentapi.RestoreKeyProgress], m.Data[agentapi.RestoreKeyError]
	r.permanent = m.Data[agentapi.RestoreKeyPermanent] == "true"
	if text := m.Data[agentapi.ImportKeyResult]; text != "" {
		result := &v1alpha1.ImportResult{}
		if err := json.Unmarshal([]byte(text), result); err != nil {
			r.err, r.permanent = fmt.Sprintf("ConfigMap %s holds a result that is none: %v", m.Name, err), true
			return r
		}
		r.result = result
	}
	return r
}

// isImportReport says whether an object is the ConfigMap in which the import of a
// cluster reports.
func isImportReport(there *metav1.PartialObjectMetadata, c v1alpha1.Cluster) bool {
	return there.Kind == "ConfigMap" && there.Name == c.GetName()+v1alpha1.SuffixImport &&
		slices.ContainsFunc(there.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == c.GetUID() })
}

// name of the Job, of its account, and of what its pod says.
func (s importObservation) name() string { return s.cluster.GetName() + v1alpha1.SuffixImport }

// labels of what an import needs: its pods are no members.
func (s importObservation) labels() map[string]string {
	return map[string]string{
		v1alpha1.LabelCluster: s.cluster.GetName(), v1alpha1.LabelKind: kindImport, v1alpha1.LabelImport: strings.ToLower(s.kind),
		"app.kubernetes.io/name": "holdfast-import", "app.kubernetes.io/instance": s.cluster.GetName(),
		"app.kubernetes.io/component": "import", v1alpha1.LabelManagedBy: v1alpha1.ManagedBy,
	}
}

// importAccess lets the pod say how far it is, in one ConfigMap, and nothing else.
func importAccess(s importObservation) []runtime.ApplyConfiguration {
	ns, name, owner := s.cluster.GetNamespace(), s.name(), job.OwnerReference(s.kind, s.cluster)
	return []runtime.ApplyConfiguration{
		corev1ac.ServiceAccount(name, ns).WithLabels(s.labels()).WithOwnerReferences(owner).WithAutomountServiceAccountToken(false),
		rbacv1ac.Role(name, ns).WithLabels(s.labels()).WithOwnerReferences(owner).
			WithRules(rbacv1ac.PolicyRule().WithAPIGroups("").WithResources("configmaps").WithResourceNames(name).WithVerbs("patch")),
		rbacv1ac.RoleBinding(name, ns).WithLabels(s.labels()).WithOwnerReferences(owner).
			WithRoleRef(rbacv1ac.RoleRef().WithAPIGroup("rbac.authorization.k8s.io").WithKind("Role").WithName(name)).
			WithSubjects(rbacv1ac.Subject().WithKind("ServiceAccount").WithName(name).WithNamespace(ns)),
	}
}

// importReportMap is what the pod fills. The cluster owns it without being its
// controller: what is in it is not declared, and is not reverted.
func importReportMap(s importObservation) runtime.ApplyConfiguration {
	owner := metav1ac.OwnerReference().WithAPIVersion(v1alpha1.GroupVersion.String()).WithKind(s.kind).
		WithName(s.cluster.GetName()).WithUID(s.cluster.GetUID())
	return corev1ac.ConfigMap(s.name(), s.cluster.GetNamespace()).WithLabels(s.labels()).WithOwnerReferences(owner)
}

func (s importObservation) importTask() agentapi.ImportTask {
	src := s.how.Source
	mode := v1alpha1.ImportTLSRequire
	if src.TLS != nil {
		mode = cmp.Or(src.TLS.Mode, mode)
	}
	return agentapi.ImportTask{
		Namespace: s.cluster.GetNamespace(), Name: s.cluster.GetName(), UID: string(s.cluster.GetUID()),
		Source: agentapi.ImportServer{Host: src.Host, Port: cmp.Or(src.Port, 5432), Database: src.Database, User: src.User, TLSMode: string(mode)},
		Files:  describeImportFiles(src), SourceHash: s.hashSource(), DatabaseHash: s.hashDatabase(), Hosts: s.how.Hosts, Port: s.how.Port,
	}
}

// importJob copies the source with the programs of the new server.
func importJob(s importObservation) runtime.ApplyConfiguration {
	pod := job.BuildPod(s.importTask(), s.how.User, &v1alpha1.BackupLocation{}, s.how.Image, agentapi.BinDir+"/holdfast", "job", "import", s.how.Program).
		WithServiceAccountName(s.name()).WithAutomountServiceAccountToken(true).
		WithVolumes(importSecrets(s.how.Source), secretFiles("target", secretItems(s.how.Secret, "username", "password", "dbname", "ca.crt")))
	pod.Containers[0].WithVolumeMounts(
		corev1ac.VolumeMount().WithName("source").WithMountPath(agentapi.ImportDir+"/source").WithReadOnly(true),
		corev1ac.VolumeMount().WithName("target").WithMountPath(agentapi.ImportDir+"/target").WithReadOnly(true))
	job.AddInstaller(pod, s.agentImage)
	job.AddScheduling(pod, s.cluster.Common())
	job.AddNodeAffinity(pod, s.cluster.Common())
	return batchv1ac.Job(s.name(), s.cluster.GetNamespace()).WithLabels(s.labels()).WithOwnerReferences(job.OwnerReference(s.kind, s.cluster)).
		WithAnnotations(map[string]string{v1alpha1.AnnotationGiven: s.hashInput()}).
		WithSpec(job.BuildSpec(s.labels(), pod))
}

// importFile is a key of a Secret, at the path at which the pod of an import reads it.
type importFile struct{ path, field, secret, key string }

// listImportFiles lists what the pod logs in to the source with.
func listImportFiles(src *v1alpha1.ImportSource) []importFile {
	var files []importFile
	if p := src.PasswordSecretRef; p != nil {
		files = append(files, importFile{"password", "passwordSecretRef", p.Name, cmp.Or(p.Key, "password")})
	}
	if t := src.TLS; t != nil && t.CASecretRef != nil {
		files = append(files, importFile{"ca.crt", "tls.caSecretRef", t.CASecretRef.Name, "ca.crt"})
	}
	if t := src.TLS; t != nil && t.CertificateSecretRef != nil {
		for _, key := range []string{"tls.crt", "tls.key"} {
			files = append(files, importFile{key, "tls.certificateSecretRef", t.CertificateSecretRef.Name, key})
		}
	}
	return files
}

func describeImportFiles(src *v1alpha1.ImportSource) map[string]string {
	files := map[string]string{}
	for _, f := range listImportFiles(src) {
		files[f.path] = fmt.Sprintf("key %s of Secret %s, which spec.bootstrap.import.%s names,", f.key, f.secret, f.field)
	}
	return files
}

// importSecrets are what the pod logs in to the source with. It starts without a key that is
// not there, and says so: a pod that waits for one does not.
func importSecrets(src *v1alpha1.ImportSource) *corev1ac.VolumeApplyConfiguration {
	var from []*corev1ac.VolumeProjectionApplyConfiguration
	for _, f := range listImportFiles(src) {
		from = append(from, corev1ac.VolumeProjection().WithSecret(corev1ac.SecretProjection().WithName(f.secret).WithOptional(true).
			WithItems(corev1ac.KeyToPath().WithKey(f.key).WithPath(f.path))))
	}
	return secretFiles("source", from...)
}

func secretItems(secret string, keys ...string) *corev1ac.VolumeProjectionApplyConfiguration {
	p := corev1ac.SecretProjection().WithName(secret)
	for _, key := range keys {
		p.WithItems(corev1ac.KeyToPath().WithKey(key).WithPath(key))
	}
	return corev1ac.VolumeProjection().WithSecret(p)
}

func secretFiles(name string, from ...*corev1ac.VolumeProjectionApplyConfiguration) *corev1ac.VolumeApplyConfiguration {
	const readable int32 = 0o440
	return corev1ac.Volume().WithName(name).WithProjected(corev1ac.ProjectedVolumeSource().WithDefaultMode(readable).WithSources(from...))
}

// hashSource names what the spec declares of the source.
func (s importObservation) hashSource() string {
	if s.how == nil || s.how.Source == nil {
		return ""
	}
	data, err := json.Marshal(s.how.Source)
	if err != nil {
		panic(fmt.Sprintf("a source always marshals: %v", err))
	}
	return hashShort(data)
}

// hashDatabase names the database of the source. How it is logged in to may change after
// its copy is committed.
func (s importObservation) hashDatabase() string {
	src := s.how.Source
	return hashShort(fmt.Appendf(nil, "%s\n%d\n%s", src.Host, cmp.Or(src.Port, 5432), src.Database))
}

func hashShort(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// hashInput names what a try depends on, and people can change. The source comes
// first.
func (s importObservation) hashInput() string {
	return s.hashSource() + "-" + hashShort(fmt.Appendf(nil, "%d\n%s\n%s\n%s", s.cluster.GetGeneration(), readRequestedAt(s.cluster), s.secrets, s.agentImage))
}
