package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apply"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/postgres"
	"github.com/holdfast-db/holdfast/internal/memberapi"
	"github.com/holdfast-db/holdfast/internal/members"
)

func postgresKind() kind {
	return kind{
		gvk:            v1alpha1.GroupVersion.WithKind("PostgresCluster"),
		names:          []string{"pg", "postgresclusters", "postgresclusters.holdfast.dev"},
		engine:         "PostgreSQL",
		newOne:         func() v1alpha1.Cluster { return &v1alpha1.PostgresCluster{} },
		list:           listPostgres,
		lag:            "holdfast_pg_replication_lag_seconds",
		pendingRestart: "holdfast_pg_settings_pending_restart",
		declared:       declaredPostgres,
		sql:            psqlCommandLine,
		environment: map[string]string{
			"host": "PGHOST", "port": "PGPORT", "username": "PGUSER", "database": "PGDATABASE", "password": "PGPASSWORD",
		},
	}
}

func listPostgres(ctx context.Context, r client.Reader, namespace string) ([]v1alpha1.Cluster, error) {
	var list v1alpha1.PostgresClusterList
	if err := r.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	out := make([]v1alpha1.Cluster, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out, nil
}

// psqlCommandLine is psql as the superuser, over the member's socket. What
// stands in the environment can be overridden by psql's own options. Its root
// file system is read-only, so the history goes to where one can write.
func psqlCommandLine(c v1alpha1.Cluster) []string {
	database := "app"
	if pg, ok := c.(*v1alpha1.PostgresCluster); ok && pg.Spec.Bootstrap.Database != "" {
		database = pg.Spec.Bootstrap.Database
	}
	return []string{
		"env", "PGHOST=" + memberapi.RunDir, "PGUSER=postgres", "PGDATABASE=" + database,
		"PSQL_HISTORY=/tmp/.psql_history", "psql",
	}
}

// silent stands for the members' agents, which answer the operator only. What
// should exist does not depend on them but while a cluster shrinks.
type silent struct{}

func (silent) Watch(types.NamespacedName, types.UID, members.Target) {}

func (silent) Get(types.NamespacedName) map[string]members.Observation { return nil }

// unread stands for the Secrets that a cluster names: what the operator took of
// them is in its own.
type unread struct{}

func (unread) Versions(context.Context, types.NamespacedName, ...string) (map[string]string, error) {
	return nil, nil
}

func (unread) Read(context.Context, types.NamespacedName) (*corev1.Secret, error) {
	return nil, errors.New("nobody reads a user's Secret to look for drift")
}

// declaredPostgres runs the engine's own observation and plan with the rights
// of whoever calls, and acts on nothing. The operator's settings are not in the
// API; which of the candidates it has shows in the hash that it noted on the
// StatefulSet.
func declaredPostgres(ctx context.Context, r client.Reader, cluster v1alpha1.Cluster) (declaration, error) {
	c, ok := cluster.(*v1alpha1.PostgresCluster)
	if !ok {
		return declaration{}, fmt.Errorf("%T is no PostgresCluster", cluster)
	}
	e := &postgres.Engine{Keeper: &memberset.Keeper{Reader: r, Members: silent{}, Secrets: unread{}, Clock: clock.RealClock{}}}
	o, err := e.Observe(ctx, c)
	if err != nil {
		return declaration{}, err
	}
	o.Settings.ImageRepository = repository(c.Status.Image)
	noted := ""
	if o.StatefulSet != nil {
		noted = o.StatefulSet.Annotations[v1alpha1.AnnotationAppliedHash]
	}
	var d declaration
	for _, image := range agentImages(ctx, r, o) {
		o.Settings.AgentImage = image
		objects := e.Plan(c, o, time.Now()).Objects
		if d.objects == nil {
			d.objects = objects
		}
		if hash, err := statefulSetHash(objects); err != nil {
			return declaration{}, err
		} else if hash == noted {
			d.objects = objects
			break
		}
	}
	for suffix, data := range map[string]map[string][]byte{"-ca": o.Minted.CA, "-internal": o.Minted.Internal, "-tls": o.Minted.TLS} {
		if data == nil && (suffix != "-ca" || c.Spec.TLS.CASecretRef == nil) {
			d.notes = append(d.notes, fmt.Sprintf("Secret/%s%s is missing: only the operator can say what it held; it puts it back, or makes a new one", c.Name, suffix))
		}
	}
	slices.Sort(d.notes)
	if c.Status.Replicas > int32(c.Spec.DesiredReplicas()) {
		d.notes = append(d.notes, "the cluster is shrinking, one member after the other: the number of replicas is compared as it is now")
	}
	return d, nil
}

// repository of an image reference, without tag and digest.
func repository(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if colon := strings.LastIndex(image, ":"); colon > strings.LastIndex(image, "/") {
		image = image[:colon]
	}
	return image
}

// agentImages are what the operator may inject, the likeliest first: what its
// own Deployment says, where one may read it, and what is in use.
func agentImages(ctx context.Context, r client.Reader, o memberset.Observation) []string {
	var images []string
	add := func(image string) {
		if image != "" && !slices.Contains(images, image) {
			images = append(images, image)
		}
	}
	var operators appsv1.DeploymentList
	if err := r.List(ctx, &operators, client.MatchingLabels{"app.kubernetes.io/name": "holdfast"}); err == nil {
		for i := range operators.Items {
			for _, container := range operators.Items[i].Spec.Template.Spec.Containers {
				for _, env := range container.Env {
					if env.Name == "HOLDFAST_AGENT_IMAGE" {
						add(env.Value)
					}
				}
			}
		}
	}
	installers := func(spec corev1.PodSpec) {
		for _, container := range spec.InitContainers {
			if len(container.Args) > 1 && container.Args[0] == "agent" && container.Args[1] == "install" {
				add(container.Image)
			}
		}
	}
	if o.StatefulSet != nil {
		installers(o.StatefulSet.Spec.Template.Spec)
	}
	for _, pod := range o.Pods {
		installers(pod.Spec)
	}
	return images
}

func statefulSetHash(objects []runtime.ApplyConfiguration) (string, error) {
	for _, ac := range objects {
		if set, is := ac.(*appsv1ac.StatefulSetApplyConfiguration); is {
			return apply.Hash(set)
		}
	}
	return "", nil
}
