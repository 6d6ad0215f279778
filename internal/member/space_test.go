package member

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-db/holdfast/internal/memberapi"
)

// A volume counts as full from the first failure on, and as one with room once
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
		{"it has room", time.Second, 100 * mib, false, false},
		{"there is little, and it can be had", 2 * time.Second, 2 * mib, false, false},
		{"nothing can be had", 3 * time.Second, 0, true, true},
		{"a transaction that failed gave some back", 5 * time.Second, 10 * mib, false, true},
		{"so much that it would do, for a moment", 7 * time.Second, 30 * mib, false, true},
		{"which is gone again", 9 * time.Second, 0, true, true},
		{"there is room", 20 * time.Second, 100 * mib, false, true},
		{"and still is", 24 * time.Second, 100 * mib, false, false},
	} {
		if f = f.observe(step.at, Space{Free: step.free, Total: 1 << 30}, step.failed); f.full != step.want {
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
		rate := f.observe(time.Duration(at)*time.Second, used)
		switch {
		case at < 10 && rate != 0, at >= 10 && at < 20 && rate != 1000, at == 39 && rate > 100:
			t.Errorf("after %d s: %d", at, rate)
		}
	}
	if rate := f.observe(time.Minute, 0); rate != 0 {
		t.Errorf("a volume that empties: %d", rate)
	}
}

// What the database reports is tried before it is believed.
func TestSpaceWatch(t *testing.T) {
	store := NewStore(memberapi.Status{})
	space, failure, tried := Space{Free: 1 << 30, Total: 2 << 30}, error(nil), 0
	w := SpaceWatch{Look: func() Space { return space }, Allocate: func() error { tried++; return failure }}
	check := func(what string, suspected, full bool, tries int) {
		t.Helper()
		if w.report(store, suspected); store.Get().DiskFull != full || tried != tries {
			t.Errorf("%s: full %t, tried %d times", what, store.Get().DiskFull, tried)
		}
	}
	check("a volume with room", false, false, 0)
	check("one that the database says is full", true, false, 1)
	failure = unix.EIO
	check("another error", true, false, 2)
	failure = errors.Join(unix.EDQUOT)
	check("its share is used up", true, true, 3)
	check("and the volume seems to have room", false, true, 3)
	space.Free = 0
	check("it is full", false, true, 4)

	dir := t.TempDir()
	if err := AllocateIn(dir); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left: %v", left, err)
	}
	if err := AllocateIn(dir + "/none"); OutOfSpace(err) || err == nil {
		t.Errorf("a directory that is not there: %v", err)
	}
}

// A rate wakes only where the volume would be full before it can grow.
func TestStoreRevisionOfRate(t *testing.T) {
	s := NewStore(memberapi.Status{VolumeSize: 1_000_000, VolumeUsed: 100})
	before := s.Get().Revision
	for _, step := range []struct {
		rate  int64
		wakes bool
	}{{1000, false}, {9000, true}, {10000, false}, {20000, true}, {0, true}} {
		s.Update(func(st *memberapi.Status) { st.VolumeRate = step.rate })
		now := s.Get().Revision
		if woken := now != before; woken != step.wakes {
			t.Errorf("%d: woken %t", step.rate, woken)
		}
		before = now
	}
}
