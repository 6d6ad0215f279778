//go:build e2e || soak

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/test/netns"
	"github.com/holdfast-db/holdfast/test/podprocess"
	"github.com/holdfast-db/holdfast/test/writehistory"
)

// Of the load under faults.
const (
	// registerClients use the same registers at the same time.
	registerClients = 4
	// registerPause is between two operations of one client.
	registerPause = 25 * time.Millisecond
	// registersAtOnce are in use; all are replaced by new ones after registersPeriod, so
	// that no history of one is long.
	registersAtOnce = 4
	registersPeriod = 20 * time.Second
	// failurePause is after what failed: a standby refuses writes as fast as it can.
	failurePause = 200 * time.Millisecond
)

// startLoad starts the clients beside the one through the Service: another one through
// it from another node, one in each member's pod, and those of the registers.
func (c *chaos) startLoad() {
	c.t.Helper()
	node := c.primaryPod().Spec.NodeName
	second := c.newServiceWriter("rw-second", node)
	second.start(c.t, second.writeRows)
	c.writers = append(c.writers, second)
	for n := range failoverMembers {
		w := c.newWriter(fmt.Sprintf("member-%d", n), "")
		place := &memberPlace{namespace: c.namespace, pod: c.podName(n), writer: w}
		w.config.LookupFunc = place.lookup
		w.start(c.t, place.writeRows)
		c.writers = append(c.writers, w)
	}
	c.registers = &registers{random: rand.New(rand.NewPCG(c.options.seed, 1)), history: c.history}
	first := c.newServiceWriter("registers", node)
	eventually(c.t, serviceTimeout, "the registers are made", func(ctx context.Context) error {
		conn, err := first.connect(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(ctx) }()
		_, err = conn.Exec(ctx, "create table if not exists registers (register int primary key, value bigint)")
		return err
	})
	first.start(c.t, c.useRegisters(first)...)
	c.writers = append(c.writers, first)
}

// stopLoad ends all clients but the one through the Service.
func (c *chaos) stopLoad() {
	c.t.Helper()
	for _, w := range c.writers {
		w.stop()
	}
}

// memberPlace is where a member is: its pods have one address after the other.
type memberPlace struct {
	namespace, pod string
	writer         *failoverWriter

	uid     types.UID
	address atomic.Pointer[string]
}

func (p *memberPlace) lookup(context.Context, string) ([]string, error) {
	if a := p.address.Load(); a != nil {
		return []string{*a}, nil
	}
	return nil, errNoTarget
}

// writeRows writes in the network of the member's pod, and follows it to the next one.
// What a standby refuses is tried again.
func (p *memberPlace) writeRows(ctx context.Context) {
	var looked time.Time
	failures := 0
	for ctx.Err() == nil {
		if failures > 0 && time.Since(looked) > time.Second {
			p.find(ctx)
			looked = time.Now()
		}
		pause, began := writeInterval, time.Now()
		if p.uid == "" || !p.writeRow(ctx) {
			failures, pause = failures+1, failurePause
		} else {
			failures = 0
		}
		if p.uid == "" {
			failures = 1
		}
		restAfter(ctx, pause, time.Since(began))
	}
}

func (p *memberPlace) writeRow(ctx context.Context) (acknowledged bool) {
	p.writer.turn.Lock()
	defer p.writer.turn.Unlock()
	p.writer.writeRow(ctx)
	return p.writer.session != nil
}

// find looks for the member's pod. Where that cannot be read, the last one is kept.
func (p *memberPlace) find(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	var pod corev1.Pod
	if err := env.client.Get(ctx, types.NamespacedName{Namespace: p.namespace, Name: p.pod}, &pod); err != nil || pod.UID == p.uid || pod.Status.PodIP == "" {
		return
	}
	path, err := podprocess.NetworkNamespace(podprocess.Proc, string(pod.UID))
	if err != nil {
		return
	}
	from, err := netns.Open(path)
	if err != nil {
		return
	}
	p.writer.turn.Lock()
	defer p.writer.turn.Unlock()
	p.writer.disconnect()
	if p.uid != "" {
		_ = p.writer.from.Close()
	}
	p.writer.from, p.uid = from, pod.UID
	p.address.Store(&pod.Status.PodIP)
}

