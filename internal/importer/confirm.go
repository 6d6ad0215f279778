package importer

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// confirmInterval is how often a member is asked for how far it is.
const confirmInterval = time.Second

// confirm reads what was imported from the member that takes writes now: a failover right
// after the end of the transaction may have lost it. Then it waits for those that follow,
// so that a later failover does not.
func (i *Importer) confirm(ctx context.Context) (*v1alpha1.ImportResult, error) {
	i.Report(ctx, Run{Step: v1alpha1.ImportStepConfirming})
	primary, err := i.Target.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer closeConnection(ctx, primary)
	done, err := i.readRecord(ctx, primary)
	if err != nil {
		return nil, err
	}
	if done == nil {
		return nil, fmt.Errorf("%s: the member that takes writes now does not have what was imported into another one", i.Target.Side)
	}
	var flushed int64
	if err := primary.QueryRow(ctx, "select pg_current_wal_flush_lsn() - '0/0'::pg_lsn").Scan(&flushed); err != nil {
		return nil, explainConnection(i.Target.Side, err)
	}
	for _, member := range i.Members {
		if err := i.awaitMember(ctx, member, flushed); err != nil {
			return nil, err
		}
	}
	return done, nil
}

// awaitMember waits until a member has flushed WAL up to a position. One that cannot be
// asked has nothing to lead with, or joins later with a copy; one that receives nothing
// more is not waited for.
func (i *Importer) awaitMember(ctx context.Context, member Server, position int64) error {
	conn, err := member.connectOnce(ctx)
	if err != nil {
		i.Log.Info("a member is not waited for", "member", member.Hosts[0], "error", err.Error())
		return ctx.Err()
	}
	defer closeConnection(ctx, conn)
	last, moved := int64(-1), time.Now()
	for {
		received, err := readReceived(ctx, conn)
		switch {
		case err != nil:
			i.Log.Info("a member is not waited for any more", "member", member.Hosts[0], "error", err.Error())
			return ctx.Err()
		case received >= position:
			return nil
		case received != last:
			last, moved = received, time.Now()
		case time.Since(moved) > i.Patience:
			i.Log.Warn("a member receives nothing, and is not waited for any more", "member", member.Hosts[0])
			return nil
		}
		i.Report(ctx, Run{Step: v1alpha1.ImportStepConfirming, Progress: fmt.Sprintf("%s has %d MiB to receive", member.Hosts[0], (position-received)>>20)})
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(confirmInterval):
		}
	}
}

// readReceived reads up to where a member has WAL on its disk: all that it has where it is
// the primary.
func readReceived(ctx context.Context, conn *pgx.Conn) (position int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	err = conn.QueryRow(ctx, `select case when pg_is_in_recovery() then coalesce(greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()), '0/0') else pg_current_wal_flush_lsn() end - '0/0'::pg_lsn`).Scan(&position)
	return position, err
}
