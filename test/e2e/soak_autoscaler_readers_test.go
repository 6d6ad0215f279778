//go:build soak

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apitest"
	"github.com/holdfast-db/holdfast/test/prometheus"
)

const (
	// readers are more sessions than one replica is to have by examples/autoscaling/rules.yaml.
	readers = 25
	// wantedTimeout is for sessions to begin or end, to be scraped, and for the rule.
	wantedTimeout = 2 * time.Minute
)

// TestSoakWantedMembers: the rule of the guide to autoscaling, in Debian's Prometheus that
// scrapes real replicas, asks for the members that real readers of -ro need. It registers no
// API: TestSoakAutoscalerFollowsReaders does.
func TestSoakWantedMembers(t *testing.T) {
	needLocalCluster(t)
	c := newCluster(t, 2)
	c.waitReady()
	metrics := c.serveWantedMembers(newNamespace(t, "metrics"))
	c.awaitWanted(metrics, 2)
	r := c.startReaders()
	c.awaitWanted(metrics, 3)
	r.stop()
	c.awaitWanted(metrics, 2)
	if values, err := askMetrics(metrics, c.namespace, "holdfast_cluster=another"); err != nil || len(values) > 0 {
		t.Errorf("another cluster of the namespace wants %v members; %v", values, err)
	}

	// Without a replica there is nothing to count, and the autoscaler is not to act on it.
	c.scaleTo(1)
	c.waitReady()
	eventually(t, wantedTimeout, "there is no value without a replica", func(context.Context) error {
		values, err := askMetrics(metrics, c.namespace, "holdfast_cluster="+c.name)
		if err == nil && len(values) > 0 {
			err = fmt.Errorf("%v members are wanted", values)
		}
		return err
	})
}

// TestSoakAutoscalerFollowsReaders: Kubernetes' own autoscaler drives a PostgresCluster by the
// sessions of real readers of -ro: members offer them, Prometheus scrapes members, the rule of
// the guide makes a number of them, and the API for external metrics answers with that. With
// 25 readers there are three members, the new one serves some of them, and without readers
// there are two. No acknowledged write is lost. It registers an API of the whole cluster.
func TestSoakAutoscalerFollowsReaders(t *testing.T) {
	needLocalCluster(t)
	c := newCluster(t, 1, func(pg *v1alpha1.PostgresCluster) { pg.Spec.Replicas = nil })
	metrics := c.serveWantedMembers(newNamespace(t, "metrics"))
	routeToMachine(t, metrics)
	metrics.RegisterAPI(t, env.client)
	c.waitReady()
	w := c.startWriter()
	must(t, env.client.Create(t.Context(), c.readAutoscaler(2, 3)), "create the autoscaler")
	c.awaitAutoscaled(2) // the least: without a replica nothing is measured
	r := c.startReaders()
	c.awaitAutoscaled(3)
	eventually(t, wantedTimeout, "the new member serves readers", func(ctx context.Context) error {
		count, err := runLocalQuery(ctx, c.namespace, c.podName(2), "app", "select count(*) from pg_stat_activity where query like '%pg_sleep%' and pid <> pg_backend_pid()")
		if err == nil && count == "0" {
			err = errors.New("it has no session of them")
		}
		return err
	})
	w.goesOn()
	r.stop()
	c.awaitAutoscaled(2)
	w.goesOn()
	t.Logf("longest time without an acknowledged write: %s", w.takeGap())
	w.stopWriting()
}

// serveWantedMembers is an adapter for Prometheus, with the rules of the guide: a metric is
// the series of that name in Prometheus, with the labels that are asked for.
func (c *cluster) serveWantedMembers(namespace string) *apitest.ExternalMetrics {
	c.t.Helper()
	rules, err := prometheus.ReadRules("../../examples/autoscaling/rules.yaml", 1)
	must(c.t, err, "read the rules")
	server := startPrometheus(c.t, c.namespace, scrapeInterval, rules)
	metrics := apitest.ServeExternalMetrics(c.t, machineAddress, namespace)
	metrics.SetSource(func(ctx context.Context, namespace, metric string, selector labels.Selector) ([]int64, error) {
		matchers := []string{"namespace=" + strconv.Quote(namespace)}
		requirements, _ := selector.Requirements()
		for _, r := range requirements {
			value, exact := selector.RequiresExactMatch(r.Key())
			if !exact {
				return nil, fmt.Errorf("the adapter knows no %s", r.String())
			}
			matchers = append(matchers, r.Key()+"="+strconv.Quote(value))
		}
		series, err := server.Query(ctx, metric+"{"+strings.Join(matchers, ",")+"}")
		if err != nil {
			return nil, err
		}
		var values []int64
		for _, s := range series {
			values = append(values, int64(s.Value))
		}
		return values, nil
	})
	return metrics
}

