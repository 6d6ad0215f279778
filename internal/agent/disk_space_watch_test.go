package agent

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/statusserver"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// A volume counts as full from the first failure on, and as one with disk space once
// there is some, and has been for a while.
func TestFullness(t *testing.T) {
	const mib = int64(1) << 20
	var f fullness
	for _, step := range []struct {
		name   string
		at     time.Duration
		free   int64
		failed bool
		want   bool
	}{
		{"it has space", time.Second, 100 * mib, false, false},
		{"there is little, and it can be had", 2 * time.Second, 2 * mib, false, false},
		{"nothing can be had", 3 * time.Second, 0, true, true},
		{"a transaction that failed gave some back", 5 * time.Second, 10 * mib, false, true},
		{"so much that it would do, for a moment", 7 * time.Second, 30 * mib, false, true},
		{"which is gone again", 9 * time.Second, 0, true, true},
		{"there is space", 20 * time.Second, 100 * mib, false, true},
		{"and still is", 24 * time.Second, 100 * mib, false, false},
	} {
		if f = f.observeCheck(step.at, diskspace.Space{Free: step.free, Total: 1 << 30}, step.failed); f.full != step.want {
			t.Errorf("%s: full %t", step.name, f.full)
		}
	}
}

func TestFilling(t *testing.T) {
	var f filling
	used := int64(0)
	for at := range 40 {
		if at < 20 {
			used += 1000
		}
		rate := f.observeUsage(time.Duration(at)*time.Second, used)
		switch {
		case at < 10 && rate != 0, at >= 10 && at < 20 && rate != 1000, at == 39 && rate > 100:
			t.Errorf("after %d s: %d", at, rate)
		}
	}
	if rate := f.observeUsage(time.Minute, 0); rate != 0 {
		t.Errorf("a volume that empties: %d", rate)
	}
}

// What the database reports is tried before it is believed.
func TestSpaceWatch(t *testing.T) {
	store := statusserver.NewStore(agentapi.Status{})
	space, failure, tried := diskspace.Space{Free: 1 << 30, Total: 2 << 30}, error(nil), 0
	w := SpaceWatch{Measure: func() diskspace.Space { return space }, Allocate: func() error { tried++; return failure }}
	check := func(what string, suspected, full bool, tries int) {
		t.Helper()
		if w.reportSpace(store, suspected); store.Get().DiskFull != full || tried != tries {
			t.Errorf("%s: full %t, tried %d times", what, store.Get().DiskFull, tried)
		}
	}
	check("a volume with space", false, false, 0)
	check("one that the database says is full", true, false, 1)
	failure = unix.EIO
	check("another error", true, false, 2)
	failure = errors.Join(unix.EDQUOT)
	check("its share is used up", true, true, 3)
	check("and the volume seems to have space", false, true, 3)
	space.Free = 0
	check("it is full", false, true, 4)

	dir := t.TempDir()
	if err := diskspace.AllocateIn(dir); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left: %v", left, err)
	}
	if err := diskspace.AllocateIn(dir + "/none"); diskspace.OutOfSpace(err) || err == nil {
		t.Errorf("a directory that is not there: %v", err)
	}
}

func TestFollowSpace(t *testing.T) {
	s := statusserver.NewStore(agentapi.Status{})
	ctx, cancel := context.WithCancel(t.Context())
	w := SpaceWatch{Measure: func() diskspace.Space {
		cancel()
		return diskspace.Space{Free: 300, Total: 1000}
	}}
	w.Follow(ctx, s)
	if got := s.Get(); got.VolumeSize != 1000 || got.VolumeUsed != 700 {
		t.Errorf("reported %d of %d", got.VolumeUsed, got.VolumeSize)
	}
	if here := diskspace.SpaceOf(t.TempDir()); here.Total <= 0 || here.Free > here.Total {
		t.Errorf("the space of a directory: %+v", here)
	}
}
