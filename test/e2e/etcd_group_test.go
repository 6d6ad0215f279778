//go:build e2e || soak

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// group is the membership of a cluster and what each member says.
type group struct {
	Members []groupMember `json:"members"`
	status  []groupStatus
}

type groupMember struct {
	ID       uint64   `json:"ID"`
	Name     string   `json:"name"`
	PeerURLs []string `json:"peerURLs"`
	Learner  bool     `json:"isLearner"`
}

type groupStatus struct {
	Endpoint string
	Status   struct {
		Header struct {
			ClusterID uint64 `json:"cluster_id"`
			MemberID  uint64 `json:"member_id"`
			Revision  int64  `json:"revision"`
			Term      uint64 `json:"raft_term"`
		} `json:"header"`
		Version string   `json:"version"`
		Leader  uint64   `json:"leader"`
		Index   uint64   `json:"raftIndex"`
		Size    int64    `json:"dbSize"`
		InUse   int64    `json:"dbSizeInUse"`
		Errors  []string `json:"errors"`
	}
}

// groupOf asks one member for the membership, and every member how it is.
func groupOf(ctx context.Context, namespace, pod string) (*group, error) {
	g, err := membershipOf(ctx, namespace, pod)
	if err != nil {
		return nil, err
	}
	out, err := inMember(ctx, namespace, pod, "endpoint", "status", "--cluster", "-w", "json")
	if err != nil {
		return nil, err
	}
	return g, json.Unmarshal([]byte(out), &g.status)
}

// membershipOf asks one member alone, also while others do not answer.
func membershipOf(ctx context.Context, namespace, pod string) (*group, error) {
	out, err := inMember(ctx, namespace, pod, "member", "list", "-w", "json")
	if err != nil {
		return nil, err
	}
	g := &group{}
	return g, json.Unmarshal([]byte(out), g)
}

// checkVoters says what is wrong with a group of voters of these pods, all of which
// follow the same leader.
func (g *group) checkVoters(pods []string) error {
	var names []string
	var errs []error
	for _, m := range g.Members {
		names = append(names, m.Name)
		if m.Learner {
			errs = append(errs, fmt.Errorf("%s is a learner", m.Name))
		}
	}
	slices.Sort(names)
	if want := slices.Sorted(slices.Values(pods)); !slices.Equal(names, want) {
		errs = append(errs, fmt.Errorf("the members are %v, want %v", names, want))
	}
	leaders, clusters := map[uint64]bool{}, map[uint64]bool{}
	for _, s := range g.status {
		leaders[s.Status.Leader], clusters[s.Status.Header.ClusterID] = true, true
		for _, complaint := range s.Status.Errors {
			errs = append(errs, fmt.Errorf("%s: %s", s.Endpoint, complaint))
		}
	}
	if len(g.status) != len(g.Members) || len(leaders) != 1 || len(clusters) != 1 || leaders[0] {
		errs = append(errs, fmt.Errorf("%d members answer, with leaders %v of clusters %v", len(g.status), leaders, clusters))
	}
	return errors.Join(errs...)
}

// leaderPod is the pod that leads.
func (g *group) leaderPod() string {
	for _, m := range g.Members {
		if len(g.status) > 0 && m.ID == g.status[0].Status.Leader {
			return m.Name
		}
	}
	return ""
}

// memberIDs are those of the members by their pods.
func (g *group) memberIDs() map[string]uint64 {
	ids := map[string]uint64{}
	for _, m := range g.Members {
		ids[m.Name] = m.ID
	}
	return ids
}

func (c *subject) readGroup() *group {
	c.t.Helper()
	g, err := groupOf(c.t.Context(), c.namespace, c.podName(0))
	must(c.t, err, "ask for the membership")
	return g
}

// inMember runs etcdctl in a member's pod, with the member's certificate.
func inMember(ctx context.Context, namespace, pod string, arguments ...string) (string, error) {
	command := append([]string{
		"etcdctl", "--endpoints", "https://localhost:2379", "--cacert", agentapi.TLSDir + "/ca.crt",
		"--cert", agentapi.TLSDir + "/tls.crt", "--key", agentapi.TLSDir + "/tls.key",
	}, arguments...)
	return runCommand(inContainer(ctx, "etcd"), namespace, pod, "", command...)
}

// runEtcdctl runs it in a member's pod; a failure ends the test.
func (c *subject) runEtcdctl(ordinal int, arguments ...string) string {
	c.t.Helper()
	out, err := inMember(c.t.Context(), c.namespace, c.podName(ordinal), arguments...)
	must(c.t, err, c.podName(ordinal)+": etcdctl "+strings.Join(arguments, " "))
	return out
}
