package agent

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/identity"
)

const (
	// labelTimeout bounds one request about a label.
	labelTimeout = 2 * time.Second
	// withdrawLimit is how long a primary may stay out of its Service: longer than any
	// switchover takes.
	withdrawLimit = time.Minute
	// returnPause is how long a former primary then stays out of the Service for reads, so
	// that its successor comes first.
	returnPause = time.Second
)

const (
	// ProxyInterval is how soon after one change of a Service's endpoints a node's proxy
	// takes up the next one: kube-proxy waits a second by default.
	ProxyInterval = 1100 * time.Millisecond
	// StopInterval is the same where the pod is being deleted: that itself is a change of
	// endpoints just before, so that the removal of the label waits for its turn.
	StopInterval = 1900 * time.Millisecond
)

// Labeller keeps the role label of the member's own pod as the member's role.
type Labeller struct {
	id    identity.Identity
	pods  corev1client.PodInterface
	peers func() []string
	log   *slog.Logger

	// mayLead says whether the member may label itself as the primary now; nil for
	// always. Set it before FollowRole.
	mayLead func() bool
	// observe is called with the pod as the API server has it; nil for nothing. Set it before
	// FollowRole.
	observe func(*corev1.Pod)

	mu       sync.Mutex
	want     string
	observed string // label as the watch reported it last
	wake     chan struct{}
	// withdrawal ends the withdrawal of the pod, which is labelled as a member meanwhile; nil
	// while there is none. After it has begun, demoted says that the member is not the
	// primary any more.
	withdrawal *time.Timer
	demoted    bool
}

// NewLabeller labels the pod of the identity; peers names the pods of the
// cluster's members.
func NewLabeller(id identity.Identity, client kubernetes.Interface, peers func() []string, log *slog.Logger) *Labeller {
	return &Labeller{id: id, pods: client.CoreV1().Pods(id.Namespace), peers: peers, log: log, wake: make(chan struct{}, 1)}
}

// LimitPrimary has the member label itself as the primary only while it may lead.
func (l *Labeller) LimitPrimary(mayLead func() bool) { l.mayLead = mayLead }

// ObservePod has each version of the pod observed, as the API server has it.
func (l *Labeller) ObservePod(observe func(*corev1.Pod)) { l.observe = observe }

// SetRole wants another role from now on. It does not wait.
func (l *Labeller) SetRole(role string) {
	l.mu.Lock()
	l.want = role
	switch {
	case l.withdrawal == nil:
	case role != v1alpha1.RolePrimary && !l.demoted:
		l.demoted = true
		l.withdrawal.Reset(returnPause)
	case role == v1alpha1.RolePrimary && l.demoted:
		l.withdrawal = nil
	}
	l.mu.Unlock()
	l.wakeUp()
}

// Withdraw takes a primary that another member is about to replace out of its Service, and
// lets time pass in which the nodes' proxies take that up, so that they take up another
// primary at once. Sessions that are open go on meanwhile. It ends soon after the member has got another role, and after a
// limit; restore ends it where the member stays the primary.
func (l *Labeller) Withdraw(ctx context.Context, wait time.Duration) (restore func()) {
	restore = l.beginWithdrawal()
	waiting, cancel := context.WithTimeout(ctx, labelTimeout)
	defer cancel()
	l.WaitForLabel(waiting)
	if l.isSettled() { // otherwise no proxy has heard of it
		clock.Sleep(ctx, wait)
	}
	return restore
}

func (l *Labeller) beginWithdrawal() (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var own *time.Timer
	end = func() {
		l.mu.Lock()
		if l.withdrawal == own {
			l.withdrawal = nil
		}
		l.mu.Unlock()
		l.wakeUp()
	}
	own = time.AfterFunc(withdrawLimit, end)
	l.withdrawal, l.demoted = own, false
	l.wakeUp()
	return end
}

