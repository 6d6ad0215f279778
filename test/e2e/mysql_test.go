//go:build e2e || soak

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// mysqlGroup is a MySQLCluster under test. It is none of allKinds yet.
type mysqlGroup struct {
	t   *testing.T
	key types.NamespacedName
}

// survivesEvents: an application that knows the connection Secret writes through a
// switchover, the deletion of the primary's pod and the end of its server. What was
// acknowledged is on every member.
func (g mysqlGroup) survivesEvents(obj *unstructured.Unstructured) {
	g.t.Helper()
	t := g.t
	app := g.startWriter()
	first := g.awaitReady("").Status.Primary
	target := g.key.Name + "-1"
	if first == target {
		target = g.key.Name + "-2"
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"e2e@%s"}}}`, v1alpha1.AnnotationSwitchover, target)
	must(t, env.client.Patch(t.Context(), obj, client.RawPatch(types.MergePatchType, patch)), "request a switchover")
	eventually(t, readyTimeout, target+" leads", func(ctx context.Context) error {
		now, err := g.read(ctx)
		if err == nil && now.Status.Primary != target {
			err = fmt.Errorf("%s leads", now.Status.Primary)
		}
		return err
	})
	app.goesOn(t)

	deletePod(t, g.pod(target), false)
	next := g.awaitReady(target).Status.Primary
	app.goesOn(t)

	_, err := runCommand(inContainer(t.Context(), "mysql"), g.key.Namespace, next, "", "sh", "-c", "kill -9 $(cat "+agentapi.RunDir+"/mysqld.pid)")
	must(t, err, "kill mysqld in "+next)
	g.awaitReady(next)
	app.goesOn(t)
	g.checkNumbers(app)
	g.restoresBackup(app)
}

func (g mysqlGroup) read(ctx context.Context) (*v1alpha1.MySQLCluster, error) {
	var obj v1alpha1.MySQLCluster
	return &obj, env.client.Get(ctx, g.key, &obj)
}

// awaitReady waits until the cluster is ready with another primary than one, and returns
// it.
func (g mysqlGroup) awaitReady(other string) *v1alpha1.MySQLCluster {
	g.t.Helper()
	var obj *v1alpha1.MySQLCluster
	eventually(g.t, readyTimeout, "the group is ready", func(ctx context.Context) (err error) {
		if obj, err = g.read(ctx); err != nil {
			return err
		}
		ready := apimeta.FindStatusCondition(obj.Status.Conditions, v1alpha1.ConditionReady)
		switch {
		case ready == nil || ready.Status != metav1.ConditionTrue || ready.ObservedGeneration != obj.Generation || obj.Status.Ready != "3/3":
			return fmt.Errorf("ready %s, condition %+v", obj.Status.Ready, ready)
		case obj.Status.Primary == "" || obj.Status.Primary == other:
			return fmt.Errorf("primary is %q", obj.Status.Primary)
		}
		return nil
	})
	return obj
}

func (g mysqlGroup) pod(name string) *corev1.Pod {
	g.t.Helper()
	var pod corev1.Pod
	must(g.t, env.client.Get(g.t.Context(), types.NamespacedName{Namespace: g.key.Namespace, Name: name}, &pod), "read pod "+name)
	return &pod
}

// queryMySQL asks a member's server, as its agent does.
func queryMySQL(ctx context.Context, namespace, pod, query string) (string, error) {
	out, err := runCommand(inContainer(ctx, "mysql"), namespace, pod, "", "mysql", "-S", agentapi.RunDir+"/mysqld.sock", "-u", "holdfast", "-N", "-e", query)
	return strings.TrimSpace(out), err
}

// checkMySQL: a cluster that an example declares is one group with one primary, which is
// the one that the status names, and its parameters are in force.
func checkMySQL(t *testing.T, obj *unstructured.Unstructured) {
	t.Helper()
	eventually(t, readyTimeout, "what the example declares", func(ctx context.Context) error {
		var now v1alpha1.MySQLCluster
		if err := env.client.Get(ctx, client.ObjectKeyFromObject(obj), &now); err != nil {
			return err
		}
		var errs []error
		for n := range now.Spec.DesiredReplicas() {
			errs = append(errs, checkMySQLMember(ctx, &now, fmt.Sprintf("%s-%d", now.Name, n)))
		}
		return errors.Join(errs...)
	})
}

func checkMySQLMember(ctx context.Context, obj *v1alpha1.MySQLCluster, pod string) error {
	group, err := queryMySQL(ctx, obj.Namespace, pod, "select count(*), max(if(member_role = 'PRIMARY', substring_index(member_host, '.', 1), '')) "+
		"from performance_schema.replication_group_members where member_state = 'ONLINE'")
	if want := fmt.Sprintf("%d\t%s", obj.Spec.DesiredReplicas(), obj.Status.Primary); err == nil && group != want {
		err = fmt.Errorf("%s sees a group of %q, want %q", pod, group, want)
	}
	if err != nil {
		return err
	}
	for name, want := range obj.Spec.Parameters {
		have, err := queryMySQL(ctx, obj.Namespace, pod, "select @@global."+name)
		if err == nil && have != want {
			err = fmt.Errorf("%s runs with %s = %s, want %s", pod, name, have, want)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// acknowledged is where the writer keeps the numbers that were acknowledged.
const acknowledged = "/tmp/acknowledged"

// writeNumbers inserts one number after the other, each until it is acknowledged. Each one
// starts a program, so it rests in between: without that it would occupy the machine.
const writeNumbers = `
export MYSQL_PWD="$(cat /tmp/connection/password)"
host="$(cat /tmp/connection/host)" user="$(cat /tmp/connection/username)"
sql() { mysql --host="$host" --user="$user" --database=app \
  --ssl-mode=VERIFY_IDENTITY --ssl-ca=/tmp/connection/ca.crt --connect-timeout=2 -e "$1" 2>/tmp/error; }
