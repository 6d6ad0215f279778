package plan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentclient"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/etcd"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
	"github.com/holdfast-db/holdfast/internal/engine/mysql"
	"github.com/holdfast-db/holdfast/internal/engine/postgres"
	"github.com/holdfast-db/holdfast/internal/etcdversion"
	"github.com/holdfast-db/holdfast/internal/forecast"
	"github.com/holdfast-db/holdfast/internal/forecast/settings"
)

// kind is what a plan needs to know of one kind of cluster.
type kind struct {
	name       string
	newCluster func() v1alpha1.Cluster
	// repository that versions are looked up in, unless the operator's flags name another.
	repository string
	// reads is the suffix of the Service that reads go to, and lead what the member is
	// called that takes writes.
	reads, lead string
	engineOf    func(v1alpha1.Cluster) forecast.Engine
	// describeCatalogue says what the effects of parameters of a version are taken from, and
	// explainOneWay why one version does not go back to another; nil for nothing to say.
	describeCatalogue func(version string) string
	explainOneWay     func(from, to string) string
	observe           func(context.Context, *memberset.MemberEngine, v1alpha1.Cluster) (memberset.Observation, *v1alpha1.Backup, error)
}

// kinds of cluster, by name.
var kinds = map[string]kind{
	"PostgresCluster": {
		name: "PostgresCluster", repository: "docker.io/library/postgres", reads: "-ro", lead: "primary",
		describeCatalogue: describePostgresCatalogue,
		newCluster:        func() v1alpha1.Cluster { return &v1alpha1.PostgresCluster{} },
		engineOf: func(c v1alpha1.Cluster) forecast.Engine {
			return forecast.Engine{
				Members: func(c v1alpha1.Cluster) objects.Set {
					return postgres.MembersOf(c.(*v1alpha1.PostgresCluster)) //nolint:forcetypeassert // of this kind
				},
				Plan: func(w *forecast.World) engine.Plan {
					return (&postgres.Engine{}).Plan(w.Cluster.(*v1alpha1.PostgresCluster), *w.Observed, w.Now) //nolint:forcetypeassert // of this kind
				},
				Agents: forecast.NewPostgresAgents(c),
			}
		},
		observe: func(ctx context.Context, k *memberset.MemberEngine, c v1alpha1.Cluster) (memberset.Observation, *v1alpha1.Backup, error) {
			o, err := (&postgres.Engine{MemberEngine: k}).Observe(ctx, c.(*v1alpha1.PostgresCluster)) //nolint:forcetypeassert // of this kind
			return o, nil, err
		},
	},
	"MySQLCluster": {
		name: "MySQLCluster", repository: "docker.io/library/mysql", reads: "-ro", lead: "primary",
		describeCatalogue: describeMySQLCatalogue,
		newCluster:        func() v1alpha1.Cluster { return &v1alpha1.MySQLCluster{} },
		engineOf: func(c v1alpha1.Cluster) forecast.Engine {
			return forecast.Engine{
				Members: func(c v1alpha1.Cluster) objects.Set {
					return mysql.MembersOf(c.(*v1alpha1.MySQLCluster)) //nolint:forcetypeassert // of this kind
				},
				Plan: func(w *forecast.World) engine.Plan {
					return (&mysql.Engine{}).Plan(w.Cluster.(*v1alpha1.MySQLCluster), *w.Observed, w.Now) //nolint:forcetypeassert // of this kind
				},
				Agents: forecast.NewMySQLAgents(c),
			}
		},
		observe: func(ctx context.Context, k *memberset.MemberEngine, c v1alpha1.Cluster) (memberset.Observation, *v1alpha1.Backup, error) {
			o, err := (&mysql.Engine{MemberEngine: k}).Observe(ctx, c.(*v1alpha1.MySQLCluster)) //nolint:forcetypeassert // of this kind
			return o, nil, err
		},
	},
	"EtcdCluster": {
		name: "EtcdCluster", repository: "quay.io/coreos/etcd", reads: "-client", lead: "leader",
		explainOneWay: explainEtcdOneWay,
		newCluster:    func() v1alpha1.Cluster { return &v1alpha1.EtcdCluster{} },
		engineOf: func(c v1alpha1.Cluster) forecast.Engine {
			return forecast.Engine{
				Members: func(c v1alpha1.Cluster) objects.Set {
					return etcd.MembersOf(c.(*v1alpha1.EtcdCluster)) //nolint:forcetypeassert // of this kind
				},
				Plan: func(w *forecast.World) engine.Plan {
					o := etcd.Observation{Observation: *w.Observed, Tried: map[string]time.Time{}, Precaution: w.Precaution, Quota: w.ReadConfig().DataLimit}
					return (&etcd.Engine{}).Plan(w.Cluster.(*v1alpha1.EtcdCluster), o, w.Now) //nolint:forcetypeassert // of this kind
				},
				Agents: forecast.NewEtcdAgents(c),
			}
		},
		observe: func(ctx context.Context, k *memberset.MemberEngine, c v1alpha1.Cluster) (memberset.Observation, *v1alpha1.Backup, error) {
			o, err := (&etcd.Engine{MemberEngine: k}).Observe(ctx, c.(*v1alpha1.EtcdCluster)) //nolint:forcetypeassert // of this kind
			return o.Observation, o.Precaution, err
		},
	},
}

