package mysql

import (
	"context"

	"github.com/holdfast-db/holdfast/internal/agent/anomalies"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/metrics"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/server"
)

// measureSignals measures what is compared with what is usual.
func (a *mysqlAgent) measureSignals(ctx context.Context) (*anomalies.Sample, error) {
	db, err := server.OpenSocket(a.o.socket())
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	return metrics.MeasureSignals(ctx, db)
}