until sql "create table if not exists numbers (n int primary key)"; do sleep 0.2; done
n=0
while :; do
  n=$((n+1))
  until sql "insert ignore into numbers values ($n)"; do sleep 0.5; done
  echo $n >>` + acknowledged + `
  sleep 0.5
done`

// mysqlWriter is an application in another namespace.
type mysqlWriter struct{ *clientPod }

func (g mysqlGroup) startWriter() mysqlWriter {
	g.t.Helper()
	namespace := newNamespace(g.t, "app-")
	var secret corev1.Secret
	must(g.t, env.client.Get(g.t.Context(), types.NamespacedName{Namespace: g.key.Namespace, Name: g.key.Name + "-app"}, &secret), "read the connection Secret")
	copied := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "connection"}, Data: secret.Data}
	must(g.t, env.client.Create(g.t.Context(), copied), "copy the connection Secret")
	pod := clientPodOf(namespace, imageRef(g.t, "mysql", needImages(g.t, "mysql", "9.7", 1)[0]))
	pod.Spec.Containers[0].Command = []string{"sh", "-c", writeNumbers}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "connection", MountPath: connection, ReadOnly: true}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "connection", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: copied.Name}}}}
	app := mysqlWriter{startClient(g.t, pod)}
	app.goesOn(g.t)
	return app
}

// goesOn waits until another write is acknowledged.
func (w mysqlWriter) goesOn(t *testing.T) {
	t.Helper()
	before := len(w.numbers(t))
	eventually(t, readyTimeout, "the application writes", func(context.Context) error {
		if now := len(w.numbers(t)); now <= before {
			out, _ := runCommand(t.Context(), w.namespace, w.name, "", "cat", "/tmp/error")
			return fmt.Errorf("%d numbers are acknowledged; %s", now, out)
		}
		return nil
	})
}

func (w mysqlWriter) numbers(t *testing.T) []string {
	t.Helper()
	out, err := runCommand(t.Context(), w.namespace, w.name, "", "sh", "-c", "cat "+acknowledged+" 2>/dev/null || true")
	must(t, err, "read what was acknowledged")
	return strings.Fields(out)
}

// checkNumbers compares what was acknowledged with what every member has.
func (g mysqlGroup) checkNumbers(app mysqlWriter) {
	g.t.Helper()
	numbers := app.numbers(g.t)
	g.t.Logf("%d writes were acknowledged", len(numbers))
	for n := range 3 {
		pod := fmt.Sprintf("%s-%d", g.key.Name, n)
		eventually(g.t, readyTimeout, "what was acknowledged on "+pod, func(ctx context.Context) error {
			out, err := queryMySQL(ctx, g.key.Namespace, pod, "select n from app.numbers")
			if err != nil {
				return err
			}
			return checkContains(pod, strings.Fields(out), numbers)
		})
	}
}

// checkContains says which number a member lacks.
func checkContains(pod string, has, numbers []string) error {
	have := map[string]bool{}
	for _, number := range has {
		have[number] = true
	}
	for _, number := range numbers {
		if !have[number] {
			return fmt.Errorf("%s lacks %s", pod, number)
		}
	}
	return nil
}
