package plugin

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/plugin/gitops"
)

var databaseGVK = v1alpha1.GroupVersion.WithKind("Database")

// isDatabase says whether a person means a Database by what stands before the slash.
func isDatabase(prefix string) bool {
	switch strings.ToLower(prefix) {
	case "db", "database", "databases", "databases.holdfast.dev":
		return true
	}
	return false
}

// findDatabaseCluster reads the cluster that runs a Database: every verb is about that.
func (s *session) findDatabaseCluster(ctx context.Context, name string) (v1alpha1.Cluster, error) {
	d := &v1alpha1.Database{}
	err := s.client.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: name}, d)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("no Database %q in namespace %s: kubectl get db -A lists them", name, s.namespace)
	}
	if err != nil {
		return nil, fmt.Errorf("read Database %s in namespace %s: %w", name, s.namespace, err)
	}
	for _, k := range allKinds() {
		if d.Status.Cluster != nil && d.Status.Cluster.Kind == k.gvk.Kind {
			return k.getCluster(ctx, s.client, client.ObjectKey{Namespace: s.namespace, Name: d.Status.Cluster.Name})
		}
	}
	return nil, fmt.Errorf("Database %s has no cluster: %s", name, orDash(findCondition(d.Status.Conditions, v1alpha1.ConditionReady).Message)) //nolint:staticcheck // a kind's name
}

// declaringObject is what a cluster is declared by: the Database that it belongs to, of
// which nothing but kind, name and UID is known; else the cluster itself.
func declaringObject(c v1alpha1.Cluster) client.Object {
	owner := metav1.GetControllerOfNoCopy(c)
	if owner == nil || owner.Kind != databaseGVK.Kind || !strings.HasPrefix(owner.APIVersion, databaseGVK.Group+"/") {
		return c
	}
	d := &v1alpha1.Database{ObjectMeta: metav1.ObjectMeta{Namespace: c.GetNamespace(), Name: owner.Name, UID: owner.UID}}
	d.SetGroupVersionKind(databaseGVK)
	return d
}

// describeDeclaration says what a cluster is declared by beside a person, and which Git
// tool applies that; empty for neither.
func (s *session) describeDeclaration(ctx context.Context, c v1alpha1.Cluster) (string, error) {
	d, is := declaringObject(c).(*v1alpha1.Database)
	if !is {
		if tool := gitops.FindTool(c); tool != nil {
			return tool.String(), nil
		}
		return "", nil
	}
	text := "Database " + d.Name
	if err := s.client.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
		return text, client.IgnoreNotFound(err)
	}
	if tool := gitops.FindTool(d); tool != nil {
		text += ", " + tool.String()
	}
	return text, nil
}