// registers are values that several clients read and write.
type registers struct {
	history *writehistory.Recorder

	mu         sync.Mutex
	random     *rand.Rand
	operations []writehistory.Operation
	written    int64
}

// registerClient has a connection of its own, from where another client is.
type registerClient struct {
	through *failoverWriter
	conn    *pgx.Conn
}

func (r *registerClient) disconnect() {
	if r.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
		defer cancel()
		_ = r.conn.Close(ctx)
		r.conn = nil
	}
}

// useRegisters are the loops of the clients: each has a connection of its own.
func (c *chaos) useRegisters(through *failoverWriter) []func(context.Context) {
	var loops []func(context.Context)
	for n := range registerClients {
		own := &registerClient{through: through}
		loops = append(loops, func(ctx context.Context) {
			defer own.disconnect()
			seen := map[int]int64{}
			for ctx.Err() == nil {
				pause, began := registerPause, time.Now()
				if !c.operate(ctx, own, n, seen) {
					pause = failurePause
				}
				restAfter(ctx, pause, time.Since(began))
			}
		})
	}
	return loops
}

// draw chooses what a client does next; seen is what it last found in each register.
func (r *registers) draw(client int, seen map[int]int64) writehistory.Operation {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := writehistory.Operation{Client: client, Register: int(r.history.Now()/registersPeriod)*registersAtOnce + r.random.IntN(registersAtOnce)}
	switch n := r.random.IntN(5); {
	case n < 2:
		o.Action = writehistory.Read
		return o
	case n == 2 && seen[o.Register] != 0:
		o.Action, o.Old = writehistory.Swap, seen[o.Register]
	default:
		o.Action = writehistory.Set
	}
	r.written++
	o.Value = r.written
	return o
}

// Each action is one statement. The second value is what is there, and the third the
// WAL segment, which no standby has: it refuses even a read.
var registerStatements = map[writehistory.Action]string{
	writehistory.Read: `select false, coalesce((select value from registers where register = $1), 0), pg_walfile_name(pg_current_wal_insert_lsn())`,
	writehistory.Set: `insert into registers values ($1, $2) on conflict (register) do update set value = excluded.value
		returning true, value, pg_walfile_name(pg_current_wal_insert_lsn())`,
	writehistory.Swap: `with changed as (update registers set value = $2 where register = $1 and value = $3 returning 1)
		select exists (select from changed), coalesce((select value from registers where register = $1), 0), pg_walfile_name(pg_current_wal_insert_lsn())`,
}

// operate does one operation and records it.
func (c *chaos) operate(ctx context.Context, w *registerClient, client int, seen map[int]int64) (acknowledged bool) {
	if w.conn == nil {
		conn, err := w.through.connect(ctx)
		if err != nil {
			return false
		}
		w.conn = conn
	}
	o := c.registers.draw(client, seen)
	arguments := []any{o.Register}
	switch o.Action {
	case writehistory.Set:
		arguments = append(arguments, o.Value)
	case writehistory.Swap:
		arguments = append(arguments, o.Value, o.Old)
	}
	bounded, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	var segment string
	var err error
	o.Sent = c.history.Now()
	if err = w.conn.QueryRow(bounded, registerStatements[o.Action], arguments...).Scan(&o.Swapped, &o.Found, &segment); err == nil {
		o.Timeline, err = timelineOf(segment)
	}
	o.Ended, o.Acknowledged = c.history.Now(), err == nil
	if err != nil {
		w.disconnect()
	} else {
		seen[o.Register] = o.Found
		if o.Action != writehistory.Read && o.Swapped {
			seen[o.Register] = o.Value
		}
	}
	c.registers.add(o)
	return o.Acknowledged
}

func (r *registers) add(o writehistory.Operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.operations = append(r.operations, o)
}

func (r *registers) listOperations() []writehistory.Operation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.operations
}

func (r *registers) countOperations() (acknowledged int) {
	for _, o := range r.listOperations() {
		if o.Acknowledged {
			acknowledged++
		}
	}
	return acknowledged
}
