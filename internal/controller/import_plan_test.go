package controller

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backups/backupstest"
	"github.com/holdfast-db/holdfast/internal/engine"
)

// importing is an import whose Job runs.
func importing() importObservation {
	began := metav1.NewTime(backupstest.Noon.Add(-time.Minute))
	c := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", UID: "c-uid", Generation: 1}}
	c.Spec.Bootstrap.Import = &v1alpha1.ImportSource{Host: "old", Database: "shop", User: "reader",
		PasswordSecretRef: &v1alpha1.ImportPassword{SecretReference: v1alpha1.SecretReference{Name: "old-login"}}}
	c.Status.Import = &v1alpha1.ImportStatus{StartTime: &began}
	s := importObservation{
		cluster: c, kind: "PostgresCluster", agentImage: "holdfast:1", now: backupstest.Noon, secrets: "1", pods: []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "orders-import-x"}}},
		how: &engine.Import{Source: c.Spec.Bootstrap.Import, Living: true, Serving: true, Program: "postgres", Image: "postgres:17", User: 999,
			Hosts: []string{"orders-0.orders-members.shop.svc"}, Port: 5432, Secret: "orders-app"},
		report: &importReport{object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "orders-import"}}, step: v1alpha1.ImportStepCopying, progress: "table 2 of 4, 9 MiB"},
	}
	s.job = &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "orders-import", UID: "j", CreationTimestamp: metav1.NewTime(backupstest.Noon.Add(-time.Second))}}
	s.job.Annotations = map[string]string{v1alpha1.AnnotationGiven: s.hashInput()}
	return s
}

func (s importObservation) ended(as batchv1.JobConditionType, ago time.Duration) {
	s.job.Status.Conditions = []batchv1.JobCondition{{Type: as, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(s.now.Add(-ago))}}
}

// strand has a pod that was to stop, on a node that is cut off.
func (s importObservation) strand(ago time.Duration) {
	s.pods[0] = corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "orders-import-x", DeletionTimestamp: &metav1.Time{Time: s.now.Add(-ago)}}, Spec: corev1.PodSpec{NodeName: "n1"}}
}

// lose has another client remove the Job, and its pods go.
func (s *importObservation) lose() { s.job, s.pods = nil, nil }

// importActs is what a plan does, in a few words.
func importActs(p importPlan) string {
	acts := restoreActs(restorePlan{mustRecord: p.mustRecord, create: p.create, remove: p.remove})
	for _, f := range p.facts {
		acts += " " + f.Type + "/" + f.Reason
	}
	return strings.TrimSpace(acts)
}

