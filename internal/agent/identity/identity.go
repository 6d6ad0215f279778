// Package identity says which member of which cluster an agent belongs to.
package identity

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// Identity says which member of which cluster this process belongs to.
type Identity struct {
	Namespace string
	Cluster   string
	Pod       string
	PodUID    string
	Node      string
	// Address is the pod's IP address; may be empty.
	Address string
}

// FromEnv reads the identity that the operator put into the
// environment.
func FromEnv() (Identity, error) {
	id := Identity{Node: os.Getenv(agentapi.EnvNode), Address: os.Getenv(agentapi.EnvPodIP)}
	for name, field := range map[string]*string{
		agentapi.EnvNamespace: &id.Namespace,
		agentapi.EnvCluster:   &id.Cluster,
		agentapi.EnvPodName:   &id.Pod,
		agentapi.EnvPodUID:    &id.PodUID,
	} {
		*field = os.Getenv(name)
		if *field == "" {
			return Identity{}, fmt.Errorf("environment variable %s is not set", name)
		}
	}
	if _, err := Ordinal(id.Pod); err != nil {
		return Identity{}, err
	}
	return id, nil
}

// Host is the name by which a member's pod is reached, and which stands in its
// certificate.
func (id Identity) Host(pod string) string {
	return fmt.Sprintf("%s.%s-members.%s.svc", pod, id.Cluster, id.Namespace)
}

// Ordinal is the number at the end of a member's pod name.
func Ordinal(pod string) (int, error) {
	_, digits, found := cutLast(pod, "-")
	n, err := strconv.Atoi(digits)
	if !found || err != nil || n < 0 {
		return 0, fmt.Errorf("pod name %q does not end in an ordinal", pod)
	}
	return n, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
