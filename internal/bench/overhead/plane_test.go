//go:build bench

// Package overhead measures what the agent costs the database beside it: how much less the
// database does, and what memory the agent takes. The agents are programs, of this build and
// of an earlier one, and run in the file tree of a database's image against a real API server.
// test/run-overhead-bench.sh prepares all of that.
package overhead

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/url"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

const (
	namespace = "shop"
	cluster   = "orders"
	podName   = cluster + "-0"
	// host is the member's name for others.
	host = podName + "." + cluster + "-members." + namespace + ".svc"
)

// plane is an API server, and what a pod has to reach it.
type plane struct {
	client           kubernetes.Interface
	host, port       string
	token, authority []byte
	// certificate and key of the members: one that signs itself.
	certificate, key []byte
}

func startPlane(t *testing.T) *plane {
	t.Helper()
	logf.SetLogger(logr.Discard())
	env := &envtest.Environment{ControlPlaneStartTimeout: 2 * time.Minute, ControlPlaneStopTimeout: time.Minute}
	// There is no other network than this one.
	env.ControlPlane.GetAPIServer().Configure().Set("advertise-address", "127.0.0.1").Set("shutdown-delay-duration", "0s")
	config, err := env.Start()
	if err != nil {
		t.Fatalf("start the API server (KUBEBUILDER_ASSETS names its binaries): %v", err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	address, err := url.Parse(config.Host)
	if err != nil || address.Port() == "" {
		if address, err = url.Parse("https://" + config.Host); err != nil {
			t.Fatal(err)
		}
	}
	p := &plane{host: address.Hostname(), port: address.Port(), authority: config.CAData}
	if p.client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	p.makeAccount(t)
	p.makeCertificate(t)
	return p
}

// makeAccount makes what the agent logs in with.
func (p *plane) makeAccount(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	_, err := p.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = p.client.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "member"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err = p.client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "member"},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "member"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	seconds := int64(4 * 3600)
	request, err := p.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, "member",
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.token = []byte(request.Status.Token)
}

func (p *plane) makeCertificate(t *testing.T) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: agentapi.MemberName},
		DNSNames: []string{"localhost", host}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	p.certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	p.key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}

// clientTLS is that of a member, as which the test asks the agent.
func (p *plane) clientTLS(t *testing.T) *tls.Config {
	t.Helper()
	pair, err := tls.X509KeyPair(p.certificate, p.key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(p.certificate)
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS12}
}

// configure writes the ConfigMap of the cluster, as the operator does.
func (p *plane) configure(t *testing.T, config agentapi.ClusterConfig) {
	t.Helper()
	data, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	maps := p.client.CoreV1().ConfigMaps(namespace)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: cluster + "-config", Namespace: namespace}, Data: map[string]string{agentapi.ConfigKey: string(data)}}
	if _, err = maps.Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		_, err = maps.Create(t.Context(), object, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// makePod makes the pod's object anew, and returns its UID.
func (p *plane) makePod(t *testing.T) string {
	t.Helper()
	pods := p.client.CoreV1().Pods(namespace)
	now := int64(0)
	_ = pods.Delete(t.Context(), podName, metav1.DeleteOptions{GracePeriodSeconds: &now})
	pod, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: podName, Namespace: namespace},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "database", Image: "none"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return string(pod.UID)
}

// forgetCluster removes what agents of an earlier cluster have left.
func (p *plane) forgetCluster(t *testing.T) {
	t.Helper()
	if err := p.client.CoordinationV1().Leases(namespace).DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
}
