package server

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-db/holdfast/internal/agent/mysql/settings"
)

// refusing is a server that answers changes of settings with errors of these numbers; with 0
// the connection breaks.
type refusing map[string]uint16

func (r refusing) Connect(context.Context) (driver.Conn, error) { return session{r}, nil }
func (r refusing) Driver() driver.Driver                        { return nil }

type session struct{ refusing }

var errUnused = errors.New("not used here")

func (session) Prepare(string) (driver.Stmt, error) { return nil, errUnused }
func (session) Close() error                        { return nil }
func (session) Begin() (driver.Tx, error)           { return nil, errUnused }

func (s session) ExecContext(_ context.Context, statement string, _ []driver.NamedValue) (driver.Result, error) {
	number, refused := s.refusing[strings.Fields(statement)[2]]
	switch {
	case !refused:
		return driver.ResultNoRows, nil
	case number == 0:
		return nil, errors.New("the connection is broken")
	}
	return nil, &mysql.MySQLError{Number: number, Message: "no"}
}

// An error of the server that says nothing of a setting keeps no other setting back.
func TestUnclearErrorsOfSettings(t *testing.T) {
	wanted := map[string]string{"a": "1", "b": "2", "c": "3", "d": "4", "e": "5"}
	apply := func(r refusing) (Applied, error) {
		db := sql.OpenDB(r)
		defer func() { _ = db.Close() }()
		return ApplySettings(t.Context(), db, settings.PlanChanges(nil, wanted))
	}
	applied, err := apply(refusing{"a": 3093, "b": 1238, "d": 1231})
	if err != nil || !slices.Equal(applied.Taken, []string{"c", "e"}) || !slices.Equal(applied.Pending, []string{"b"}) ||
		len(applied.Refused) != 1 || applied.Refused["d"] == "" || len(applied.Unclear) != 1 || applied.Unclear["a"] == "" {
		t.Errorf("%+v, %v", applied, err)
	}
	// What a broken connection leaves is tried again by another one.
	if applied, err := apply(refusing{"c": 0}); err == nil || !slices.Equal(applied.Taken, []string{"a", "b"}) {
		t.Errorf("%+v, %v", applied, err)
	}
}
