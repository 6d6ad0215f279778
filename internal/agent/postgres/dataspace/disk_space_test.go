package dataspace

import (
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
)

// The message says what to set, and keeps still while the sizes move a little.
func TestRoomMessage(t *testing.T) {
	message := func(size, free int64) string {
		s := diskspace.Space{Free: free, Total: 10 << 30}
		return DescribeMissing(s, "orders-0", size)
	}
	got := message(12<<30, 9<<30)
	want := "a copy of the data of orders-0 needs 14Gi and the volume has 9Gi left: set spec.storage.size to 15Gi or more"
	if got != want {
		t.Errorf("message %q, want %q", got, want)
	}
	if moved := message(12<<30+5<<20, 9<<30+3<<20); moved != got {
		t.Errorf("the message moves: %q", moved)
	}
}

func TestFilledCopy(t *testing.T) {
	var c FilledCopy
	now := time.Hour
	if c.MustWait(now, 10) {
		t.Error("waits without a failure")
	}
	c = c.RecordFailure(now, 10)
	if !c.MustWait(now+59*time.Second, 10) || c.MustWait(now+61*time.Second, 10) {
		t.Error("the first pause is not a minute")
	}
	if c.MustWait(now+time.Second, 11) {
		t.Error("waits although the volume grew")
	}
	for range 20 {
		c = c.RecordFailure(now, 10)
	}
	if !c.MustWait(now+29*time.Minute, 10) || c.MustWait(now+31*time.Minute, 10) {
		t.Error("the pause is not bounded")
	}
}
