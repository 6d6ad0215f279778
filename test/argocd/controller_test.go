//go:build apiserver

package argocd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/argoproj/argo-cd/v3/common"
	"github.com/argoproj/argo-cd/v3/controller"
	"github.com/argoproj/argo-cd/v3/controller/sharding"
	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	appclientset "github.com/argoproj/argo-cd/v3/pkg/client/clientset/versioned"
	"github.com/argoproj/argo-cd/v3/reposerver/apiclient"
	argoutil "github.com/argoproj/argo-cd/v3/util/argo"
	"github.com/argoproj/argo-cd/v3/util/argo/normalizers"
	cacheutil "github.com/argoproj/argo-cd/v3/util/cache"
	appstatecache "github.com/argoproj/argo-cd/v3/util/cache/appstate"
	utilio "github.com/argoproj/argo-cd/v3/util/io"
	kubeutil "github.com/argoproj/argo-cd/v3/util/kube"
	"github.com/argoproj/argo-cd/v3/util/settings"
	"google.golang.org/grpc"
	"k8s.io/client-go/kubernetes"
)

// repository is a folder that stands for a Git repository. Its methods are what
// the application controller asks of Argo CD's repository server; any other
// would panic.
type repository struct {
	apiclient.RepoServerServiceClient

	dir string

	mu       sync.Mutex
	revision int
}

func (r *repository) NewRepoServerClient() (utilio.Closer, apiclient.RepoServerServiceClient, error) {
	return utilio.NopCloser, r, nil
}

// commitChange changes the folder, as a whole.
func (r *repository) commitChange(change func(dir string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(r.dir)
	r.revision++
}

// GenerateManifest builds a path of the folder with kustomize, and marks what
// comes out as the repository server does.
func (r *repository) GenerateManifest(_ context.Context, in *apiclient.ManifestRequest, _ ...grpc.CallOption) (*apiclient.ManifestResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	built, err := runKustomize(filepath.Join(r.dir, in.ApplicationSource.Path))
	if err != nil {
		return nil, err
	}
	out := &apiclient.ManifestResponse{Revision: fmt.Sprintf("%040d", r.revision), SourceType: string(v1alpha1.ApplicationSourceTypeKustomize)}
	for _, o := range built {
		err := argoutil.NewResourceTracking().SetAppInstance(o, in.AppLabelKey, in.AppName, in.Namespace, v1alpha1.TrackingMethod(in.TrackingMethod), in.InstallationID)
		if err != nil {
			return nil, err
		}
		body, err := o.MarshalJSON()
		if err != nil {
			return nil, err
		}
		out.Manifests = append(out.Manifests, string(body))
	}
	return out, nil
}

// startController runs Argo CD's application controller until the test ends,
// with its cache in memory instead of Redis.
func startController(t *testing.T, git *repository) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	// How Argo CD's developers run it outside of the cluster that it is for.
	t.Setenv(v1alpha1.EnvVarFakeInClusterConfig, "true")
	t.Setenv("KUBECONFIG", file)

	ctx, cancel := context.WithCancel(t.Context())
	kube, apps := kubernetes.NewForConfigOrDie(config), appclientset.NewForConfigOrDie(config)
	manager := settings.NewSettingsManager(ctx, kube, argoNamespace)
	shards, err := sharding.GetClusterSharding(kube, manager, common.DefaultShardingAlgorithm, false)
	if err != nil {
		t.Fatal(err)
	}
	cache := appstatecache.NewCache(cacheutil.NewCache(cacheutil.NewInMemoryCache(time.Hour)), time.Hour)
	c, err := controller.NewApplicationController(
		argoNamespace, manager, kube, apps, git, nil, cache, kubeutil.NewKubectl(),
		3*time.Minute, 0, 0, // resync
		time.Second, nil, 0, // self-heal
		0, 0,
		0, time.Hour, nil, nil, nil, // metrics
		20, true, shards, nil, nil, false, false,
		normalizers.IgnoreNormalizerOpts{}, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx, 2, 2) })
	t.Cleanup(func() { cancel(); running.Wait() })
}
