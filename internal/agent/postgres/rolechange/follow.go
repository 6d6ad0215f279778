package rolechange

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
)

// Target is a primary to follow.
type Target struct {
	// Connection to its pod.
	Connection settings.PrimaryConnection
	// Timeline that it was promoted to.
	Timeline int64
}

// FollowProblem says why a standby does not stream.
type FollowProblem int

// The problems that pass by themselves, or with another copy of the data. Data that is
// not the primary's is a DivergedError or an OtherSystemError.
const (
	// NoAnswer: the primary cannot be reached.
	NoAnswer FollowProblem = iota + 1
	// NotLeading: it is no primary, or writes another timeline.
	NotLeading
	// WALRemoved: it no longer has the WAL that the standby needs next.
	WALRemoved
	// NoSlot: it has no replication slot for the standby yet.
	NoSlot
	// NotStreaming: none of these; the server's log says more.
	NotStreaming
)

// FollowError says why a standby does not stream.
type FollowError struct {
	Problem FollowProblem
	Primary string
	Err     error
}

func (e *FollowError) Error() string {
	what := map[FollowProblem]string{
		NoAnswer:     "does not answer: check the network and its pod",
		NotLeading:   "does not lead on the timeline that the Lease names: wait until it is promoted",
		WALRemoved:   "no longer has the WAL that this member needs: copy its data again",
		NoSlot:       "has no replication slot for this member yet: it makes one when it is ready",
		NotStreaming: "does not stream to this member: see the log of the database",
	}[e.Problem]
	if e.Err == nil {
		return fmt.Sprintf("the primary at %s %s", e.Primary, what)
	}
	return fmt.Sprintf("the primary at %s %s: %v", e.Primary, what, e.Err)
}

func (e *FollowError) Unwrap() error { return e.Err }

// Follow has a running standby stream from a primary, and returns once it does. What it
// holds is compared with the primary's history first. After a FollowError for NoSlot,
// WALRemoved or NotStreaming it goes on trying by itself.
func (s *Server) Follow(ctx context.Context, t Target) error {
	s.resumeReplay()
	conninfo := t.Connection.String()
	receivers, _ := s.listReceivers()
	if len(receivers) > 0 && s.live.Upstream != conninfo {
		if _, err := s.StopReceiver(ctx); err != nil {
			return err
		}
	}
	held, err := s.MeasureWAL(ctx)
	if err != nil {
		return err
	}
	if err := CheckTarget(ctx, held, t); err != nil {
		return err
	}
	if err := s.applySettings(ctx, Live{Upstream: conninfo, SynchronousNames: s.live.SynchronousNames}); err != nil {
		return fmt.Errorf("follow the primary: %w", err)
	}
	return s.waitStreaming(ctx, t, held)
}

// CheckTarget makes sure that a primary leads on the timeline that it was promoted to,
// and that what a volume holds is a part of what it does: nil, a FollowError, a
// DivergedError or an OtherSystemError.
func CheckTarget(ctx context.Context, held HeldWAL, t Target) error {
	up, err := ReadUpstream(ctx, t.Connection)
	if err != nil {
		return &FollowError{NoAnswer, t.Connection.Pod, err}
	}
	if up.Standby || up.End.Timeline != t.Timeline {
		return &FollowError{Problem: NotLeading, Primary: t.Connection.Pod}
	}
	return JudgeRejoin(held, up)
}

// streamGrace is how long a stream may take to begin before the primary is asked why it
// does not.
const streamGrace = 2 * time.Second

func (s *Server) waitStreaming(ctx context.Context, t Target, held HeldWAL) error {
	problem := &FollowError{Problem: NotStreaming, Primary: t.Connection.Pod}
	for asked := time.Now(); ; {
		streams := false
		if err := s.query(ctx, "select exists (select from pg_stat_wal_receiver where status = 'streaming')", &streams); err != nil {
			return errors.Join(problem, err)
		}
		if streams {
			return nil
		}
		if time.Since(asked) > streamGrace {
			problem = s.explainNoStream(ctx, t, held)
			if problem.Problem == WALRemoved {
				return problem // waiting does not help
			}
			asked = time.Now()
		}
		if !clock.Sleep(ctx, poll) {
			return problem
		}
	}
}

// explainNoStream asks the primary for what the standby needs next, as its receiver
// does.
func (s *Server) explainNoStream(ctx context.Context, t Target, held HeldWAL) *FollowError {
	problem := &FollowError{Problem: NotStreaming, Primary: t.Connection.Pod}
	ctx, cancel := context.WithTimeout(ctx, streamGrace)
	defer cancel()
	control, err := s.o.Programs.ReadControlData(ctx, s.o.PGData)
	if err != nil || control.SegmentSize <= 0 {
		return problem
	}
	conn, err := DialUpstream(ctx, t.Connection)
	if err != nil {
		problem.Problem, problem.Err = NoAnswer, err
		return problem
	}
	defer func() { _ = conn.Close(context.Background()) }()
	start := held.End.Position - held.End.Position%uint64(control.SegmentSize)
	err = pglogrepl.StartReplication(ctx, conn, settings.SlotName(t.Connection.Member), pglogrepl.LSN(start), pglogrepl.StartReplicationOptions{
		Timeline: int32(held.End.Timeline), Mode: pglogrepl.PhysicalReplication, //nolint:gosec // PostgreSQL's are so long
	})
	if err == nil {
		err = receiveFirst(ctx, conn)
	}
	problem.Problem, problem.Err = classifyRefusal(err), err
	return problem
}

// receiveFirst receives one message of a stream. That a segment is gone shows there.
func receiveFirst(ctx context.Context, conn *pgconn.PgConn) error {
	message, err := conn.ReceiveMessage(ctx)
	if refusal, is := message.(*pgproto3.ErrorResponse); is {
		return pgconn.ErrorResponseToPgError(refusal)
	}
	return err
}

// classifyRefusal reads why a primary does not stream. Its texts are English: it runs
// with Holdfast's settings.
func classifyRefusal(err error) FollowProblem {
	var refusal *pgconn.PgError
	if !errors.As(err, &refusal) {
		return NotStreaming
	}
	switch {
	case refusal.Code == "42704": // undefined_object
		return NoSlot
	case strings.Contains(refusal.Message, "has already been removed"),
		strings.Contains(refusal.Message, "can no longer"),
		strings.Contains(refusal.Message, "cannot read from physical replication slot"):
		return WALRemoved
	}
	return NotStreaming
}