func TestPlanImport(t *testing.T) {
	const waits = "Reconciling/Importing"
	result := &v1alpha1.ImportResult{SourceVersion: "15.18", Tables: 4}
	for _, c := range []struct {
		name string
		with func(*importObservation)
		want string
		says string
	}{
		{"a new cluster records the import before anything is made", func(s *importObservation) {
			s.cluster.CommonStatus().Import, s.job, s.report, s.how.Living, s.how.Serving = nil, nil, nil, false, false
		}, "record " + waits, "recorded"},
		{"a cluster with data is left alone", func(s *importObservation) {
			s.cluster.CommonStatus().Import, s.job, s.report = nil, nil, nil
		}, "Stalled/ImportRefused", "has data already"},
		{"a volume that goes is waited for", func(s *importObservation) {
			s.cluster.CommonStatus().Import, s.job, s.report, s.how.Living, s.how.Leaving = nil, nil, nil, false, "data-orders-0"
		}, waits, "volume data-orders-0 of an earlier cluster of this name is being deleted"},
		{"a database that clients were let into is left alone, and a try that an earlier build knows nothing of goes", func(s *importObservation) {
			s.cluster.CommonStatus().Import, s.how.Opened = nil, true
		}, "-orders-import Stalled/ImportRefused", "has data already"},
		{"a record that is lost while a try is there is made again", func(s *importObservation) { s.cluster.CommonStatus().Import = nil }, "record " + waits, ""},
		{"and between two tries", func(s *importObservation) {
			s.cluster.CommonStatus().Import, s.job, s.report, s.begun = nil, nil, nil, true
		}, "record " + waits, ""},
		{"a suspended cluster waits", func(s *importObservation) { s.cluster.Common().Suspend = true }, waits, "spec.suspend"},
		{"before a member takes writes", func(s *importObservation) { s.lose(); s.report, s.how.Serving = nil, false }, waits, "takes writes"},
		{"a Secret is missing", func(s *importObservation) {
			s.lose()
			s.missing = "passwordSecretRef names Secret old-login"
		}, "Stalled/SecretMissing", "spec.bootstrap.import.passwordSecretRef names Secret old-login"},
		{"a place to report comes first", func(s *importObservation) { s.lose(); s.report = nil }, "+ConfigMap/orders-import " + waits, ""},
		{"then the Job", func(s *importObservation) { s.lose() }, "+Job/orders-import " + waits, ""},
		{"it reports", func(*importObservation) {}, waits, "table 2 of 4, 9 MiB"},
		{"it tries again", func(s *importObservation) { s.report.err = "the source: no route" }, waits, "trying again: the source: no route"},
		{"the report of a Job that went is made anew", func(s *importObservation) { s.report = nil }, "+ConfigMap/orders-import " + waits, ""},
		{"another source while it runs", func(s *importObservation) {
			s.how.Source = &v1alpha1.ImportSource{Host: "older"}
		}, "-orders-import " + waits, "another source"},
		{"a try that may pass is tried again later", func(s *importObservation) {
			s.report.err = "the source: no route"
			s.ended(batchv1.JobFailed, time.Minute)
		}, waits, "trying again in minutes"},
		{"and then is", func(s *importObservation) {
			s.report.err = "the source: no route"
			s.ended(batchv1.JobFailed, 3*time.Minute)
		}, "-orders-import " + waits, ""},
		{"what does not pass waits for a person", func(s *importObservation) {
			s.report.err, s.report.permanent = "the source: password authentication failed", true
			s.ended(batchv1.JobFailed, time.Hour)
		}, "Stalled/ImportFailed", "has left nothing half done: the source: password authentication failed. Once the cause is gone, ask for another try with the annotation reconcile.fluxcd.io/requestedAt"},
		{"a Job that said nothing is tried again: its pods may have completed the import", func(s *importObservation) {
			s.report.step, s.report.progress = "", ""
			s.ended(batchv1.JobFailed, 3*time.Minute)
		}, "-orders-import " + waits, ""},
		{"but not at once", func(s *importObservation) { s.ended(batchv1.JobFailed, time.Minute) }, waits, "trying again in minutes"},
		{"what a try said that is gone goes before the next one", func(s *importObservation) {
			s.lose()
			s.report.pod, s.report.err, s.report.permanent = "orders-import-x", "the source: no such role", true
		}, "-orders-import " + waits, "another try begins"},
		{"but a result of it counts", func(s *importObservation) { s.job, s.report.pod, s.report.result = nil, "orders-import-x", result }, "record " + waits, ""},
		{"a corrected Secret is another try", func(s *importObservation) {
			s.report.err, s.report.permanent, s.secrets = "the source: password authentication failed", true, "2"
			s.ended(batchv1.JobFailed, time.Hour)
		}, "-orders-import " + waits, ""},
		{"what is left of that try goes next", func(s *importObservation) { s.job.DeletionTimestamp = &metav1.Time{Time: s.now} }, waits, "once the last one has stopped"},
		{"a pod that does not stop is named", func(s *importObservation) { s.strand(2 * time.Minute) }, "Stalled/Importing", "pod orders-import-x on node n1 does not stop"},
		{"but not at once", func(s *importObservation) { s.strand(time.Second) }, waits, "table 2 of 4"},
		{"nor does the next try begin beside it", func(s *importObservation) {
			s.strand(2 * time.Minute)
			s.job.DeletionTimestamp = &metav1.Time{Time: s.now}
		}, "Stalled/Importing", "delete the pod with --force"},
		{"no try begins beside a pod whose Job was removed by hand", func(s *importObservation) {
			s.job, s.report = nil, nil
		}, waits, "pod orders-import-x of an earlier try has not ended"},
		{"nor is what it reports removed", func(s *importObservation) { s.job, s.report.pod = nil, "orders-import-x" }, waits, "has not ended"},
		{"a pod that has ended is not waited for", func(s *importObservation) {
			s.job, s.pods[0].Status.Phase = nil, corev1.PodFailed
		}, "+Job/orders-import " + waits, ""},
		{"a Job that does not go is named, also where none of its pods is seen", func(s *importObservation) {
			s.job.DeletionTimestamp, s.pods = &metav1.Time{Time: s.now.Add(-3 * time.Minute)}, nil
		}, "Stalled/Importing", "Job orders-import was to go"},
		{"but not while its pods have time to stop", func(s *importObservation) {
			s.job.DeletionTimestamp, s.pods = &metav1.Time{Time: s.now.Add(-time.Minute)}, nil
		}, waits, "once the last one has stopped"},
		{"nor is the import canceled", func(s *importObservation) {
			s.strand(2 * time.Minute)
			s.how.Source, s.job.DeletionTimestamp = nil, &metav1.Time{Time: s.now}
		}, "Stalled/Importing", "bring the node back"},
		{"an end without a report is looked at again", func(s *importObservation) { s.ended(batchv1.JobComplete, time.Hour) }, "-orders-import " + waits, "without a result"},
		{"a result is recorded, whatever became of the Job", func(s *importObservation) { s.report.result, s.job = result, nil }, "record " + waits, "complete"},
		{"an import that is removed stops first", func(s *importObservation) { s.how.Source = nil }, "-orders-import " + waits, "canceled"},
		{"then its report goes", func(s *importObservation) { s.lose(); s.how.Source = nil }, "-orders-import " + waits, "canceled"},
		{"clients are kept out while a pod of it may write, whatever became of its Job", func(s *importObservation) {
			s.how.Source, s.job, s.report = nil, nil, nil
		}, waits, "canceled"},
		{"nor are they let in where it does not stop", func(s *importObservation) {
			s.strand(2 * time.Minute)
			s.how.Source, s.job, s.report = nil, nil, nil
		}, "Stalled/Importing", "pod orders-import-x on node n1 does not stop"},
		{"then clients are let in", func(s *importObservation) { s.lose(); s.how.Source, s.report = nil, nil }, "record", ""},
		{"what is done leaves its Job", func(s *importObservation) {
			s.cluster.CommonStatus().Import.CompletionTime, s.how = &metav1.Time{Time: s.now}, nil
		}, "-orders-import", ""},
		{"and its report", func(s *importObservation) {
			s.cluster.CommonStatus().Import.CompletionTime, s.how, s.job = &metav1.Time{Time: s.now}, nil, nil
		}, "-orders-import", ""},
		{"what is done has no effect", func(s *importObservation) {
			s.cluster.CommonStatus().Import.CompletionTime, s.how, s.job, s.report = &metav1.Time{Time: s.now}, nil, nil, nil
		}, "", ""},
	} {
		s := importing()
		c.with(&s)
		p := planImport(s)
		if got := importActs(p); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if c.says != "" && (len(p.facts) == 0 || !strings.Contains(p.facts[0].Message, c.says)) {
			t.Errorf("%s: %+v does not say %q", c.name, p.facts, c.says)
		}
	}
}

