package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// find reads the cluster that a person names as NAME or KIND/NAME.
func (s *session) find(ctx context.Context, arg string) (v1alpha1.Cluster, error) {
	if err := s.connect(); err != nil {
		return nil, err
	}
	prefix, name, qualified := strings.Cut(arg, "/")
	if !qualified {
		prefix, name = "", arg
	}
	var found []v1alpha1.Cluster
	known := false
	for _, k := range kinds() {
		if qualified && !k.called(prefix) {
			continue
		}
		known = true
		c := k.newOne()
		err := s.client.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: name}, c)
		switch {
		case err == nil:
			c.GetObjectKind().SetGroupVersionKind(k.gvk)
			found = append(found, c)
		case !apierrors.IsNotFound(err):
			return nil, explain(fmt.Errorf("read %s %s in namespace %s: %w", k.gvk.Kind, name, s.namespace, err))
		}
	}
	switch {
	case !known:
		return nil, fmt.Errorf("%q is no kind of cluster: use one of %s", prefix, strings.Join(kindNames(), ", "))
	case len(found) == 0:
		return nil, s.missing(ctx, name)
	case len(found) > 1:
		return nil, fmt.Errorf("several clusters in namespace %s are called %q: name the kind too, as in %s/%s",
			s.namespace, name, strings.ToLower(kindOf(found[0]).gvk.Kind), name)
	}
	return found[0], nil
}

func kindNames() []string {
	var names []string
	for _, k := range kinds() {
		names = append(names, strings.ToLower(k.gvk.Kind))
	}
	return names
}

// missing says what there is in place of the cluster that was asked for.
func (s *session) missing(ctx context.Context, name string) error {
	text := fmt.Sprintf("no cluster %q in namespace %s", name, s.namespace)
	if everywhere, err := s.clusters(ctx, ""); err == nil {
		var elsewhere []string
		for _, c := range everywhere {
			if c.GetName() == name {
				elsewhere = append(elsewhere, "-n "+c.GetNamespace())
			}
		}
		if len(elsewhere) > 0 {
			return fmt.Errorf("%s: there is one with %s", text, strings.Join(elsewhere, ", "))
		}
	}
	here, err := s.clusters(ctx, s.namespace)
	if err != nil {
		return errors.New(text)
	}
	if len(here) == 0 {
		return fmt.Errorf("%s, nor any other: choose a namespace with -n (kubectl holdfast status -A lists all clusters)", text)
	}
	var names []string
	for _, c := range here {
		names = append(names, c.GetName())
	}
	return fmt.Errorf("%s: there are %s", text, strings.Join(names, ", "))
}

// clusters of a namespace, or of all when it is empty, in a stable order.
func (s *session) clusters(ctx context.Context, namespace string) ([]v1alpha1.Cluster, error) {
	var all []v1alpha1.Cluster
	for _, k := range kinds() {
		list, err := k.list(ctx, s.client, namespace)
		if err != nil {
			return nil, explain(fmt.Errorf("list %ss: %w", k.gvk.Kind, err))
		}
		for _, c := range list {
			c.GetObjectKind().SetGroupVersionKind(k.gvk)
		}
		all = append(all, list...)
	}
	slices.SortStableFunc(all, func(a, b v1alpha1.Cluster) int {
		return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	})
	return all, nil
}

// complete offers the clusters' names.
func (s *session) complete(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 || s.connect() != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list, err := s.clusters(cmd.Context(), s.namespace)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, c := range list {
		if strings.HasPrefix(c.GetName(), prefix) {
			names = append(names, cobra.CompletionWithDesc(c.GetName(), c.CommonStatus().Phase))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
