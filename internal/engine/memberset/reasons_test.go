package memberset

import "testing"

func TestSchedulingFields(t *testing.T) {
	for message, want := range map[string]string{
		"0/3 nodes are available: 3 Insufficient memory.":                                                   ": check spec.resources, or add nodes",
		"0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't match Pod's node affinity/selector.": ": check spec.resources and spec.nodeSelector and spec.affinity, or add nodes",
		"0/3 nodes are available: 3 node(s) had untolerated taint {db: }.":                                  ": check spec.tolerations, or add nodes",
		"0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules.":                          ": check spec.affinity, or add nodes",
		"0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.":                        ": check spec.storage.storageClass, or add nodes",
		"0/3 nodes are available: 3 node(s) didn't match pod topology spread constraints.":                  ": check spec.topologySpreadConstraints, or add nodes",
		"no nodes available to schedule pods":                                                               "",
	} {
		if got := schedulingFields(message); got != want {
			t.Errorf("%s: %q, want %q", message, got, want)
		}
	}
}

func TestPullFault(t *testing.T) {
	for message, want := range map[string]string{
		"":                              "",
		`Back-off pulling image "db:x"`: "",
		`Back-off pulling image "db:x": ErrImagePull: unauthorized`:            ": unauthorized",
		"rpc error: code = NotFound desc = failed to resolve db:x:\nnot found": ": failed to resolve db:x: not found",
		"manifest unknown": ": manifest unknown",
	} {
		if got := pullFault(message); got != want {
			t.Errorf("%s: %q, want %q", message, got, want)
		}
	}
}
