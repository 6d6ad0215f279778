package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/metrics"
	"github.com/holdfast-db/holdfast/internal/agent/tuning"
)

// measureTuning measures a primary for recommendations about settings; nil of another member.
func (a *postgresAgent) measureTuning(ctx context.Context) (*tuning.Sample, error) {
	status := a.Store.Get() // before the settings are read: they are of this configuration or a newer one
	if !status.Serving || !a.isLeading() {
		a.asked.Forget()
		return nil, nil
	}
	var sample *tuning.Sample
	err := a.scrape.Do(ctx, func(ctx context.Context, c *pgx.Conn) (err error) {
		sample, err = metrics.MeasureTuning(ctx, c, a.programs.Major, &a.asked)
		return err
	})
	if sample != nil {
		sample.ConfigHash = status.ConfigHash
	}
	return sample, err
}