// WaitForLabel waits until the label is as wanted, or ctx ends.
func (l *Labeller) WaitForLabel(ctx context.Context) {
	for !l.isSettled() && clock.Sleep(ctx, 20*time.Millisecond) {
	}
}

func (l *Labeller) isSettled() bool {
	want, observed := l.compare()
	return want == observed
}

// compare is which label the pod should have, and which one it has.
func (l *Labeller) compare() (want, observed string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.withdrawal != nil {
		return v1alpha1.RoleMember, l.observed
	}
	return l.want, l.observed
}

func (l *Labeller) wakeUp() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// FollowRole labels whenever the role changes or another client changes the label,
// until ctx ends.
func (l *Labeller) FollowRole(ctx context.Context) {
	go followObject(ctx, l.pods, l.id.Pod, l.recordPod, func(err error) {
		l.log.Info("cannot follow the pod", "error", err.Error())
	})
	pause := time.Duration(0)
	for {
		if pause == 0 {
			select {
			case <-ctx.Done():
				return
			case <-l.wake:
			}
		} else if !clock.Sleep(ctx, pause) {
			return
		}
		if err := l.labelPod(ctx); err != nil && ctx.Err() == nil {
			pause = min(max(2*pause, 250*time.Millisecond), 5*time.Second)
			l.log.Info("cannot label the pod", "error", err.Error(), "retry", pause.String())
			continue
		}
		pause = 0
	}
}

// recordPod takes in the pod as the API server has it.
func (l *Labeller) recordPod(pod *corev1.Pod) {
	if string(pod.UID) != l.id.PodUID {
		return
	}
	l.mu.Lock()
	l.observed = pod.Labels[v1alpha1.LabelRole]
	l.mu.Unlock()
	l.wakeUp()
	if l.observe != nil {
		l.observe(pod)
	}
}

func (l *Labeller) labelPod(ctx context.Context) error {
	want, observed := l.compare()
	if want == "" || want == observed {
		return nil
	}
	if want == v1alpha1.RolePrimary {
		if l.mayLead != nil && !l.mayLead() {
			return nil // its successor has taken the label away
		}
		if err := l.takeFromOthers(ctx); err != nil {
			return err
		}
	}
	if err := l.applyLabel(ctx, l.id.Pod, types.UID(l.id.PodUID), want); err != nil {
		return err
	}
	l.mu.Lock()
	l.observed = want
	l.mu.Unlock()
	l.log.Info("pod labelled", "role", want)
	l.wakeUp()
	return nil
}

// takeFromOthers removes the primary's label from every other pod first, so
// that a Service never selects a predecessor beside its successor.
func (l *Labeller) takeFromOthers(ctx context.Context) error {
	for _, name := range l.peers() {
		if name == l.id.Pod {
			continue
		}
		pod, err := l.readPod(ctx, name)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read pod %s: %w", name, err)
		}
		if pod.Labels[v1alpha1.LabelRole] != v1alpha1.RolePrimary {
			continue
		}
		if err := l.applyLabel(ctx, name, pod.UID, v1alpha1.RoleMember); err != nil && !isGone(err) {
			return err
		}
	}
	return nil
}

func (l *Labeller) readPod(ctx context.Context, name string) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, labelTimeout)
	defer cancel()
	return l.pods.Get(ctx, name, metav1.GetOptions{})
}

// applyLabel is bound to the pod's UID: a successor of the same name is not meant.
func (l *Labeller) applyLabel(ctx context.Context, name string, uid types.UID, role string) error {
	ctx, cancel := context.WithTimeout(ctx, labelTimeout)
	defer cancel()
	pod := corev1ac.Pod(name, l.id.Namespace).WithUID(uid).
		WithLabels(map[string]string{v1alpha1.LabelRole: role})
	_, err := l.pods.Apply(ctx, pod, metav1.ApplyOptions{FieldManager: v1alpha1.AgentFieldManager, Force: true})
	if err != nil {
		return fmt.Errorf("label pod %s: %w", name, err)
	}
	return nil
}

func isGone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }
