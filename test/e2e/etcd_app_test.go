//go:build e2e || soak

package e2e

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// connection is where an application finds the connection Secret.
const connection = "/tmp/connection"

// etcdApp is an application in another namespace than the cluster, with a copy
// of the connection Secret and etcdctl.
type etcdApp struct {
	*clientPod
	endpoints string
}

func newEtcdApp(t *testing.T, c *subject) *etcdApp {
	t.Helper()
	namespace := newNamespace(t, "app-")
	copied := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "connection"}, Data: c.readSecret("-app")}
	must(t, env.client.Create(t.Context(), copied), "copy the connection Secret")
	p := &etcdApp{endpoints: string(copied.Data["endpoints"])}
	if p.endpoints == "" {
		t.Fatal("the connection Secret has no endpoints")
	}
	pod := clientPodOf(namespace, imageRef(t, "etcd", newestEtcd("3.7")))
	// There is no shell to wait in.
	pod.Spec.Containers[0].Command = append(p.etcdctlCommand(), "watch", "nothing")
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "connection", MountPath: connection, ReadOnly: true}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "connection", VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: copied.Name},
	}}}
	p.clientPod = startClient(t, pod)
	return p
}

// etcdctlCommand is an etcdctl that trusts the cluster and shows it the application's certificate.
func (p *etcdApp) etcdctlCommand() []string {
	return append(p.strangerCommand(), "--cert", connection+"/tls.crt", "--key", connection+"/tls.key")
}

// strangerCommand trusts the cluster and shows it nothing.
func (p *etcdApp) strangerCommand() []string {
	return []string{"etcdctl", "--endpoints", p.endpoints, "--cacert", connection + "/ca.crt"}
}

// runEtcdctl runs etcdctl, where a failure ends the test. A Service that was just made
// may take the nodes a moment: reading is waited for.
func (p *etcdApp) runEtcdctl(t *testing.T, arguments ...string) string {
	t.Helper()
	eventually(t, serviceTimeout, "an application reads", func(ctx context.Context) error {
		_, err := runCommand(ctx, p.namespace, p.name, "", append(p.etcdctlCommand(), "get", "anything")...)
		return err
	})
	out, err := runCommand(t.Context(), p.namespace, p.name, "", append(p.etcdctlCommand(), arguments...)...)
	must(t, err, "etcdctl")
	return out
}

// awaitRefused wants etcdctl without a certificate to get nothing. The server's word
// for it may be lost to a client that is still writing, never its refusal.
func (p *etcdApp) awaitRefused(t *testing.T, arguments ...string) {
	t.Helper()
	eventually(t, serviceTimeout, "a client without a certificate gets the reason why it is refused", func(ctx context.Context) error {
		_, err := runCommand(ctx, p.namespace, p.name, "", append(p.strangerCommand(), arguments...)...)
		if err == nil {
			t.Fatal("a client without a certificate is served")
		}
		return holdsAll(err.Error(), "certificate required")
	})
}
