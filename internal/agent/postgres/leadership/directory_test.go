package leadership

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// fakePeers answer what a test sets, and record what was posted to them.
type fakePeers struct {
	mu       sync.Mutex
	statuses map[string]agentapi.Status
	posted   []string
	// timedOut are pods whose answers do not come in time.
	timedOut []string
	// unreached is the error of all that do not answer; nil for that of a refused connection.
	unreached error
}

func (p *fakePeers) Status(ctx context.Context, pod string) (agentapi.Status, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	status, there := p.statuses[pod]
	if slices.Contains(p.timedOut, pod) {
		<-ctx.Done()
		return agentapi.Status{}, ctx.Err()
	}
	if !there && p.unreached != nil {
		return status, p.unreached
	}
	if !there {
		return status, errors.New(pod + " does not answer")
	}
	return status, nil
}

func (p *fakePeers) PostPeer(_ context.Context, pod, path string, message, _ any) error {
	if _, err := json.Marshal(message); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.posted = append(p.posted, pod+path)
	return nil
}

func (p *fakePeers) listPosted() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(slices.Values(p.posted))
}

// set has a pod answer that it runs on a volume with a database system.
func (p *fakePeers) set(pod, volume, system string) {
	p.report(pod, system, postgresapi.ElectionState{Volume: volume, Stream: settings.StreamName(pod, volume)})
}

// setOlder is the same by an agent of an earlier version.
func (p *fakePeers) setOlder(pod, volume, system string) {
	p.report(pod, system, postgresapi.ElectionState{Volume: volume})
}

func (p *fakePeers) report(pod, system string, election postgresapi.ElectionState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	status := agentapi.Status{Pod: pod, SystemIdentifier: system}
	if election.Volume != "" {
		agentapi.ChangeEngineStatus(&status, func(r *postgresapi.ReplicationStatus) { r.Election = &election })
	}
	p.statuses[pod] = status
}

// setLease has a pod that answers report which duration of the Lease it knows, in seconds.
func (p *fakePeers) setLease(pod string, term, seconds int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	status := p.statuses[pod]
	agentapi.ChangeEngineStatus(&status, func(r *postgresapi.ReplicationStatus) {
		election := *r.Election
		election.LeaseDuration = seconds
		r.Election, r.Lease = &election, &postgresapi.LeaseState{Term: term}
	})
	p.statuses[pod] = status
}

func (p *fakePeers) remove(pod string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.statuses, pod)
}

func newDirectory(pods ...string) (*Directory, *fakePeers) {
	peers := &fakePeers{statuses: map[string]agentapi.Status{}}
	return NewDirectory("orders-0", func() []string { return pods }, peers), peers
}

func TestDirectoryKnowsWhatMembersReport(t *testing.T) {
	d, peers := newDirectory("orders-0", "orders-1", "orders-2")
	peers.set("orders-0", "v0", "7") // never asked
	peers.set("orders-1", "v1", "7")
	peers.set("orders-2", "", "7") // of an earlier version
	d.askMembers(t.Context())
	if diff := cmp.Diff(map[string]string{"orders-1": "v1"}, d.ListVolumes()); diff != "" {
		t.Errorf("volumes (-want +got):\n%s", diff)
	}
	if pod, known := d.FindPod("v1"); pod != "orders-1" || !known {
		t.Errorf("v1 is on %q, %v", pod, known)
	}
	if pod, known := d.FindPod("v2"); known {
		t.Errorf("v2 is on %q", pod)
	}

	// A member that does not answer is where it was; one that comes back says where.
	peers.remove("orders-1")
	peers.set("orders-2", "v2", "7")
	d.askMembers(t.Context())
	if diff := cmp.Diff(map[string]string{"orders-1": "v1", "orders-2": "v2"}, d.ListVolumes()); diff != "" {
		t.Errorf("volumes (-want +got):\n%s", diff)
	}
	peers.set("orders-1", "v9", "7")
	d.askMembers(t.Context())
	if pod, known := d.FindPod("v1"); known {
		t.Errorf("v1 is still on %q", pod)
	}
}

// Two pods that report one volume run on copies of one: neither is meant.
func TestDirectoryKnowsNoPodOfACopiedVolume(t *testing.T) {
	d, peers := newDirectory("orders-0", "orders-1", "orders-2")
	peers.set("orders-1", "v1", "7")
	peers.set("orders-2", "v1", "7")
	d.askMembers(t.Context())
	if pod, known := d.FindPod("v1"); pod != "" || known {
		t.Errorf("v1 is on %q, %v", pod, known)
	}
}

