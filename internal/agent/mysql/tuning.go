package mysql

import (
	"context"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/metrics"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/server"
	"github.com/holdfast-db/holdfast/internal/agent/tuning"
)

// measureTuning measures a primary for recommendations about settings; nil of another member.
func (a *mysqlAgent) measureTuning(ctx context.Context) (*tuning.Sample, error) {
	if s := a.Store.Get(); !s.Serving || s.Role != v1alpha1.RolePrimary {
		return nil, nil
	}
	db, err := server.OpenSocket(a.o.socket())
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	return metrics.MeasureTuning(ctx, db)
}
