//go:build e2e || soak

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// etcd is etcd of the newest line.
var etcd = &kind{
	name: "EtcdCluster", prefix: "Etcd", engine: "etcd", line: "3.7",
	base:    func() string { return fmt.Sprintf("version: %q, storage: {size: 1Gi}", newestEtcd("3.7")) },
	several: 3,
	entry:   "-client", aside: "-members",
	lease:     "-members",
	poison:    "ETCD_UNSAFE_NO_FSYNC",
	memory:    "512Mi",
	saves:     true,
	reloaded:  `parameters: {snapshot-count: "5000"}`,
	restarted: `parameters: {max-wals: "7"}`,
	drifts: []drift{
		{"endpoints", &corev1.Secret{}, "-app", mergePatch(`{"stringData":{"endpoints":"https://elsewhere.example:2379"}}`),
			[]trace{{path: ".data", operation: byUpdate}}},
		{"certificate", &corev1.Secret{}, "-app", mergePatch(`{"stringData":{"tls.crt":"guessed"}}`),
			[]trace{{path: ".data", operation: byUpdate}}},
	},
	refused: []badManifest{
		{"too many replicas", orders, `replicas: 11`, "spec.replicas"},
		{"an even number of replicas", orders, `replicas: 4`, "spec.replicas"},
		{"a version that is none", orders, `version: abc`, "spec.version"},
		{"a version without a minor", orders, `version: "3"`, "spec.version"},
		{"a version that is too old", orders, `version: "3.4.30"`, "spec.version"},
		{"a setting that is Holdfast's", orders, `parameters: {data-dir: /tmp}`, "spec.parameters"},
		{"a setting in capitals", orders, `parameters: {Max-Wals: "5"}`, "spec.parameters"},
		{"a quota larger than the volume", orders, `quota: 2Gi`, "spec.quota"},
		{"a quota of nothing", orders, `quota: "0"`, "spec.quota"},
	},
	mistakes: etcdMistakes,
	empty:    func() v1alpha1.Cluster { return &v1alpha1.EtcdCluster{} },
	list:     func() client.ObjectList { return &v1alpha1.EtcdClusterList{} },
	database: etcdDatabase{},
}

func etcdMistakes() []mistake {
	older := newestEtcd("3.6")
	if older == "" {
		older = "3.6.0" // it need not be there to be refused
	}
	return []mistake{
		{"downgrade", fmt.Sprintf("version: %q", older), v1alpha1.ReasonDowngradeRefused, []string{"spec.version", newestEtcd("3.7")}},
		{"unknown parameter", `parameters: {no-such-setting: "1"}`, v1alpha1.ReasonInvalidParameter, []string{"spec.parameters", "no-such-setting"}},
		{"bad value", `parameters: {snapshot-count: plenty}`, v1alpha1.ReasonInvalidParameter, []string{"spec.parameters", "snapshot-count"}},
		{"impossible image", `version: "3.7.99"`, v1alpha1.ReasonImageUnavailable, []string{"spec.version", "3.7.99"}},
	}
}

// newestEtcd is the newest patch of a line that the nodes have.
func newestEtcd(line string) string {
	have := imageVersions("etcd", line)
	if len(have) == 0 {
		return ""
	}
	return have[len(have)-1]
}

type etcdDatabase struct{}

func (etcdDatabase) keepValue(c *subject, value string) {
	c.t.Helper()
	c.runEtcdctl(0, "put", "kept", value)
}

func (etcdDatabase) keptValue(c *subject) string {
	c.t.Helper()
	return c.runEtcdctl(0, "get", "--print-value-only", "kept")
}

func (etcdDatabase) checkServes(t *testing.T, c *subject) string {
	t.Helper()
	return newEtcdApp(t, c.withTest(t)).runEtcdctl(t, "get", "--print-value-only", "kept")
}

// otherImage is of another minor version: it must not even start on the data.
func (etcdDatabase) otherImage(t *testing.T) string {
	t.Helper()
	return imageRef(t, "etcd", needImages(t, "etcd", "3.5", 1)[0])
}

func (etcdDatabase) inForce(ctx context.Context, obj v1alpha1.Cluster) error {
	declared, ok := obj.(*v1alpha1.EtcdCluster)
	if !ok {
		return fmt.Errorf("%T is another kind", obj)
	}
	var errs []error
	var pods []string
	for n := range declared.Spec.DesiredReplicas() {
		pod := fmt.Sprintf("%s-%d", declared.Name, n)
		pods = append(pods, pod)
		start, err := lastStart(ctx, declared.Namespace, pod)
		if err == nil && start["etcd-version"] != declared.Spec.Version {
			err = fmt.Errorf("%s runs %v, want %s", pod, start["etcd-version"], declared.Spec.Version)
		}
		errs = append(errs, err)
		for name, want := range declared.Spec.Parameters {
			if have := fmt.Sprint(start[name]); !sameSetting(have, want) {
				errs = append(errs, fmt.Errorf("%s runs with %s = %s, want %s", pod, name, have, want))
			}
		}
	}
	have, err := podsBehind(ctx, declared.Namespace, declared.Name+"-client")
	if err == nil && !slices.Equal(have, pods) {
		err = fmt.Errorf("behind -client: %v, want %v", have, pods)
	}
	group, groupErr := groupOf(ctx, declared.Namespace, pods[0])
	if groupErr == nil {
		groupErr = group.checkVoters(pods)
	}
	return errors.Join(append(errs, err, groupErr)...)
}

// sameSetting: etcd writes 1h as 1h0m0s.
func sameSetting(have, want string) bool {
	a, errHave := time.ParseDuration(have)
	b, errWant := time.ParseDuration(want)
	return have == want || errHave == nil && errWant == nil && a == b
}

// lastStart is what etcd said of its settings when it last started.
func lastStart(ctx context.Context, namespace, pod string) (map[string]any, error) {
	log, err := env.kube.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{Container: "etcd"}).DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	var found map[string]any
	for line := range strings.Lines(string(log)) {
		var said map[string]any
		if strings.Contains(line, `"starting an etcd server"`) && decodeNumbers(line, &said) == nil {
			found = said
		}
	}
	if found == nil {
		return nil, fmt.Errorf("etcd never started in %s", pod)
	}
	return found, nil
}

// decodeNumbers keeps numbers as they stand.
func decodeNumbers(text string, into any) error {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	return decoder.Decode(into)
}

// awaitUnited: every pod a voter, one leader, and the same data on all.
func (etcdDatabase) awaitUnited(c *subject, members int) {
	c.t.Helper()
	var pods []string
	for n := range members {
		pods = append(pods, c.podName(n))
	}
	g := c.readGroup()
	if err := g.checkVoters(pods); err != nil {
		c.t.Error(err)
	}
	var hashes []struct {
		Endpoint string
		HashKV   struct {
			Hash uint64 `json:"hash"`
		}
	}
	out := c.runEtcdctl(0, "endpoint", "hashkv", "--cluster", "--rev", fmt.Sprint(g.status[0].Status.Header.Revision), "-w", "json")
	must(c.t, json.Unmarshal([]byte(out), &hashes), "read the hashes")
	for _, h := range hashes {
		if len(hashes) != members || h.HashKV.Hash != hashes[0].HashKV.Hash {
			c.t.Errorf("the members' data differ: %+v", hashes)
		}
	}
}