// describePostgresCatalogue says so where the catalogue is of another version.
func describePostgresCatalogue(version string) string {
	major := 0
	if _, err := fmt.Sscanf(version, "%d", &major); err != nil {
		return ""
	}
	if catalogue := settings.ForPostgres(major); !catalogue.Exact {
		return fmt.Sprintf("effects of parameters are those of PostgreSQL %s; values are not checked", catalogue.Version)
	}
	return ""
}

// describeMySQLCatalogue says so where the catalogue is of another version.
func describeMySQLCatalogue(version string) string {
	if catalogue := settings.ForMySQL(version); !catalogue.Exact {
		return fmt.Sprintf("effects of parameters are those of MySQL %s", catalogue.Version)
	}
	return ""
}

// explainEtcdOneWay says that a minor version takes over the data for good.
func explainEtcdOneWay(from, to string) string {
	before, known := etcdversion.ParseDeclared(from)
	after, is := etcdversion.ParseDeclared(to)
	if known && is && after.Minor > before.Minor {
		return "etcd does not go back to an older minor version"
	}
	return ""
}

// decode reads a cluster from the JSON of an object.
func (k kind) decode(object map[string]any) (v1alpha1.Cluster, error) {
	c := k.newCluster()
	data, err := json.Marshal(object)
	if err == nil {
		err = json.Unmarshal(data, c)
	}
	if err != nil {
		return nil, fmt.Errorf("read the %s: %w", k.name, err)
	}
	c.GetObjectKind().SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(k.name))
	return c, nil
}

// unasked stands for the members' agents, which answer the operator only.
type unasked struct{}

func (unasked) Watch(types.NamespacedName, types.UID, agentclient.Target) {}

func (unasked) Get(types.NamespacedName) map[string]agentclient.Observation { return nil }

// unread stands for Secrets that a cluster names.
type unread struct{}

func (unread) ReadVersions(context.Context, types.NamespacedName, ...string) (map[string]string, error) {
	return nil, nil
}

func (unread) Read(context.Context, types.NamespacedName) (*corev1.Secret, error) {
	return nil, errors.New("no Secret is read for a plan")
}

// withoutSecrets reads all but Secrets: of them it lists none.
type withoutSecrets struct{ client.Reader }

// List implements client.Reader.
func (r withoutSecrets) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, are := list.(*corev1.SecretList); are {
		return nil
	}
	return r.Reader.List(ctx, list, opts...)
}

// observer is the member engine by which a cluster is observed with the caller's rights.
func observer(r client.Reader) *memberset.MemberEngine {
	return &memberset.MemberEngine{Reader: withoutSecrets{r}, Members: unasked{}, Secrets: unread{}, Clock: clock.RealClock{}}
}
