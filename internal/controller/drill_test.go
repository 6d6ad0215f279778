package controller

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backups"
	"github.com/holdfast-db/holdfast/internal/backups/backupstest"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/job"
)

// drilled is a cluster whose backups are restored on trial every hour, and were
// to be at noon; the newest is of eleven.
func drilled(change func(s *drillObservation)) drillObservation {
	c := backupstest.Scheduled()
	c.Spec.Backup.Verify = &v1alpha1.BackupVerify{Schedule: "0 * * * *"}
	c.Status.Schedules = append(c.Status.Schedules, v1alpha1.ScheduleStatus{Name: backups.DrillSchedule, Schedule: "0 * * * *", NextSlot: new(metav1.NewTime(backupstest.Noon))})
	claim := corev1ac.PersistentVolumeClaim("data-orders-0", "shop").WithSpec(corev1ac.PersistentVolumeClaimSpec().WithStorageClassName("fast"))
	s := drillObservation{
		cluster: c, kind: "EtcdCluster", own: []*v1alpha1.Backup{backupstest.Made("old", 2*time.Hour, ""), backupstest.Made("newest", time.Hour, "")}, now: backupstest.Noon,
		how: engine.RestorePlan{Program: "etcd", Image: "etcd:3", User: 999, Claim: claim, Size: 1 << 30, Copies: 2, CompleteTask: func(t *agentapi.RestoreTask, drill bool) { t.Bandwidth = map[bool]int64{true: 7}[drill] }, Account: corev1ac.ServiceAccount("orders-backup", "shop")},
	}
	for _, b := range s.own {
		b.Status.Result = &v1alpha1.BackupResult{DataSize: resource.MustParse("64Mi"), Manifest: "m", Checksum: "sum"}
		b.Status.Location = &v1alpha1.BackupLocation{URL: "file:///backups", ClaimName: "orders-backups", Prefix: "shop/orders/c/x/"}
	}
	if change != nil {
		change(&s)
	}
	return s
}

const drillName = "orders-drill-20260301-1200"

// running is noon's recorded drill, and its Job where job says so.
func running(job bool) func(s *drillObservation) {
	return func(s *drillObservation) {
		st := s.cluster.CommonStatus()
		st.Schedules[1].LastSlot, st.Schedules[1].NextSlot = new(metav1.NewTime(backupstest.Noon)), new(metav1.NewTime(backupstest.Noon.Add(time.Hour)))
		st.Drill = &v1alpha1.DrillStatus{Running: &v1alpha1.DrillRun{Job: drillName, Backup: "newest", StartTime: metav1.NewTime(backupstest.Noon)}}
		s.now = backupstest.Noon.Add(10 * time.Minute)
		if job {
			s.jobs = append(s.jobs, aJob(drillName, ""))
			withVolume(s)
		}
	}
}

func withVolume(s *drillObservation) {
	s.claims = append(s.claims, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: drillName}})
}

func volumeGoes(s *drillObservation) {
	s.claims[0].DeletionTimestamp = new(metav1.NewTime(backupstest.Noon))
}

func suspended(s *drillObservation) { s.cluster.Common().Suspend = true }

func off(s *drillObservation) { s.cluster.Common().Backup.Verify = nil }

// late is half an hour after the drill was recorded.
func late(s *drillObservation) { s.now = backupstest.Noon.Add(31 * time.Minute) }

// aJob that was made at noon, and came to that end a minute ago.
func aJob(name string, end batchv1.JobConditionType) *batchv1.Job {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(backupstest.Noon)}}
	if end != "" {
		job.Status.Conditions = []batchv1.JobCondition{{Type: end, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(backupstest.Noon.Add(9*time.Minute - time.Second))}}
	}
	return job
}

// drillEnded has the Job of noon come to an end, with a pod's last words; none for "".
func drillEnded(end batchv1.JobConditionType, reason, words string) func(s *drillObservation) {
	return func(s *drillObservation) {
		running(true)(s)
		s.jobs[len(s.jobs)-1] = aJob(drillName, end)
		if words == "" && reason == "" {
			return
		}
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: drillName + "-x", OwnerReferences: []metav1.OwnerReference{{UID: drillName, Controller: new(true)}}}}
		code := int32(0)
		if end == batchv1.JobFailed {
			code = agentapi.ExitPermanent
		}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: job.ContainerName, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: code, Reason: reason, Message: words}}}}
		s.pods = append(s.pods, pod)
	}
}

