package etcd

import "testing"

// The first member is the whole group, under the name that the others will know.
func TestRestoring(t *testing.T) {
	w := newWorld(t, 3)
	r := (&Engine{}).Restoring(w.c, w.o)
	if r.Program != "etcd" || r.User != 65532 || r.Member != "config-0" || r.PeerURL != "https://config-0.config-members.shop.svc:2380" || *r.Claim.Name != "data-config-0" || r.Living {
		t.Errorf("%+v", r)
	}
}