// askMetrics asks the API as an autoscaler does.
func askMetrics(metrics *apitest.ExternalMetrics, namespace, selector string) ([]string, error) {
	answer := httptest.NewRecorder()
	metrics.ServeHTTP(answer, httptest.NewRequest("GET", "/apis/external.metrics.k8s.io/v1beta1/namespaces/"+namespace+"/holdfast_wanted_members?labelSelector="+strings.ReplaceAll(selector, "=", "%3D"), nil))
	if answer.Code != 200 {
		return nil, fmt.Errorf("%d: %s", answer.Code, answer.Body)
	}
	var list struct {
		Items []struct {
			Value string `json:"value"`
		} `json:"items"`
	}
	err := json.Unmarshal(answer.Body.Bytes(), &list)
	var values []string
	for _, item := range list.Items {
		values = append(values, item.Value)
	}
	return values, err
}

// awaitWanted waits until the metric says so many members.
func (c *cluster) awaitWanted(metrics *apitest.ExternalMetrics, members int) {
	c.t.Helper()
	began := time.Now()
	eventually(c.t, wantedTimeout, fmt.Sprintf("%d members are wanted", members), func(context.Context) error {
		values, err := askMetrics(metrics, c.namespace, "holdfast_cluster="+c.name)
		if err == nil && (len(values) != 1 || values[0] != strconv.Itoa(members)) {
			err = fmt.Errorf("%v are wanted", values)
		}
		return err
	})
	c.t.Logf("%d members are wanted after %s", members, time.Since(began).Round(time.Second))
}

// awaitAutoscaled waits until the autoscaler has set so many members, and they are Ready.
func (c *cluster) awaitAutoscaled(members int32) {
	c.t.Helper()
	began := time.Now()
	pg := c.waitFor(readyTimeout, fmt.Sprintf("the autoscaler asks for %d members, and they are Ready", members), func(pg *v1alpha1.PostgresCluster) error {
		if now := pg.Spec.Replicas; now == nil || *now != members {
			var scaler autoscalingv2.HorizontalPodAutoscaler
			err := env.client.Get(c.t.Context(), c.nameOf(""), &scaler)
			return errors.Join(fmt.Errorf("spec.replicas is %d; the autoscaler says %+v", pg.Common().DesiredReplicas(), scaler.Status.Conditions), err)
		}
		return rolledOut(pg)
	})
	checkMembers(c.t, c, pg, int(members))
	c.t.Logf("%d members after %s", members, time.Since(began).Round(time.Second))
}

// readerSessions read from replicas, and connect anew every some seconds: so a new replica
// gets some of them.
type readerSessions struct {
	c   *cluster
	pod *corev1.Pod
}

func (c *cluster) startReaders() readerSessions {
	c.t.Helper()
	pod := clientPodOf(newNamespace(c.t, "readers-"), clientImage(c.t))
	script := fmt.Sprintf(`for i in $(seq %d); do while :; do psql "$URI" -qAtc 'select pg_sleep(20)' >/dev/null || sleep 5; done & done; wait`, readers)
	pod.Spec.Containers[0].Command = []string{"sh", "-c", script}
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "URI", Value: strings.Replace(c.connectionURI(), c.name+"-rw", c.name+"-ro", 1)}}
	startClient(c.t, pod)
	return readerSessions{c, pod}
}

// stop ends the readers. A session that sleeps ends when it wakes.
func (r readerSessions) stop() {
	r.c.t.Helper()
	must(r.c.t, client.IgnoreNotFound(env.client.Delete(r.c.t.Context(), r.pod)), "end the readers")
}
