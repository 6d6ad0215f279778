package postgres

import (
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
)

func TestUpstreamAndSlotName(t *testing.T) {
	o := Options{RunDir: "/run/holdfast",
		DatabaseAddress:  func(pod string) string { return pod + ".orders-members.shop.svc:5432" },
		ReadWriteAddress: "orders-rw.shop.svc:5432"}
	if got := o.primaryConnection("orders-0", "10.0.0.7", "orders-1"); !strings.Contains(got, "hostaddr='10.0.0.7,'") {
		t.Errorf("%s lacks the address", got)
	}
	got := o.primaryConnection("orders-0", "", "orders-1")
	for _, part := range []string{"host='orders-0.orders-members.shop.svc,orders-rw.shop.svc'", "port='5432,5432'", "sslmode='verify-full'", "application_name='orders-1'"} {
		if !strings.Contains(got, part) {
			t.Errorf("%s lacks %s", got, part)
		}
	}
	if got := settings.SlotName("my-orders-1"); got != "holdfast_my_orders_1" {
		t.Errorf("slot name is %s", got)
	}
}

func TestTroubleIn(t *testing.T) {
	cases := []struct {
		line string
		want trouble
	}{
		{"FATAL:  could not receive data from WAL stream: ERROR:  requested WAL segment 000000010000000000000003 has already been removed", troubleCopy},
		{"FATAL:  could not start WAL streaming: ERROR:  can no longer access replication slot \"holdfast_a_1\"", troubleCopy},
		{"FATAL:  highest timeline 1 of the primary is behind recovery timeline 2", troubleDiverged},
		{"FATAL:  database system identifier differs between the primary and standby", troubleForeign},
		{"LOG:  recovery has paused", troubleRestart},
		{"LOG:  started streaming WAL from primary at 0/4000000 on timeline 1", troubleNone},
	}
	for _, c := range cases {
		if got := readTrouble(c.line); got != c.want {
			t.Errorf("%q: %v, want %v", c.line, got, c.want)
		}
	}
}
