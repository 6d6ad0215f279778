package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/plugin/gitops"
)

// findCluster reads the cluster that a person names as NAME or KIND/NAME. Where
// several kinds have one of that name, it is that of the preferred kind.
func (s *session) findCluster(ctx context.Context, arg string, preferred ...kind) (v1alpha1.Cluster, error) {
	if err := s.connectToCluster(); err != nil {
		return nil, err
	}
	prefix, name, qualified := strings.Cut(arg, "/")
	if !qualified {
		prefix, name = "", arg
	}
	if isDatabase(prefix) {
		return s.findDatabaseCluster(ctx, name)
	}
	var found []v1alpha1.Cluster
	var asked answers
	for _, k := range allKinds() {
		if qualified && !k.hasName(prefix) {
			continue
		}
		c, err := k.getCluster(ctx, s.client, client.ObjectKey{Namespace: s.namespace, Name: name})
		if err == nil {
			found = append(found, c)
		}
		asked.addAnswer(client.IgnoreNotFound(err), "read %s %s in namespace %s", k.gvk.Kind, name, s.namespace)
	}
	if len(found) > 1 && len(preferred) > 0 {
		found = slices.DeleteFunc(found, func(c v1alpha1.Cluster) bool {
			return !slices.ContainsFunc(preferred, func(k kind) bool { return k.gvk == kindOf(c).gvk })
		})
	}
	switch {
	case asked.kinds == 0:
		return nil, fmt.Errorf("%q is no kind of cluster: use one of %s, or database", prefix, strings.Join(kindNames(), ", "))
	case len(found) == 0 && asked.joinErrors() != nil:
		return nil, asked.joinErrors()
	case len(found) == 0:
		return nil, s.describeMissing(ctx, name)
	case len(found) > 1:
		return nil, fmt.Errorf("several clusters in namespace %s are called %q: name the kind too, as in %s", s.namespace, name, nameOf(found[0]))
	}
	return found[0], nil
}

// answers of the API server, one for each kind.
type answers struct {
	// kinds that were asked about, and whether the API server knows any.
	kinds  int
	known  bool
	failed []error
	// unknown is why the API server knows none.
	unknown error
}

// addAnswer takes an answer. A kind that the API server does not know has no clusters, as
// long as it knows another one.
func (a *answers) addAnswer(err error, format string, args ...any) {
	a.kinds++
	switch {
	case err == nil:
	case meta.IsNoMatchError(err):
		a.unknown = err
	default:
		a.failed = append(a.failed, fmt.Errorf(format+": %w", append(args, err)...))
	}
	if err == nil || !meta.IsNoMatchError(err) {
		a.known = true
	}
}

// joinErrors says why something may be missing.
func (a *answers) joinErrors() error {
	if !a.known && a.unknown != nil {
		return fmt.Errorf("this API server does not know Holdfast's kinds: install Holdfast, or choose another --context (%w)", a.unknown)
	}
	return errors.Join(a.failed...)
}

func kindNames() []string {
	var names []string
	for _, k := range allKinds() {
		names = append(names, strings.ToLower(k.gvk.Kind))
	}
	return names
}

// describeMissing says what there is in place of the cluster that was asked for.
func (s *session) describeMissing(ctx context.Context, name string) error {
	text := fmt.Sprintf("no cluster %q in namespace %s", name, s.namespace)
	everywhere, _ := s.listClusters(ctx, "") // what can be read is named
	var elsewhere []string
	for _, c := range everywhere {
		if c.GetName() == name && c.GetNamespace() != s.namespace {
			elsewhere = append(elsewhere, nameOf(c)+" with -n "+c.GetNamespace())
		}
	}
	if len(elsewhere) > 0 {
		return fmt.Errorf("%s: there is %s", text, strings.Join(elsewhere, ", "))
	}
	here, err := s.listClusters(ctx, s.namespace)
	switch {
	case err != nil && len(here) == 0:
		return errors.New(text)
	case len(here) == 0:
		return fmt.Errorf("%s, nor any other: choose a namespace with -n (kubectl holdfast status -A lists all clusters)", text)
	}
	var names []string
	for _, c := range here {
		names = append(names, nameOf(c))
	}
	return fmt.Errorf("%s: there are %s", text, strings.Join(names, ", "))
}

// listClusters reads the clusters of a namespace, or of all when it is empty, in a stable order. With
// an error, some may be missing.
func (s *session) listClusters(ctx context.Context, namespace string) ([]v1alpha1.Cluster, error) {
	var all []v1alpha1.Cluster
	var asked answers
	for _, k := range allKinds() {
		list, err := k.listClusters(ctx, s.client, namespace)
		asked.addAnswer(err, "list %ss", k.gvk.Kind)
		all = append(all, list...)
	}
	slices.SortStableFunc(all, func(a, b v1alpha1.Cluster) int {
		return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	})
	return all, asked.joinErrors()
}

// completeNames offers the names of clusters of these kinds; with the kind where
// that is begun, or where several have the name.
func (s *session) completeNames(of ...kind) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 || s.connectToCluster() != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		list, _ := s.listClusters(cmd.Context(), s.namespace) // what can be read is offered
		list = slices.DeleteFunc(list, func(c v1alpha1.Cluster) bool {
			return !slices.ContainsFunc(of, func(k kind) bool { return k.gvk == kindOf(c).gvk })
		})
		namesakes := map[string]int{}
		for _, c := range list {
			namesakes[c.GetName()]++
		}
		prefix, _, qualified := strings.Cut(typed, "/")
		var names []string
		for _, c := range list {
			name := c.GetName()
			switch {
			case qualified && !kindOf(c).hasName(prefix):
				continue
			case qualified:
				name = prefix + "/" + name
			case namesakes[name] > 1:
				name = nameOf(c)
			}
			if strings.HasPrefix(name, typed) || !qualified && strings.HasPrefix(c.GetName(), typed) {
				names = append(names, cobra.CompletionWithDesc(name, c.CommonStatus().Phase))
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

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
