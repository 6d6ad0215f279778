package firstdatabase

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
)

// made is a server whose data has its first database.
type made struct{}

func (made) Connect(context.Context) (driver.Conn, error) { return made{}, nil }
func (made) Driver() driver.Driver                        { return nil }
func (made) Prepare(string) (driver.Stmt, error)          { return nil, errUnused }
func (made) Close() error                                 { return nil }
func (made) Begin() (driver.Tx, error)                    { return nil, errUnused }

var (
	errUnused = errors.New("not used here")
	errLocked = errors.New("the account is locked")
)

func (made) QueryContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	if strings.Contains(query, "USER_ATTRIBUTES") {
		return &row{values: []driver.Value{`{"holdfastFirstDatabase": {"database": "shop", "owner": "app"}}`}}, nil
	}
	return &row{values: []driver.Value{int64(1), int64(1)}}, nil
}

// row is the only one of an answer.
type row struct {
	values []driver.Value
	read   bool
}

func (r *row) Columns() []string { return make([]string, len(r.values)) }
func (r *row) Close() error      { return nil }

func (r *row) Next(to []driver.Value) error {
	if r.read {
		return io.EOF
	}
	r.read = true
	copy(to, r.values)
	return nil
}

// An owner that cannot log in, as one that is locked, keeps no clients from the primary: what
// there is of the first database is known.
func TestOwnerThatCannotLogIn(t *testing.T) {
	db := sql.OpenDB(made{})
	defer func() { _ = db.Close() }()
	s := Server{DB: db, Login: func(context.Context, string, string) (bool, error) { return false, errLocked }}
	details, err := s.Ensure(t.Context(), Account{Database: "app", Owner: "app", Password: "secret"})
	if !errors.Is(err, errLocked) || details[mysqlapi.DetailDatabase] != "shop" {
		t.Errorf("%v, %v", details, err)
	}
}
