package server

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-db/holdfast/internal/agent/mysql/accounts"
)

// sessionVariables keep the agent's statements short, whatever the server's defaults
// are: none waits for a person's lock or for a backlog of the group.
var sessionVariables = map[string]string{
	"lock_wait_timeout":             "5",
	"innodb_lock_wait_timeout":      "5",
	"wait_timeout":                  "3600",
	"sql_mode":                      "'TRADITIONAL'",
	"time_zone":                     "'+00:00'",
	"transaction_isolation":         "'READ-COMMITTED'",
	"autocommit":                    "ON",
	"group_replication_consistency": "'EVENTUAL'",
}

// OpenSocket returns sessions of the agent's account with the server that listens on a
// socket. None is opened yet. Each has its own variables, which the server does not
// know before the group's plugin is loaded: the server's settings load it.
func OpenSocket(socket string) (*sql.DB, error) {
	return openAs(accounts.Agent, socket, sessionVariables)
}

// OpenNew returns sessions with new data, in which only root exists.
func OpenNew(socket string) (*sql.DB, error) { return openAs("root", socket, nil) }

// OpenOffline returns sessions with a server that checks no privileges.
func OpenOffline(socket string) (*sql.DB, error) { return openAs(accounts.Agent, socket, nil) }

// OpenCopier returns sessions of the account that Jobs copy with, over TLS.
func OpenCopier(address string, config *tls.Config) (*sql.DB, error) {
	c := newConfig(accounts.Copier, "tcp", address)
	c.TLS = config
	c.Timeout, c.ReadTimeout = 10*time.Second, 10*time.Minute
	return open(c)
}

func openAs(user, socket string, variables map[string]string) (*sql.DB, error) {
	config := newConfig(user, "unix", socket)
	config.Timeout = 2 * time.Second
	config.Params = variables
	return open(config)
}

func newConfig(user, network, address string) *mysql.Config {
	config := mysql.NewConfig()
	config.User, config.Net, config.Addr = user, network, address
	// The driver would write every lost connection to standard error.
	config.Logger = silent{}
	return config
}

func open(config *mysql.Config) (*sql.DB, error) {
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(4)
	db.SetMaxIdleConns(2)
	return db, nil
}

// silent writes nothing: errors are returned as well.
type silent struct{}

func (silent) Print(...any) {}

// CheckConnection opens a new connection, as a client does, and closes it. A server that
// refuses because it starts, stops or has no connection left has answered.
func CheckConnection(ctx context.Context, socket string) error {
	db, err := openAs(accounts.Agent, socket, nil)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if err := db.PingContext(ctx); !isAnswer(err) {
		return err
	}
	return nil
}

// isAnswer says whether the outcome of a connection is an answer of the server.
func isAnswer(err error) bool {
	return err == nil || ErrorNumber(err) != 0
}

// ErrorNumber is the number of an error that the server sent; 0 for others.
func ErrorNumber(err error) uint16 {
	var sent *mysql.MySQLError
	if errors.As(err, &sent) {
		return sent.Number
	}
	return 0
}