// An operator that is killed after any write goes on from what was written, to the same
// end, with one Job.
func TestImportSurvivesACrashAtEachStep(t *testing.T) {
	s := importing()
	s.cluster.CommonStatus().Import, s.job, s.report, s.pods, s.how.Living, s.how.Serving = nil, nil, nil, nil, false, false
	jobs := 0
	for pass := 0; !s.cluster.CommonStatus().Import.Done() || s.job != nil || s.report != nil; pass++ {
		if pass > 12 {
			t.Fatalf("no end: %+v", planImport(s))
		}
		p := planImport(s)
		if again := planImport(s); importActs(again) != importActs(p) {
			t.Fatalf("a pass that was cut off decides %q, and then %q", importActs(p), importActs(again))
		}
		switch { // one write, and then a crash
		case p.mustRecord:
			s.cluster.CommonStatus().Import = p.status
			if p.status.Done() {
				s.how = nil
			}
		case len(p.remove) > 0 && s.job != nil:
			s.job = nil
		case len(p.remove) > 0:
			s.report = nil
		case p.create == nil && !s.how.Serving:
			s.how.Living, s.how.Serving = true, true
		case p.create != nil && s.report == nil:
			s.report = &importReport{object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "orders-import"}}}
		case p.create != nil:
			jobs++
			s.job = objectOf[batchv1.Job](t, p.create)
			s.job.CreationTimestamp = metav1.NewTime(s.now)
			s.report.result = &v1alpha1.ImportResult{SourceVersion: "15.18"}
		}
	}
	if jobs != 1 || s.cluster.CommonStatus().Import.Result == nil {
		t.Errorf("%d Jobs, %+v", jobs, s.cluster.CommonStatus().Import)
	}
}