func spoken(r agentapi.DrillReport) string {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func all(changes ...func(s *drillObservation)) func(s *drillObservation) {
	return func(s *drillObservation) {
		for _, change := range changes {
			change(s)
		}
	}
}

func TestDrillPlan(t *testing.T) {
	words := spoken(agentapi.DrillReport{Backup: "newest", Checked: []string{"all of it"}})
	cases := map[string]struct {
		change  func(s *drillObservation)
		running string // what is recorded as under way: a Job and its backup
		result  string
		message string // of the drill that has ended, or why the slot was skipped
		create  string
		remove  string
	}{
		"before the slot nothing begins":          {change: func(s *drillObservation) { s.now = backupstest.Noon.Add(-time.Second) }},
		"at the slot the newest is put on record": {running: drillName + " newest"},
		"without a good backup it is skipped":     {change: func(s *drillObservation) { s.own = []*v1alpha1.Backup{backupstest.Made("x", time.Hour, "broken")} }, message: "skipped: there is no good backup yet"},
		"so is it while the cluster is suspended": {change: func(s *drillObservation) { s.cluster.Common().Suspend = true }, message: "skipped: spec.suspend is true"},
		"and without the keys":                    {change: func(s *drillObservation) { s.missing = "keys" }, message: "skipped: Secret keys, with the credentials of the store that backup newest is in, is not there"},
		"and while one is under way": {change: all(running(true), func(s *drillObservation) {
			s.now = backupstest.Noon.Add(time.Hour)
			s.jobs[0].CreationTimestamp = metav1.NewTime(s.now)
		}), running: drillName + " newest", message: "skipped: drill " + drillName + " is still under way"},
		"what is on record gets its volume":        {change: running(false), running: drillName + " newest", create: "PersistentVolumeClaim"},
		"and its Job, once that is seen":           {change: all(running(false), withVolume), running: drillName + " newest", create: "Job"},
		"but not while the volume goes":            {change: all(running(false), withVolume, volumeGoes), running: drillName + " newest"},
		"and goes on":                              {change: running(true), running: drillName + " newest"},
		"without its volume no Job stays":          {change: all(running(true), func(s *drillObservation) { s.claims = nil }), running: drillName + " newest", remove: "job " + drillName},
		"nor where that goes":                      {change: all(running(true), volumeGoes), running: drillName + " newest", remove: "job " + drillName},
		"suspended, a Job that runs goes on":       {change: all(running(true), suspended), running: drillName + " newest"},
		"suspended, none is made":                  {change: all(running(false), withVolume, suspended), running: drillName + " newest"},
		"nor is it waited for":                     {change: all(running(false), suspended, late), message: "could not be tried: Job " + drillName + " could not be made within 30m0s"},
		"nor where the engine cannot say what for": {change: all(running(false), func(s *drillObservation) { s.how.Claim = nil }, late), message: "could not be tried: Job " + drillName + " could not be made within 30m0s"},
		"a volume takes its time":                  {change: all(running(false), late), running: drillName + " newest", create: "PersistentVolumeClaim"},
		"its backup goes, and is drilled":          {change: all(running(false), withVolume, func(s *drillObservation) { s.own[1].DeletionTimestamp = new(metav1.NewTime(backupstest.Noon)) }), running: drillName + " newest", create: "Job"},
		"its backup is gone":                       {change: all(running(false), func(s *drillObservation) { s.own = s.own[:1] }), message: "could not be tried: backup newest was gone before it could be restored"},
		"it passes":                                {change: drillEnded(batchv1.JobComplete, "", words), result: v1alpha1.DrillPassed},
		"what it said is on its way":               {change: all(drillEnded(batchv1.JobComplete, "", ""), func(s *drillObservation) { s.now = backupstest.Noon.Add(9*time.Minute + time.Second) }), running: drillName + " newest"},
		"and will not come":                        {change: drillEnded(batchv1.JobComplete, "", ""), result: v1alpha1.DrillPassed},
		"it fails in its own words":                {change: drillEnded(batchv1.JobFailed, "Error", spoken(agentapi.DrillReport{Error: "table orders is torn"})), result: v1alpha1.DrillFailed, message: "table orders is torn"},
		"what it fails with is cut":                {change: drillEnded(batchv1.JobFailed, "Error", spoken(agentapi.DrillReport{Error: strings.Repeat("x", 1025)})), result: v1alpha1.DrillFailed, message: strings.Repeat("x", 1021) + "…"},
		"it fails without words":                   {change: drillEnded(batchv1.JobFailed, "Error", ""), result: v1alpha1.DrillFailed, message: "pod " + drillName + "-x, container backup ended with 42: Error "},
		"it has no memory":                         {change: drillEnded(batchv1.JobFailed, "OOMKilled", ""), result: v1alpha1.DrillFailed, message: "spec.backup.verify.resources: pod " + drillName + "-x needed more memory than it may have (OOMKilled): raise the limit"},
		"it runs nowhere":                          {change: all(running(true), late), message: "could not be tried: no program of Job " + drillName + " has run for 30m0s"},
		"it runs nowhere again":                    {change: all(drillEnded("", "Error", spoken(agentapi.DrillReport{Error: "torn"})), func(s *drillObservation) { s.now = backupstest.Noon.Add(time.Hour - time.Second) }), result: v1alpha1.DrillFailed, message: "torn; then no program of Job " + drillName + " has run for 30m0s"},
		"what has ended goes with its volume":      {change: all(running(true), func(s *drillObservation) { s.cluster.CommonStatus().Drill.Running = nil }), remove: "job " + drillName + " claim"},
		"turned off, all goes":                     {change: all(running(true), off), remove: "job " + drillName + " claim"},
		"turned off with backups":                  {change: all(running(true), func(s *drillObservation) { s.cluster.Common().Backup.Enabled = new(false) }), remove: "job " + drillName + " claim"},
		"a Job that was deleted is made again":     {change: all(running(true), func(s *drillObservation) { s.jobs = nil }), running: drillName + " newest", create: "Job"},
		"until it is gone, nothing is made":        {change: all(running(true), func(s *drillObservation) { s.jobs[0].DeletionTimestamp = new(metav1.NewTime(backupstest.Noon)) }), running: drillName + " newest"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := planDrills(drilled(tc.change))
			run, result, said := "", "", ""
			if p.status != nil {
				result, said = p.status.Result, p.status.Message
				if r := p.status.Running; r != nil {
					run = r.Job + " " + r.Backup
				}
			}
			if p.record != nil && said == "" {
				said = p.record.Message
			}
			got := []string{run, result, said, kinds(p.create), drillRemoves(p)}
			if diff := cmp.Diff([]string{tc.running, tc.result, tc.message, tc.create, tc.remove}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if p.status != nil && p.wait <= 0 {
				t.Error("nobody looks again")
			}
			if failed := p.failing != nil; failed != (result == v1alpha1.DrillFailed) {
				t.Errorf("failing: %v", p.failing)
			}
		})
	}
}

func kinds[T any](objects []T) string {
	var kinds []string
	for _, o := range objects {
		kinds = append(kinds, strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1."), "ApplyConfiguration"))
	}
	return strings.Join(kinds, " ")
}

func drillRemoves(p drillPlan) string {
	var names []string
	for _, o := range p.remove {
		if _, isJob := o.(*batchv1.Job); isJob {
			names = append(names, "job "+o.GetName())
		} else {
			names = append(names, "claim")
		}
	}
	return strings.Join(names, " ")
}

// How a drill ended is recorded before its Job and its volume go, whichever way
// it ends.
func TestDrillIsTakenOverFirst(t *testing.T) {
	for name, change := range map[string]func(s *drillObservation){"passed": drillEnded(batchv1.JobComplete, "", spoken(agentapi.DrillReport{})), "untried": all(running(true), late)} {
		s := drilled(change)
		first := planDrills(s)
		s.cluster.CommonStatus().Drill = first.status
		if second := planDrills(s); drillRemoves(first) != "" || drillRemoves(second) != "job "+drillName+" claim" || second.status.Message != first.status.Message {
			t.Errorf("%s: %s, then %s", name, drillRemoves(first), drillRemoves(second))
		}
	}
}

// Drills that are turned off have a status until nothing of them is left, and
// until then it says nothing.
func TestDrillTurnedOff(t *testing.T) {
	going := func(s *drillObservation) {
		volumeGoes(s)
		s.jobs[0].DeletionTimestamp = s.claims[0].DeletionTimestamp
	}
	for name, tc := range map[string]struct {
		change func(s *drillObservation)
		want   *v1alpha1.DrillStatus
	}{
		"while there is something": {all(running(true), off), &v1alpha1.DrillStatus{}},
		"while it goes":            {all(running(true), off, going), &v1alpha1.DrillStatus{}},
		"while suspended":          {all(running(true), off, suspended), &v1alpha1.DrillStatus{}},
		"when all is gone":         {all(running(false), off), nil},
	} {
		p := planDrills(drilled(tc.change))
		if diff := cmp.Diff(tc.want, p.status); diff != "" || p.record != nil || tc.want != nil && p.wait <= 0 {
			t.Errorf("%s: %+v, wait %s (-want +got):\n%s", name, p.record, p.wait, diff)
		}
	}
}

// A drill that could not be tried says nothing of its backup: its slot was passed
// over, and what was found before stands.
func TestDrillUntried(t *testing.T) {
	s := drilled(all(running(true), late))
	st := s.cluster.CommonStatus()
	st.Drill.Result, st.Drill.Job, st.Drill.Message = v1alpha1.DrillFailed, "before", "torn"
	st.Schedules[1].LastSlot = new(metav1.NewTime(backupstest.Noon))
	p := planDrills(s)
	if p.status.Result != v1alpha1.DrillFailed || p.status.Job != "before" || p.status.Message != "torn" || p.status.Running != nil || p.failing == nil {
		t.Errorf("%+v", p.status)
	}
	want := []v1alpha1.SkippedSlot{{Slot: metav1.NewTime(backupstest.Noon), Reason: "could not be tried: no program of Job " + drillName + " has run for 30m0s"}}
	if diff := cmp.Diff(want, p.record.LastSkipped); diff != "" || p.record.Skipped != 1 || p.record.Message != want[0].Reason {
		t.Errorf("%+v (-want +got):\n%s", p.record, diff)
	}
}

// A pass leaves the record of what was good before.
func TestDrillStatus(t *testing.T) {
	s := drilled(drillEnded(batchv1.JobFailed, "Error", spoken(agentapi.DrillReport{Error: "torn", Checked: []string{"restored"}})))
	before := metav1.NewTime(backupstest.Noon.Add(-time.Hour))
	st := s.cluster.CommonStatus().Drill
	st.LastPassedTime, st.LastPassedBackup = &before, "older"
	next := metav1.NewTime(backupstest.Noon.Add(time.Hour))
	at := metav1.NewTime(backupstest.Noon)
	want := &v1alpha1.DrillStatus{
		LastTime: &at, LastPassedTime: &before, LastPassedBackup: "older", Result: v1alpha1.DrillFailed, Backup: "newest", Duration: "8m59s", Message: "torn",
		Checked: []string{"restored"}, Job: drillName, NextTime: &next,
	}
	if diff := cmp.Diff(want, planDrills(s).status); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	s = drilled(drillEnded(batchv1.JobComplete, "", spoken(agentapi.DrillReport{Checked: []string{"restored"}})))
	s.cluster.CommonStatus().Drill.LastPassedBackup = "older"
	want.Result, want.Message, want.LastPassedTime, want.LastPassedBackup = v1alpha1.DrillPassed, "", &at, "newest"
	if diff := cmp.Diff(want, planDrills(s).status); diff != "" {
		t.Errorf("passed (-want +got):\n%s", diff)
	}
}

// A schedule that never comes is reported by its field; the time zone is that of
// backups, of which nothing is said twice.
func TestDrillScheduleIsWrong(t *testing.T) {
	for line, zone := range map[string]string{"0 0 31 2 *": "", "0 0 * * *": "Nowhere/Land"} {
		p := planDrills(drilled(func(s *drillObservation) {
			s.cluster.Common().Backup.Verify.Schedule, s.cluster.Common().Backup.TimeZone = line, zone
		}))
		if zone == "" && (len(p.facts) != 1 || p.facts[0].Reason != v1alpha1.ReasonInvalidSchedule || !strings.Contains(p.facts[0].Message, "spec.backup.verify.schedule")) || zone != "" && len(p.facts) > 0 {
			t.Errorf("%q %q: %+v", line, zone, p.facts)
		}
	}
}

// A drill that failed says that the cluster is not backed up; a backup that
// failed says so first.
func TestDrillFails(t *testing.T) {
	drill := condition.Fact{Type: v1alpha1.ConditionBackedUp, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonDrillFailed, Message: "torn"}
	good := condition.Fact{Type: v1alpha1.ConditionBackedUp, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonBackedUp, Message: "complete"}
	failed := condition.Fact{Type: v1alpha1.ConditionBackedUp, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonBackupFailed, Message: "failed"}
	none := condition.Fact{Type: v1alpha1.ConditionBackedUp, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNoBackup, Message: "none"}
	for said, reason := range map[condition.Fact]string{good: v1alpha1.ReasonDrillFailed, none: v1alpha1.ReasonDrillFailed, failed: v1alpha1.ReasonBackupFailed} {
		c := backupstest.Scheduled()
		condition.Resolve(c, condition.Input{Facts: []condition.Fact{*backups.Verdicts{Runs: &said, Drill: &drill}.JudgeBackedUp()}})
		got := conditions.Get(c, v1alpha1.ConditionBackedUp)
		if got == nil || got.Status != metav1.ConditionFalse || got.Reason != reason || !strings.Contains(got.Message, "torn") || !strings.Contains(got.Message, said.Message) {
			t.Errorf("%+v; want %s", got, reason)
		}
	}
}

// A drill restores what no other pod has part in: without rights, from a volume
// that it cannot write to, onto one that is large enough.
func TestDrillObjects(t *testing.T) {
	s := drilled(running(false))
	s.own[1].Status.Result.DataSize = resource.MustParse("2Gi")
	pod := drillJob(s, s.own[1], drillName)
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	var made batchv1.Job
	if err := json.Unmarshal(text, &made); err != nil {
		t.Fatal(err)
	}
	spec := made.Spec.Template.Spec
	if *spec.AutomountServiceAccountToken || *spec.SecurityContext.RunAsUser != 999 || *made.Spec.ActiveDeadlineSeconds != drillSeconds {
		t.Errorf("%+v", spec)
	}
	for _, m := range spec.Containers[0].VolumeMounts {
		if m.Name == "backups" && !m.ReadOnly {
			t.Error("it may write to the backups")
		}
	}
	if *spec.SecurityContext.FSGroup != job.BackupUser || !slices.Contains(spec.SecurityContext.SupplementalGroups, job.BackupUser) {
		t.Errorf("the backups would be given to another group: %+v", spec.SecurityContext)
	}
	task := drillTask(s, s.own[1], drillName)
	if task.UID == "c" || task.Bandwidth != 7 || task.Manifest != "m" || task.Checksum != "sum" {
		t.Errorf("%+v", task)
	}
	if size := drillSize(s, s.own[1]); size < 4<<30 || size != task.VolumeSize {
		t.Errorf("%d bytes for 2Gi twice", size)
	}
	if size := drillSize(s, s.own[0]); size != 1<<30 {
		t.Errorf("%d bytes, and members have 1Gi", size)
	}
}

// The resources of a drill are its own, those of backups, or those of a restore.
func TestDrillResources(t *testing.T) {
	of := func(cpu string) *corev1.ResourceRequirements {
		return &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}
	}
	for want, change := range map[string]func(c *v1alpha1.CommonSpec){
		"7":    func(c *v1alpha1.CommonSpec) { c.Backup.Verify.Resources, c.Backup.Resources = of("7"), of("5") },
		"5":    func(c *v1alpha1.CommonSpec) { c.Backup.Resources, c.Resources = of("5"), *of("3") },
		"3":    func(c *v1alpha1.CommonSpec) { c.Resources = *of("3") },
		"100m": func(*v1alpha1.CommonSpec) {},
	} {
		s := drilled(running(false))
		change(s.cluster.Common())
		text, err := json.Marshal(drillJob(s, s.own[1], drillName))
		var job batchv1.Job
		if err == nil {
			err = json.Unmarshal(text, &job)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := job.Spec.Template.Spec.Containers[0].Resources.Requests.Cpu().String(); got != want {
			t.Errorf("%s of %s", got, want)
		}
	}
}
