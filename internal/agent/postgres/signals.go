package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/internal/agent/anomalies"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/metrics"
)

// measureSignals measures what is compared with what is usual.
func (a *postgresAgent) measureSignals(ctx context.Context) (*anomalies.Sample, error) {
	var sample *anomalies.Sample
	err := a.scrape.Do(ctx, func(ctx context.Context, c *pgx.Conn) (err error) {
		sample, err = metrics.MeasureSignals(ctx, c, a.Store.Get().Lag)
		return err
	})
	return sample, err
}
