package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/metrics"
	"github.com/holdfast-db/holdfast/internal/agent/tuning"
)

// tuningLimit bounds what a measurement may take.
const tuningLimit = 5 * time.Second

// measureTuning measures a primary for advice about settings; nil of another member, and
// where the database does not answer.
func (a *postgresAgent) measureTuning(ctx context.Context) *tuning.Sample {
	status := a.Store.Get()
	if !status.Serving || !a.isLeading() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, tuningLimit)
	defer cancel()
	var sample *tuning.Sample
	err := a.scrape.Do(ctx, func(ctx context.Context, c *pgx.Conn) (err error) {
		sample, err = metrics.MeasureTuning(ctx, c, a.programs.Major)
		return err
	})
	if err != nil {
		a.o.Log.Info("a measurement for tuning is missing", "error", err.Error())
		return nil
	}
	return sample
}
