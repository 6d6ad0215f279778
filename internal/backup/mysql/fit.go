package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backup"
	"github.com/holdfast-db/holdfast/internal/mysqlgtid"
)

const (
	// answerTime is for one question to a member.
	answerTime = 10 * time.Second
	// applyTime is for a member to apply what the others had when the copy began.
	applyTime = 2 * time.Minute
)

// State and role of a member, as MySQL names them.
const (
	stateOnline = "ONLINE"
	rolePrimary = "PRIMARY"
)

// viewMember is a member of the group, as another one sees it.
type viewMember struct{ uuid, state, role string }

// awaitFit refuses a member that is not to be copied, and waits until it has what all
// members had. It returns the name of the group, and that.
func (s *Source) awaitFit(ctx context.Context, db *sql.DB, member agentapi.BackupSource) (group string, required mysqlgtid.Set, err error) {
	asking, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var uuid string
	var named sql.NullString
	if err := db.QueryRowContext(asking, "SELECT @@GLOBAL.server_uuid, @@GLOBAL.group_replication_group_name").Scan(&uuid, &named); err != nil {
		return "", required, err
	}
	group = strings.ToLower(named.String)
	if s.Group != "" && group != strings.ToLower(s.Group) {
		return "", required, &backup.Permanent{Err: fmt.Errorf("it is in the group %s, and %s is to be copied", group, s.Group)}
	}
	view, err := readView(asking, db)
	if err != nil {
		return "", required, err
	}
	if why := describeUnfit(view, uuid); why != "" {
		return "", required, errors.New(why)
	}
	if required, err = s.readRequired(ctx, member, db); err != nil {
		return "", required, err
	}
	return group, required, awaitApplied(ctx, db, required)
}

func readView(ctx context.Context, db *sql.DB) (view []viewMember, err error) {
	rows, err := db.QueryContext(ctx, "SELECT MEMBER_ID, MEMBER_STATE, MEMBER_ROLE FROM performance_schema.replication_group_members")
	if err != nil {
		return nil, fmt.Errorf("ask for the group: %w", err)
	}
	defer rows.Close() //nolint:errcheck // it was only read
	for rows.Next() {
		var m viewMember
		if err := rows.Scan(&m.uuid, &m.state, &m.role); err != nil {
			return nil, fmt.Errorf("ask for the group: %w", err)
		}
		view = append(view, m)
	}
	return view, rows.Err()
}

// describeUnfit says why a member is not copied, by the group as it sees it; empty where it
// is. The primary is spared while a secondary is online.
func describeUnfit(view []viewMember, uuid string) string {
	online, own := 0, viewMember{}
	for _, m := range view {
		if m.state == stateOnline {
			online++
		}
		if strings.EqualFold(m.uuid, uuid) {
			own = m
		}
	}
	switch {
	case own.state != stateOnline:
		return "it is not online in the group, and may lack what the others have"
	case 2*online <= len(view):
		return "its group has no majority, and others may have gone on"
	case own.role == rolePrimary && online > 1:
		return "it leads, and a secondary is online: only that is copied"
	}
	return ""
}

// readRequired are the transactions that the members have which answer. One that does not
// answer has none that count, but for the one to copy.
func (s *Source) readRequired(ctx context.Context, member agentapi.BackupSource, db *sql.DB) (required mysqlgtid.Set, err error) {
	if required, err = readExecuted(ctx, db); err != nil {
		return required, err
	}
	for _, other := range s.Members {
		if other == member {
			continue
		}
		peer, err := s.dialMember(other.Address)
		if err != nil {
			return required, err
		}
		if executed, err := readExecuted(ctx, peer); err == nil {
			required = required.Union(executed)
		}
		_ = peer.Close()
	}
	return required, ctx.Err()
}

func readExecuted(ctx context.Context, db *sql.DB) (mysqlgtid.Set, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var text string
	if err := db.QueryRowContext(ctx, "SELECT @@GLOBAL.gtid_executed").Scan(&text); err != nil {
		return mysqlgtid.Set{}, fmt.Errorf("ask for the transactions: %w", err)
	}
	return parseSet(text)
}

// awaitApplied waits until a member has applied transactions.
func awaitApplied(ctx context.Context, db *sql.DB, required mysqlgtid.Set) error {
	var late int
	err := db.QueryRowContext(ctx, "SELECT WAIT_FOR_EXECUTED_GTID_SET(?, ?)", required.String(), int(applyTime.Seconds())).Scan(&late)
	if err != nil {
		return fmt.Errorf("wait until it has what the others have: %w", err)
	}
	if late != 0 {
		return fmt.Errorf("it has not applied within %s what the others had", applyTime)
	}
	return nil
}
