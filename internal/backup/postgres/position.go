package postgres

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
)

// position in the WAL of a timeline.
type position struct {
	timeline uint64
	at       pglogrepl.LSN
}

// isBefore says whether q is further. A newer timeline is, wherever it began: it
// is what the cluster has agreed on.
func (p position) isBefore(q position) bool {
	return p.timeline < q.timeline || p.timeline == q.timeline && p.at < q.at
}

func (p position) String() string { return fmt.Sprintf("%d:%s", p.timeline, p.at) }

// readPosition reads 1:0/16B3748.
func readPosition(text string) (position, error) {
	timeline, at, _ := strings.Cut(text, ":")
	n, err := strconv.ParseUint(timeline, 10, 32)
	if err != nil {
		return position{}, fmt.Errorf("%q is no WAL position with a timeline", text)
	}
	lsn, err := parseLSN(at)
	return position{n, lsn}, err
}

// parseLSN reads 0/16B3748.
func parseLSN(text string) (pglogrepl.LSN, error) {
	lsn, err := pglogrepl.ParseLSN(text)
	if err != nil {
		return 0, fmt.Errorf("%q is no WAL position", text)
	}
	return lsn, nil
}

const (
	// answerTime is for the short questions that a member is asked.
	answerTime = 30 * time.Second
	// checkpointTime is for all that a replica has in memory to be on its disk.
	checkpointTime = 10 * time.Minute
)

// identity is what a member says of itself.
type identity struct {
	system string
	// has is what it has of the WAL.
	has position
}

func identifyMember(ctx context.Context, conn *pgconn.PgConn) (identity, error) {
	seen, err := pglogrepl.IdentifySystem(ctx, conn)
	if err != nil {
		return identity{}, fmt.Errorf("ask which database it is: %w", err)
	}
	return identity{seen.SystemID, position{uint64(uint32(seen.Timeline)), seen.XLogPos}}, nil //nolint:gosec // PostgreSQL's timelines are unsigned
}

// awaitFit waits until a member has what the copy must reach, and lets it settle. A
// replica's copy ends where its files are known to be consistent, which is on
// record from time to time: the second of two checkpoints in a row records all
// that was replayed. The copy itself asks for that one.
func (s *Source) awaitFit(ctx context.Context, conn *pgconn.PgConn, address string) error {
	if s.AtLeast == "" {
		return nil
	}
	want, err := readPosition(s.AtLeast)
	if err != nil {
		return err
	}
	err = s.Patience.TryUntilDone(ctx, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, answerTime)
		defer cancel()
		member, err := identifyMember(ctx, conn)
		if err == nil && member.has.isBefore(want) {
			return false, fmt.Errorf("it has WAL up to %s, and the cluster had it up to %s when the copy was planned", member.has, want)
		}
		return err != nil, err
	})
	if err != nil || conn.ParameterStatus("in_hot_standby") != "on" {
		return err
	}
	return s.requestCheckpoint(ctx, address)
}

// requestCheckpoint makes a replica record what it has: a copy does so before it
// begins, and goes no further.
func (s *Source) requestCheckpoint(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, checkpointTime)
	defer cancel()
	conn, err := s.dialMember(ctx, address)
	if err != nil {
		return err
	}
	defer hangUp(ctx, conn)
	// By hand: pglogrepl.StartBaseBackup refuses a server whose version has no
	// dot, such as 18beta1.
	begin := "BASE_BACKUP (CHECKPOINT 'fast', LABEL 'Holdfast: checkpoint')"
	if strings.HasPrefix(conn.ParameterStatus("server_version"), "14") { // in its own words
		begin = "BASE_BACKUP LABEL 'Holdfast: checkpoint' FAST"
	}
	answer := conn.Exec(ctx, begin)
	if !answer.NextResult() {
		return fmt.Errorf("make a checkpoint: %w", answer.Close())
	}
	return nil
}
