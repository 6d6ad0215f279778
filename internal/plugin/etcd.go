package plugin

import (
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/etcd"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
	"github.com/holdfast-db/holdfast/internal/plugin/declaration"
)

func etcdKind() kind {
	return kind{
		gvk:            v1alpha1.GroupVersion.WithKind("EtcdCluster"),
		names:          []string{"ec", "etcdclusters", "etcdclusters.holdfast.dev"},
		engine:         "etcd",
		lead:           "leader",
		newCluster:     func() v1alpha1.Cluster { return &v1alpha1.EtcdCluster{} },
		newList:        func() client.ObjectList { return &v1alpha1.EtcdClusterList{} },
		pendingRestart: "holdfast_etcd_settings_pending_restart",
		size:           "holdfast_etcd_data_size_bytes",
		limit:          "holdfast_etcd_quota_bytes",
		declared: declaration.FromEngine(
			func(k *memberset.MemberEngine) engine.Engine[*v1alpha1.EtcdCluster, etcd.Observation] {
				return &etcd.Engine{MemberEngine: k}
			},
			func(o *etcd.Observation) *memberset.Observation { return &o.Observation }),
		client: program{
			name: "etcdctl", rights: "with a member's certificate", options: "get --prefix /app/", command: etcdctlCommandLine,
			example: `  kubectl holdfast etcdctl config -- get --prefix /app/
  kubectl holdfast etcdctl config -- endpoint status --cluster -w table
  kubectl holdfast etcdctl config -- put greeting < greeting.txt`,
		},
		connection: []connectionKey{
			{name: "endpoints", variable: "ETCDCTL_ENDPOINTS"}, {name: "host"}, {name: "port"},
			{name: "ca.crt", variable: "ETCDCTL_CACERT", file: true},
			{name: "tls.crt", variable: "ETCDCTL_CERT", file: true},
			{name: "tls.key", variable: "ETCDCTL_KEY", file: true, secret: true},
		},
	}
}

// etcdctlCommandLine asks the member by the name that its certificate carries,
// whichever CA signed it. The image has nothing to set an environment with, and
// etcdctl would ask the endpoints of two flags, so that one's own is the only.
func etcdctlCommandLine(c v1alpha1.Cluster, member string, args []string) []string {
	authorities := "ca.crt"
	if c.Common().TLS.CertificateSecretRef != nil {
		authorities = "server-ca.crt"
	}
	command := []string{
		"etcdctl", "--cacert=" + agentapi.TLSDir + "/" + authorities,
		"--cert=" + agentapi.TLSDir + "/tls.crt", "--key=" + agentapi.TLSDir + "/tls.key",
	}
	own := func(arg string) bool { return arg == "--endpoints" || strings.HasPrefix(arg, "--endpoints=") }
	if !slices.ContainsFunc(args, own) {
		host := objects.Set{Cluster: c}.PodHost(member)
		command = append(command, "--endpoints=https://"+objects.HostPort(host, etcd.Port))
	}
	return append(command, args...)
}
