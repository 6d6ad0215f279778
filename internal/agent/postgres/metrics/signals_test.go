package metrics

import (
	"testing"

	"github.com/holdfast-db/holdfast/internal/anomaly"
)

// The columns of the query and the lag are the signals.
func TestSignalColumns(t *testing.T) {
	if signalColumns+1 != len(anomaly.PostgresSignals) || anomaly.PostgresSignals[signalColumns].Name != "replication_lag" {
		t.Errorf("%d columns, and the signals are %+v", signalColumns, anomaly.PostgresSignals)
	}
}