// The pod holds no password in what can be read of it, and may write one ConfigMap.
func TestImportJob(t *testing.T) {
	s := importing()
	made := objectOf[batchv1.Job](t, importJob(s))
	pod := made.Spec.Template.Spec
	if sc := pod.Containers[0].SecurityContext; *sc.AllowPrivilegeEscalation || !*sc.ReadOnlyRootFilesystem || !*pod.SecurityContext.RunAsNonRoot {
		t.Errorf("%+v", sc)
	}
	if args := pod.Containers[0].Args; !slices.Equal(args, []string{"job", "import", "postgres"}) {
		t.Errorf("%v", args)
	}
	var task agentapi.ImportTask
	for _, env := range pod.Containers[0].Env {
		if env.Name == agentapi.EnvTask {
			if err := json.Unmarshal([]byte(env.Value), &task); err != nil {
				t.Fatal(err)
			}
		}
	}
	if task.Source.TLSMode != "require" || task.Source.Port != 5432 || task.SourceHash != s.hashSource() {
		t.Errorf("%+v", task)
	}
	named := map[string]string{}
	for _, v := range pod.Volumes {
		if v.Projected != nil {
			for _, from := range v.Projected.Sources {
				named[v.Name] = from.Secret.Name
			}
		}
	}
	if named["source"] != "old-login" || named["target"] != "orders-app" {
		t.Errorf("%v", named)
	}
	if want := "key password of Secret old-login, which spec.bootstrap.import.passwordSecretRef names,"; task.Files["password"] != want || len(task.Files) != 1 {
		t.Errorf("%v", task.Files)
	}
	rules := objectOf[rbacv1.Role](t, importAccess(s)[1]).Rules
	if len(rules) != 1 || !slices.Equal(rules[0].Verbs, []string{"patch"}) || !slices.Equal(rules[0].ResourceNames, []string{"orders-import"}) {
		t.Errorf("%+v", rules)
	}
}

// A pod starts without a key that its Secret lacks, and says so: the kubelet would wait for
// it, and say nothing that is seen.
func TestImportFilesAreOptionalAndNamed(t *testing.T) {
	s := importing()
	s.how.Source.TLS = &v1alpha1.ImportTLS{Mode: v1alpha1.ImportTLSVerifyFull,
		CASecretRef: &v1alpha1.SecretReference{Name: "old-ca"}, CertificateSecretRef: &v1alpha1.SecretReference{Name: "old-client"}}
	s.how.Source.PasswordSecretRef.Key = "pw"
	var got []string
	for _, v := range objectOf[batchv1.Job](t, importJob(s)).Spec.Template.Spec.Volumes {
		if v.Name != "source" {
			continue
		}
		for _, from := range v.Projected.Sources {
			if !*from.Secret.Optional {
				t.Errorf("Secret %s is waited for", from.Secret.Name)
			}
			for _, item := range from.Secret.Items {
				got = append(got, from.Secret.Name+"/"+item.Key+"="+item.Path)
			}
		}
	}
	if want := []string{"old-login/pw=password", "old-ca/ca.crt=ca.crt", "old-client/tls.crt=tls.crt", "old-client/tls.key=tls.key"}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	files := s.importTask().Files
	if len(files) != 4 || !strings.Contains(files["password"], "key pw of Secret old-login") || !strings.Contains(files["tls.key"], "tls.certificateSecretRef") {
		t.Errorf("%v", files)
	}
}

// How the source is logged in to may change after the copy is committed: the record of it
// is found.
func TestRecordOfAnImportIsOfADatabase(t *testing.T) {
	s := importing()
	before := s.importTask()
	changed := *s.how.Source
	changed.User, changed.Port, changed.TLS = "another", 5432, &v1alpha1.ImportTLS{Mode: v1alpha1.ImportTLSDisable}
	s.how.Source = &changed
	if after := s.importTask(); after.DatabaseHash != before.DatabaseHash || after.SourceHash == before.SourceHash {
		t.Errorf("%+v, and then %+v", before, after)
	}
	for name, change := range map[string]func(*v1alpha1.ImportSource){
		"host":     func(src *v1alpha1.ImportSource) { src.Host = "x" },
		"port":     func(src *v1alpha1.ImportSource) { src.Port = 6 },
		"database": func(src *v1alpha1.ImportSource) { src.Database = "x" },
	} {
		other := changed
		change(&other)
		s.how.Source = &other
		if s.importTask().DatabaseHash == before.DatabaseHash {
			t.Errorf("another %s is the same database", name)
		}
	}
}