// A volume that moved from a pod which is declared no more is that of the next one.
func TestDirectoryKnowsAVolumeThatMoved(t *testing.T) {
	pods := []string{"orders-0", "orders-1", "orders-2"}
	peers := &fakePeers{statuses: map[string]agentapi.Status{}}
	d := NewDirectory("orders-0", func() []string { return pods }, peers)
	peers.set("orders-2", "v2", "7")
	d.askMembers(t.Context())
	pods = pods[:2]
	if pod, _ := d.FindPod("v2"); pod != "orders-2" {
		t.Errorf("a member that was scaled away is not asked for its vote: %q", pod)
	}
	peers.set("orders-1", "v2", "7")
	d.askMembers(t.Context())
	if pod, known := d.FindPod("v2"); pod != "orders-1" || !known {
		t.Errorf("v2 is on %q, %v", pod, known)
	}
}

func TestHasNoData(t *testing.T) {
	for _, c := range []struct {
		name string
		pods []string
		set  func(*fakePeers)
		want bool
	}{
		{"a member alone", []string{"orders-0"}, func(*fakePeers) {}, true},
		{"no member has answered", []string{"orders-0", "orders-1"}, func(*fakePeers) {}, false},
		{"all are empty", []string{"orders-0", "orders-1", "orders-2"}, func(p *fakePeers) { p.set("orders-1", "v1", ""); p.set("orders-2", "v2", "") }, true},
		{"one has not answered", []string{"orders-0", "orders-1", "orders-2"}, func(p *fakePeers) { p.set("orders-1", "v1", "") }, false},
		{"one has data", []string{"orders-0", "orders-1", "orders-2"}, func(p *fakePeers) { p.set("orders-1", "v1", ""); p.set("orders-2", "v2", "7") }, false},
		{"one of an earlier version has not said it", []string{"orders-0", "orders-1"}, func(p *fakePeers) { p.set("orders-1", "", "") }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, peers := newDirectory(c.pods...)
			c.set(peers)
			d.askMembers(t.Context())
			if got := d.HasNoData(); got != c.want {
				t.Errorf("no data: %v", got)
			}
		})
	}
}

// What a member knows of the duration of the Lease is of the moment at which it was asked,
// and stays while it does not answer.
func TestRule2DirectoryKnowsWhichDurationsMembersKnow(t *testing.T) {
	d, peers := newDirectory("orders-0", "orders-1", "orders-2")
	peers.set("orders-1", "v1", "7") // its agent knows of no duration
	peers.set("orders-2", "v2", "7")
	peers.setLease("orders-2", 5, 60)
	before := clock.Boottime()
	d.askMembers(t.Context())
	after := clock.Boottime()
	peers.remove("orders-2")
	d.askMembers(t.Context())
	got := d.ListDurations()
	if len(got) != 2 || got[0].Volume != "v1" || got[0].Duration != 0 || got[0].Asked < after {
		t.Fatalf("got %+v", got)
	}
	if r := got[1]; r.Volume != "v2" || r.Term != 5 || r.Duration != time.Minute || r.Asked < before || r.Asked > after {
		t.Errorf("got %+v", r)
	}
}

// A member is silent once several questions in turn were lost. One answer, or an error
// that its node sent, ends that.
func TestRule10MemberIsSilentAfterSeveralQuestions(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*fakePeers)
		silent bool
	}{
		"no answer in time": {func(p *fakePeers) { p.timedOut = []string{"orders-1"} }, true},
		"no way to its node": {func(p *fakePeers) {
			p.remove("orders-1")
			p.unreached = &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)}
		}, true},
		"no way to its network": {func(p *fakePeers) { p.remove("orders-1"); p.unreached = syscall.ENETUNREACH }, true},
		"its node refuses":      {func(p *fakePeers) { p.remove("orders-1"); p.unreached = syscall.ECONNREFUSED }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, peers := newDirectory("orders-0", "orders-1")
				peers.set("orders-1", "v1", "7")
				d.askMembers(t.Context())
				c.change(peers)
				before, first := clock.Boottime(), time.Duration(0)
				for question := 1; question <= 5; question++ {
					d.askMembers(t.Context())
					since, silent := d.FindSilence("v1")
					if silent != (c.silent && question >= 3) || silent && (since < before || since > first) {
						t.Errorf("after %d questions: silent %t, since %s", question, silent, since)
					}
					if question == 1 {
						first = clock.Boottime()
					}
				}
				if _, silent := d.FindSilence("v9"); silent {
					t.Error("a volume without a pod is silent")
				}
				peers.timedOut, peers.unreached = nil, nil
				peers.set("orders-1", "v1", "7")
				d.askMembers(t.Context())
				if _, silent := d.FindSilence("v1"); silent {
					t.Error("it has answered, and is silent")
				}
			})
		})
	}
}
