package mysql

import (
	"context"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/metrics"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/server"
	"github.com/holdfast-db/holdfast/internal/agent/tuning"
)

// tuningLimit bounds what a measurement may take.
const tuningLimit = 5 * time.Second

// measureTuning measures a primary for advice about settings; nil of another member, and
// where the server does not answer.
func (a *mysqlAgent) measureTuning(ctx context.Context) *tuning.Sample {
	if s := a.Store.Get(); !s.Serving || s.Role != v1alpha1.RolePrimary {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, tuningLimit)
	defer cancel()
	db, err := server.OpenSocket(a.o.socket())
	if err != nil {
		return nil
	}
	defer func() { _ = db.Close() }()
	sample, err := metrics.MeasureTuning(ctx, db)
	if err != nil {
		a.o.Log.Info("a measurement for tuning is missing", "error", err.Error())
		return nil
	}
	return sample
}
