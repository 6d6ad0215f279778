//go:build e2e || soak

package e2e

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/internal/pki"
)

const (
	// bucket that a store has from the first on.
	bucket = "backups"
	// storeName is that of a store's objects, storePort that of its Service.
	storeName = "store"
	storePort = 7070
	// storeLine is the line of versions that its image is of.
	storeLine = "1.8"
)

// The keys of what a client of a store has to know.
const (
	accessKeyID = "AWS_ACCESS_KEY_ID"
	accessKey   = "AWS_SECRET_ACCESS_KEY"
	trustedCA   = "ca.crt"
)

// store is an S3 store in a namespace of its own. It speaks TLS alone, by a
// certificate that only its own CA vouches for.
type store struct {
	t         *testing.T
	namespace string
	size      resource.Quantity
	// change of its pod; nil for none.
	change func(*testing.T, *corev1.Pod)
	// access is what a client has to know, by the names of the keys above.
	access map[string][]byte
	// address of its pod, and a client over it: a port that the API server
	// forwards loses connections on the way.
	address string
	s3      *s3.Client
}

// newStore starts one on a volume of a storage class, "" being the default.
// What it holds lasts as long as the test.
func newStore(t *testing.T, class, size string) *store {
	t.Helper()
	return newStoreOf(t, class, size, nil)
}

// newStoreOf starts one whose pod is changed.
func newStoreOf(t *testing.T, class, size string, change func(*testing.T, *corev1.Pod)) *store {
	t.Helper()
	needImages(t, "s3", storeLine, 1)
	s := &store{t: t, namespace: newNamespace(t, "store-"), size: resource.MustParse(size), change: change}
	ca, err := pki.NewCA("of the store", time.Now(), rand.Reader)
	must(t, err, "make a CA")
	certificate, key, err := pki.IssueLeaf(ca, pki.LeafRequest{CommonName: storeName, DNSNames: []string{s.hostName()}}, time.Now(), rand.Reader)
	must(t, err, "sign a certificate")
	s.access = map[string][]byte{accessKeyID: []byte("holdfast"), accessKey: []byte(rand.Text()), trustedCA: ca.CertPEM}
	secret := &corev1.Secret{Data: map[string][]byte{
		"tls.crt": certificate, "tls.key": key, accessKeyID: s.access[accessKeyID], accessKey: s.access[accessKey],
	}}
	volume := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: s.size}},
	}}
	if class != "" {
		volume.Spec.StorageClassName = &class
	}
	service := &corev1.Service{Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": storeName}, Ports: []corev1.ServicePort{{Port: storePort}},
	}}
	for _, obj := range []client.Object{secret, volume, service} {
		obj.SetNamespace(s.namespace)
		obj.SetName(storeName)
		must(t, env.client.Create(t.Context(), obj), fmt.Sprintf("create the store's %T", obj))
	}
	s.startStore()
	_, err = s.s3.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: ptr.To(bucket)})
	must(t, err, "create a bucket")
	return s
}

// hostName is the name by which pods of any namespace know the store.
func (s *store) hostName() string { return storeName + "." + s.namespace + ".svc" }

// endpointURL is for clients in the cluster.
func (s *store) endpointURL() string { return fmt.Sprintf("https://%s:%d", s.hostName(), storePort) }

// startStore starts it, for the first time or again.
func (s *store) startStore() {
	s.t.Helper()
	pod := s.storePod()
	startClient(s.t, pod)
	s.address = net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(storePort))
	s.s3 = s.newClient(s.access)
}

// stopStore stops it: it cannot be reached, and keeps what it has.
func (s *store) stopStore() {
	s.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: storeName}}
	must(s.t, env.client.Delete(s.t.Context(), pod), "delete the store's pod")
	eventually(s.t, podTimeout, "the store's pod is gone", func(ctx context.Context) error {
		err := env.client.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		if err == nil {
			return errors.New("it is there")
		}
		return client.IgnoreNotFound(err)
	})
}

// storePod is the pod of the store: every object is a file of its volume. Without a folder for
// users it would not call an unknown key what Amazon does.
func (s *store) storePod() *corev1.Pod {
	have := imageVersions("s3", storeLine)
	pod := clientPodOf(s.namespace, imageRef(s.t, "s3", have[len(have)-1]))
	pod.Name, pod.Labels = storeName, map[string]string{"app": storeName}
	pod.Spec.SecurityContext.FSGroup = pod.Spec.SecurityContext.RunAsUser
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: storeName}}},
		{Name: "users", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "tls", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: storeName}}},
	}
	c := &pod.Spec.Containers[0]
	c.Args = []string{
		"--port", fmt.Sprintf(":%d", storePort), "--cert", "/tls/tls.crt", "--key", "/tls/tls.key",
		"--health", "/health", "--iam-dir", "/users", "posix", "/data",
	}
	c.Env = []corev1.EnvVar{fromSecret("ROOT_ACCESS_KEY_ID", accessKeyID), fromSecret("ROOT_SECRET_ACCESS_KEY", accessKey)}
	c.VolumeMounts = []corev1.VolumeMount{
		{Name: "data", MountPath: "/data"}, {Name: "users", MountPath: "/users"}, {Name: "tls", MountPath: "/tls", ReadOnly: true},
	}
	c.SecurityContext.ReadOnlyRootFilesystem = ptr.To(true)
	c.ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
		Path: "/health", Port: intstr.FromInt32(storePort), Scheme: corev1.URISchemeHTTPS,
	}}}
	if s.change != nil {
		s.change(s.t, pod)
	}
	return pod
}

// fromSecret is a variable of the store's environment.
func fromSecret(name, key string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: storeName}, Key: key,
	}}}
}

// newClient is a client that knows this much. What fails is not tried again.
func (s *store) newClient(access map[string][]byte) *s3.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(access[trustedCA])
	return s3.New(s3.Options{
		BaseEndpoint: aws.String(s.endpointURL()), UsePathStyle: true, Region: "us-east-1",
		Credentials: credentials.NewStaticCredentialsProvider(string(access[accessKeyID]), string(access[accessKey]), ""),
		Retryer:     aws.NopRetryer{},
		HTTPClient: &http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, s.address)
			},
		}},
	})
}
