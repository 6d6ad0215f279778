package apply

import (
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// mostManagers are distinguished by holdfast_drift_total in the life of a process:
// clients choose their names, and every name is a series that stays.
const mostManagers = 200

// otherManagers stands for those that came later, unknownManager for a change
// that left no ownership entry, such as a deletion.
const (
	otherManagers  = "other"
	unknownManager = "unknown"
)

// metrics of all appliers' work.
type metrics struct {
	drifts, applies *prometheus.CounterVec

	mu       sync.Mutex
	managers map[string]bool
}

func newMetrics() *metrics {
	return &metrics{
		drifts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_drift_total",
			Help: "Changes that other clients made to owned objects, by the field manager's name: the first " +
				fmt.Sprint(mostManagers) + " names, then other; unknown where no ownership entry was left.",
		}, []string{"kind", "manager", "action"}),
		applies: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_apply_total",
			Help: "Server-side applies of owned objects by result: created, changed, unchanged, dryrun or failed.",
		}, []string{"kind", "result"}),
		managers: map[string]bool{},
	}
}

func (m *metrics) registerMetrics(r prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{m.drifts, m.applies} {
		if err := r.Register(c); err != nil {
			return fmt.Errorf("register the metrics of apply: %w", err)
		}
	}
	return nil
}

// countDrift counts one drift.
func (m *metrics) countDrift(d Drift) {
	m.drifts.WithLabelValues(d.Object.GVK.Kind, m.managerLabel(d.Manager), d.Action).Inc()
}

// managerLabel is the label of a manager: its name, as long as there are not too many.
func (m *metrics) managerLabel(manager string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case manager == "":
		return unknownManager
	case m.managers[manager]:
		return manager
	case len(m.managers) >= mostManagers:
		return otherManagers
	}
	m.managers[manager] = true
	return manager
}

// countApply counts one server-side apply.
func (m *metrics) countApply(id ObjectID, result string) {
	m.applies.WithLabelValues(id.GVK.Kind, result).Inc()
}
