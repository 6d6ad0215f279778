package importer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// confirmInterval is how often a member is asked for how far it is.
const confirmInterval = time.Second

// confirm reads what was imported from the member that takes writes now: a failover right
// after the end of the transaction may have lost it. Then it waits for those that follow,
// so that a later failover does not; and reads it once more, from the member that takes
// writes by then.
func (i *Importer) confirm(ctx context.Context) (*v1alpha1.ImportResult, error) {
	i.Report(ctx, Run{Step: v1alpha1.ImportStepConfirming})
	position, err := i.commitMark(ctx)
	if err != nil {
		return nil, err
	}
	for _, member := range i.Members {
		if err := i.awaitMember(ctx, member, position); err != nil {
			return nil, err
		}
	}
	primary, err := i.Target.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer closeConnection(ctx, primary)
	return i.requireRecord(ctx, primary)
}

// mark is a transaction that writes WAL, and changes nothing: once it is committed, those
// members have the import, too, that acknowledge commits.
const mark = `begin read write;
select set_config('synchronous_commit', 'on', true) where current_setting('synchronous_commit') in ('off', 'local');
select pg_catalog.pg_logical_emit_message(true, 'holdfast', 'imported');
commit`

// commitMark commits on the member that takes writes and has what was imported, and returns
// up to where it has WAL on its disk.
func (i *Importer) commitMark(ctx context.Context) (position int64, err error) {
	primary, err := i.Target.connect(ctx)
	if err != nil {
		return 0, err
	}
	defer closeConnection(ctx, primary)
	if _, err := i.requireRecord(ctx, primary); err != nil {
		return 0, err
	}
	if _, err := primary.Exec(ctx, mark, pgx.QueryExecModeSimpleProtocol); err != nil {
		return 0, explainConnection(i.Target.Side, err)
	}
	if err := primary.QueryRow(ctx, "select pg_current_wal_flush_lsn() - '0/0'::pg_lsn").Scan(&position); err != nil {
		return 0, explainConnection(i.Target.Side, err)
	}
	return position, nil
}

// requireRecord reads what was imported. Its error passes: another try copies again.
func (i *Importer) requireRecord(ctx context.Context, primary *pgx.Conn) (*v1alpha1.ImportResult, error) {
	done, err := i.readRecord(ctx, primary)
	if err == nil && done == nil {
		err = fmt.Errorf("%s: the member that takes writes now does not have what was imported into another one", i.Target.Side)
	}
	return done, err
}

// awaitMember waits until a member has WAL up to a position. One that gives no answer, or
// receives nothing more, is waited for as long as Patience says.
func (i *Importer) awaitMember(ctx context.Context, member Server, position int64) error {
	name := member.Hosts[0]
	session := memberSession{server: member}
	defer session.close(ctx)
	wait := memberWait{position: position, patience: i.Patience, moved: time.Now()}
	for {
		got, failure := session.readWAL(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		next, err := wait.judge(got, failure, time.Now())
		progress := fmt.Sprintf("%s has %d MiB to receive", name, (position-got.position)>>20)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %s: %w", i.Target.Side, name, err)
		case next == memberHasAll:
			return nil
		case next == memberIsSkipped:
			i.Log.Warn("a member is not waited for any more", "member", name, "position", got.position, "of", position, "error", failure)
			return nil
		case failure != nil:
			progress = name + " does not answer"
		}
		i.Report(ctx, Run{Step: v1alpha1.ImportStepConfirming, Progress: progress})
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(confirmInterval):
		}
	}
}

// memberWAL is up to where a member has WAL on its disk, in bytes, and whether it takes
// writes.
type memberWAL struct {
	position int64
	primary  bool
}

// memberVerdict is what follows of a member's answer.
type memberVerdict int

const (
	memberIsAwaited memberVerdict = iota
	memberHasAll
	memberIsSkipped
)

// memberWait is how long a member has been waited for.
type memberWait struct {
	position int64
	patience time.Duration
	// last position that it had, and when that moved, or the wait began.
	last  int64
	moved time.Time
}

// judge is pure. A member that takes writes with less WAL than the one that was imported
// into was promoted without the import: positions of two timelines do not compare.
func (w *memberWait) judge(got memberWAL, failure error, now time.Time) (memberVerdict, error) {
	switch {
	case failure == nil && got.position >= w.position:
		return memberHasAll, nil
	case failure == nil && got.primary:
		return memberIsAwaited, errPromoted
	case failure == nil && got.position != w.last:
		w.last, w.moved = got.position, now
	case now.Sub(w.moved) > w.patience:
		return memberIsSkipped, nil
	}
	return memberIsAwaited, nil
}

var errPromoted = errors.New("it was promoted before it had received all that was imported")

// memberSession asks a member. It connects again where it has to: a server that is started
// again refuses sessions at first.
type memberSession struct {
	server Server
	conn   *pgx.Conn
}

func (s *memberSession) readWAL(parent context.Context) (got memberWAL, err error) {
	if s.conn == nil {
		if s.conn, err = s.server.connectOnce(parent); err != nil {
			s.conn = nil
			return got, err
		}
	}
	ctx, cancel := context.WithTimeout(parent, connectTimeout)
	defer cancel()
	err = s.conn.QueryRow(ctx, `select not pg_is_in_recovery(), case when pg_is_in_recovery()
		then coalesce(greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()), '0/0') else pg_current_wal_flush_lsn() end - '0/0'::pg_lsn`).Scan(&got.primary, &got.position)
	if err != nil {
		s.close(parent)
	}
	return got, err
}

func (s *memberSession) close(ctx context.Context) {
	if s.conn != nil {
		closeConnection(ctx, s.conn)
		s.conn = nil
	}
}
