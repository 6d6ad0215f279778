package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"
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

// awaitFit refuses a member that is not to be copied, and waits until it has what all
// members had. It returns the system identifier of the group, and that.
func (s *Source) awaitFit(ctx context.Context, db *sql.DB, member agentapi.BackupSource) (systemIdentifier string, required mysqlgtid.Set, err error) {
	asking, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var uuid string
	var named sql.NullString
	if err := db.QueryRowContext(asking, "SELECT @@GLOBAL.server_uuid, @@GLOBAL.group_replication_group_name").Scan(&uuid, &named); err != nil {
		return "", required, err
	}
	if systemIdentifier, err = s.identify(strings.ToLower(named.String)); err != nil {
		return "", required, err
	}
	view, err := group.Client{DB: db}.ObserveView(asking)
	if err != nil {
		return "", required, fmt.Errorf("ask for the group: %w", err)
	}
	if why := describeUnfit(view, uuid); why != "" {
		return "", required, errors.New(why)
	}
	primary, _ := view.Primary() // without one it is unfit
	if required, err = s.readRequired(ctx, member, db, primary); err != nil {
		return "", required, err
	}
	return systemIdentifier, required, awaitApplied(ctx, db, required)
}

// identify is the system identifier of the group that a member is in. A group that went on
// without members numbers its transactions under another name, which the task names.
func (s *Source) identify(name string) (systemIdentifier string, err error) {
	isName := func(known string) bool { return strings.EqualFold(known, name) }
	switch {
	case name == "":
		return "", errors.New("it is in no group")
	case s.Group == "":
		return name, nil
	case isName(s.Group) || slices.ContainsFunc(s.OtherNames, isName):
		return s.Group, nil
	}
	return "", &backup.Permanent{Err: fmt.Errorf("it is in the group %s, and %s is to be copied", name, strings.Join(append([]string{s.Group}, s.OtherNames...), " or "))}
}

// describeUnfit says why a member is not copied, by the group as it sees it; empty where it
// is. The primary is spared while a secondary is online.
func describeUnfit(view group.View, uuid string) string {
	online := 0
	for _, m := range view.Members {
		if m.State == group.Online {
			online++
		}
	}
	_, led := view.Primary()
	switch own, _ := view.Find(uuid); {
	case own.State != group.Online:
		return "it is not online in the group, and may lack what the others have"
	case !view.HasMajority():
		return "its group has no majority, and others may have gone on"
	case !led:
		return "its group has no primary that is online, and others may have what it lacks"
	case own.Primary && online > 1:
		return "it leads, and a secondary is online: only that is copied"
	}
	return ""
}

// readRequired are the transactions that the members have which answer. The primary must be
// among them: it has every transaction that was acknowledged, and one that no other member
// has applied may be with it alone.
func (s *Source) readRequired(ctx context.Context, member agentapi.BackupSource, db *sql.DB, primary group.Member) (required mysqlgtid.Set, err error) {
	uuid, required, err := readTransactions(ctx, db)
	if err != nil {
		return required, err
	}
	answered := strings.EqualFold(uuid, primary.UUID)
	var silent []error
	for _, other := range s.Members {
		if other == member {
			continue
		}
		peer, err := s.dialMember(other.Address)
		if err != nil {
			return required, err
		}
		uuid, has, err := readTransactions(ctx, peer)
		_ = peer.Close()
		if err != nil {
			silent = append(silent, fmt.Errorf("%s: %w", other.Name, err))
			continue
		}
		required = required.Union(has)
		answered = answered || strings.EqualFold(uuid, primary.UUID)
	}
	if ctx.Err() == nil && !answered {
		err = fmt.Errorf("the primary at %s did not answer which transactions it has, and the copy may lack some: %w", primary.Address, errors.Join(silent...))
		if len(silent) == 0 {
			err = fmt.Errorf("the primary at %s is none of the members that this backup asks for their transactions: the next attempt does", primary.Address)
		}
		return required, err
	}
	return required, ctx.Err()
}

// readTransactions asks a server for its UUID and the transactions that it has: those it has
// applied, and those it has only received. A transaction is acknowledged once a majority has
// received it.
func readTransactions(ctx context.Context, db *sql.DB) (uuid string, has mysqlgtid.Set, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	received, err := group.Client{DB: db}.ObserveReceived(ctx)
	if err != nil {
		return "", has, fmt.Errorf("ask for the received transactions: %w", err)
	}
	var text string
	if err := db.QueryRowContext(ctx, "SELECT @@GLOBAL.server_uuid, @@GLOBAL.gtid_executed").Scan(&uuid, &text); err != nil {
		return "", has, fmt.Errorf("ask for the transactions: %w", err)
	}
	executed, err := parseSet(text)
	return uuid, executed.Union(received), err
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
