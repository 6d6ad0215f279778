package rolechange

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// rejoinApplication is a connection that asks a primary before it is followed.
const rejoinApplication = "holdfast_rejoin"

// Upstream is what a server says of itself over the replication protocol.
type Upstream struct {
	SystemIdentifier string
	// End of what it has flushed, on the timeline that it writes.
	End lsn.Point
	// History of that timeline.
	History wal.History
	// Standby says that it is no primary.
	Standby bool
}

// ReadUpstream asks the server at the pod's own address, or at the IP.
func ReadUpstream(ctx context.Context, c settings.PrimaryConnection) (Upstream, error) {
	conn, err := DialUpstream(ctx, c)
	if err != nil {
		return Upstream{}, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	found, err := pglogrepl.IdentifySystem(ctx, conn)
	if err != nil {
		return Upstream{}, err
	}
	up := Upstream{
		SystemIdentifier: found.SystemID, End: lsn.Point{Timeline: int64(found.Timeline), Position: uint64(found.XLogPos)},
		Standby: conn.ParameterStatus("in_hot_standby") != "off",
	}
	if found.Timeline == 1 {
		return up, nil
	}
	file, err := pglogrepl.TimelineHistory(ctx, conn, found.Timeline)
	if err != nil {
		return Upstream{}, fmt.Errorf("read the history of timeline %d: %w", found.Timeline, err)
	}
	up.History, err = wal.ParseHistory(file.Content)
	return up, err
}

// DialUpstream opens a connection as the member's stream does: for replication, or to
// the database that the connection names, as its role.
func DialUpstream(ctx context.Context, c settings.PrimaryConnection) (*pgconn.PgConn, error) {
	host, port, err := net.SplitHostPort(c.Pod)
	if err != nil {
		return nil, fmt.Errorf("the primary's address: %w", err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("the primary's port: %w", err)
	}
	tls, role, session, application := c.RunDir+"/tls", settings.ReplicationRole, "replication=true", rejoinApplication
	if c.Database != "" {
		role, session, application = c.Role, "dbname="+c.Database, c.Application
	}
	config, err := pgconn.ParseConfig(fmt.Sprintf("host=%s port=%d user=%s sslmode=verify-full sslcert=%s/tls.crt sslkey=%s/tls.key sslrootcert=%s/roots.crt connect_timeout=3 application_name=%s %s",
		host, number, role, tls, tls, tls, application, session))
	if err != nil {
		return nil, err
	}
	if c.IP != "" {
		config.LookupFunc = func(context.Context, string) ([]string, error) { return []string{c.IP}, nil }
	}
	return pgconn.ConnectConfig(ctx, config)
}

// DivergedError says that a volume holds WAL that the primary does not.
type DivergedError struct {
	// Held is where the WAL of the volume ends.
	Held lsn.Point
	// Primary is where that of the primary did, and Left where its history left the
	// timeline of Held; 0 where it does not lead through that.
	Primary lsn.Point
	Left    uint64
}

func (e *DivergedError) Error() string {
	left := "whose history does not lead through that timeline"
	if e.Left > 0 {
		left = "which left that timeline at " + wal.FormatPosition(e.Left)
	}
	return fmt.Sprintf("the volume holds WAL to %s, and the primary, %s, is at %s: the volume has diverged; rewind it, or copy the primary's data again", e.Held, left, e.Primary)
}

// OtherSystemError says that a primary is of another database system.
type OtherSystemError struct{ Held, Primary string }

func (e *OtherSystemError) Error() string {
	return fmt.Sprintf("the volume is of the database system %s, and the primary of %s: check which volume belongs to this cluster", e.Held, e.Primary)
}

// JudgeRejoin says whether what a volume holds is a part of what a primary does, so that
// it can follow as it is: nil, a DivergedError or an OtherSystemError. It relies on
// timelines that are begun once; whether WAL of one timeline is the same is the part
// of the package divergence.
func JudgeRejoin(held HeldWAL, up Upstream) error {
	if held.SystemIdentifier != up.SystemIdentifier {
		return &OtherSystemError{held.SystemIdentifier, up.SystemIdentifier}
	}
	way := slices.Concat(up.History, wal.History{{Timeline: uint32(up.End.Timeline), Position: up.End.Position}}) //nolint:gosec // PostgreSQL's are so long
	diverged := &DivergedError{Held: held.End, Primary: up.End}
	left, found := findTurn(way, uint32(held.End.Timeline)) //nolint:gosec // PostgreSQL's are so long
	if !found {
		return diverged
	}
	if held.End.Timeline != up.End.Timeline {
		diverged.Left = left
	}
	if held.End.Position > left {
		return diverged
	}
	for _, turn := range held.History {
		if !slices.Contains(held.Timelines, int64(turn.Timeline)) {
			continue
		}
		if at, found := findTurn(way, turn.Timeline); !found || at != turn.Position {
			return diverged // one number, and two timelines
		}
	}
	return nil
}

// findTurn finds where a way leaves a timeline.
func findTurn(way wal.History, timeline uint32) (uint64, bool) {
	i := slices.IndexFunc(way, func(t wal.Turn) bool { return t.Timeline == timeline })
	if i < 0 {
		return 0, false
	}
	return way[i].Position, true
}
