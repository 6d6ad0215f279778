package main

import (
	"math"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// A rate that client-go would read as its defaults, or as none, is refused by the flag's name.
func TestLimitRequests(t *testing.T) {
	for _, c := range []struct {
		qps   float32
		burst int
		want  string
	}{
		{200, 400, ""},
		{0.5, 1, ""},
		{0, 400, "--kube-api-qps 0"},
		{-1, 400, "--kube-api-qps -1"},
		{float32(math.NaN()), 400, "--kube-api-qps NaN"},
		{200, 0, "--kube-api-burst 0"},
		{200, -1, "--kube-api-burst -1"},
	} {
		o, config := managerOptions{qps: c.qps, burst: c.burst}, &rest.Config{}
		err := o.limitRequests(config)
		switch {
		case c.want == "" && (err != nil || config.QPS != c.qps || config.Burst != c.burst):
			t.Errorf("%v, %d: %v, %v, %v", c.qps, c.burst, config.QPS, config.Burst, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || config.QPS != 0):
			t.Errorf("%v, %d: %v", c.qps, c.burst, err)
		}
	}
}
