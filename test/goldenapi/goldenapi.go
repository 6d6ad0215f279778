// Package goldenapi stands in for the API server where a test needs its answers to readers
// only, from data of the test's own. It refuses whatever writes.
package goldenapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"
)

// Server answers readers of the API server, and records each request.
type Server struct {
	// Lists of objects by resource. A resource that is in none is forbidden.
	Lists map[string][]any
	// Metrics of a member by pod; pods/proxy is forbidden when nil.
	Metrics map[string]string

	server *httptest.Server

	mu       sync.Mutex
	requests []string
}

// apiGroups are the resources that there are, with their kinds, by group and version.
var apiGroups = map[string]map[string]string{
	"v1": {
		"pods": "Pod", "persistentvolumeclaims": "PersistentVolumeClaim", "events": "Event", "secrets": "Secret",
		"resourcequotas": "ResourceQuota", "services": "Service", "configmaps": "ConfigMap",
	},
	"apps/v1":                {"statefulsets": "StatefulSet"},
	"batch/v1":               {"jobs": "Job"},
	"coordination.k8s.io/v1": {"leases": "Lease"},
	"discovery.k8s.io/v1":    {"endpointslices": "EndpointSlice"},
	"storage.k8s.io/v1":      {"storageclasses": "StorageClass"},
	"holdfast.dev/v1alpha1": {
		"postgresclusters": "PostgresCluster", "mysqlclusters": "MySQLCluster", "etcdclusters": "EtcdCluster",
		"databases": "Database", "backups": "Backup",
	},
}

// Start has the server listen until the test ends.
func Start(t testing.TB, a *Server) *Server {
	t.Helper()
	a.server = httptest.NewServer(a)
	t.Cleanup(a.server.Close)
	return a
}

// Kubeconfig is the path of one that names this server, and the namespace shop.
func (a *Server) Kubeconfig(t testing.TB) string {
	t.Helper()
	config := clientcmdapi.Config{
		APIVersion: "v1", Kind: "Config", CurrentContext: "golden",
		Clusters:  []clientcmdapi.NamedCluster{{Name: "golden", Cluster: clientcmdapi.Cluster{Server: a.server.URL}}},
		AuthInfos: []clientcmdapi.NamedAuthInfo{{Name: "viewer"}},
		Contexts:  []clientcmdapi.NamedContext{{Name: "golden", Context: clientcmdapi.Context{Cluster: "golden", AuthInfo: "viewer", Namespace: "shop"}}},
	}
	data, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Requests are those until now, as METHOD path.
func (a *Server) Requests() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.requests...)
}

// ServeHTTP implements http.Handler.
func (a *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.requests = append(a.requests, r.Method+" "+r.URL.Path)
	a.mu.Unlock()
	path := strings.Trim(r.URL.Path, "/")
	parts := strings.Split(path, "/")
	switch {
	case path == "api":
		reply(w, http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions", APIVersion: "v1"}, Versions: []string{"v1"}})
	case path == "apis":
		list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
		for version := range apiGroups {
			if group, _, named := strings.Cut(version, "/"); named {
				list.Groups = append(list.Groups, discoverGroup(group))
			}
		}
		reply(w, http.StatusOK, list)
	case parts[0] == "apis" && len(parts) == 2:
		reply(w, http.StatusOK, discoverGroup(parts[1]))
	case parts[0] == "apis" && len(parts) == 3:
		reply(w, http.StatusOK, discoverResources(parts[1]+"/"+parts[2]))
	case path == "api/v1":
		reply(w, http.StatusOK, discoverResources("v1"))
	case parts[0] == "apis":
		a.serveObjects(w, r, parts[1]+"/"+parts[2], strings.Join(parts[3:], "/"))
	default:
		a.serveObjects(w, r, "v1", strings.Join(parts[2:], "/"))
	}
}

// serveObjects answers a list, or the reading of one object or of its metrics.
func (a *Server) serveObjects(w http.ResponseWriter, r *http.Request, version, path string) {
	var namespace string
	if rest, is := strings.CutPrefix(path, "namespaces/"); is {
		namespace, path, _ = strings.Cut(rest, "/")
	}
	resource, rest, _ := strings.Cut(path, "/")
	name, sub, _ := strings.Cut(rest, "/")
	objects, allowed := a.Lists[resource]
	pod, _, _ := strings.Cut(name, ":")
	metrics, known := a.Metrics[pod]
	switch proxied := strings.HasPrefix(sub, "proxy"); {
	case r.Method != http.MethodGet, proxied && !known, !proxied && !allowed:
		forbid(w, resource, name)
		return
	case proxied:
		fmt.Fprint(w, metrics)
		return
	}
	items := []any{}
	for _, o := range objects {
		of := o.(metav1.Object)
		if (namespace == "" || of.GetNamespace() == namespace) && (name == "" || of.GetName() == name) {
			items = append(items, o)
		}
	}
	switch {
	case name == "":
		reply(w, http.StatusOK, map[string]any{"apiVersion": version, "kind": apiGroups[version][resource] + "List", "metadata": map[string]any{"resourceVersion": "1"}, "items": items})
	case len(items) == 0:
		reply(w, http.StatusNotFound, status(http.StatusNotFound, metav1.StatusReasonNotFound, resource+" "+name+" not found"))
	default:
		reply(w, http.StatusOK, items[0])
	}
}

func discoverGroup(name string) metav1.APIGroup {
	group := metav1.APIGroup{TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: name}
	for groupVersion := range apiGroups {
		if of, version, _ := strings.Cut(groupVersion, "/"); of == name {
			group.PreferredVersion = metav1.GroupVersionForDiscovery{GroupVersion: groupVersion, Version: version}
			group.Versions = append(group.Versions, group.PreferredVersion)
		}
	}
	return group
}

func discoverResources(version string) metav1.APIResourceList {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: version}
	for name, kind := range apiGroups[version] {
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: name, SingularName: strings.ToLower(kind), Kind: kind, Namespaced: kind != "StorageClass", Verbs: metav1.Verbs{"get", "list"},
		})
	}
	return list
}

func status(code int32, reason metav1.StatusReason, message string) metav1.Status {
	return metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}
}

func forbid(w http.ResponseWriter, resource, name string) {
	reply(w, http.StatusForbidden, status(http.StatusForbidden, metav1.StatusReasonForbidden, fmt.Sprintf("%s %q is forbidden: User \"viewer\" cannot read it", resource, name)))
}

func reply(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(value)
}
