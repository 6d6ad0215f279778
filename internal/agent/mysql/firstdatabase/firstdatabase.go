// Package firstdatabase makes the database and the account that applications use in new
// data of MySQL, and keeps the account's password.
package firstdatabase

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-db/holdfast/internal/agent/mysql/accounts"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/server"
	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
)

// Account is the database and its owner.
type Account struct{ Database, Owner, Password string }

// Names are what the data itself records of them, in the attributes of the agent's account.
type Names struct {
	Database string `json:"database"`
	Owner    string `json:"owner"`
}

// attribute of the agent's account that holds the Names.
const attribute = "holdfastFirstDatabase"

// PasswordGrace is how long the password before stays valid after a change.
const PasswordGrace = 5 * time.Minute

// plainName is what the API lets a database and its owner be named.
var plainName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,31}$`)

// reserved names are accounts or databases of MySQL or of Holdfast.
var reserved = []string{"root", "mysql", "sys", "information_schema", "performance_schema", accounts.Agent, accounts.Recovery, accounts.Clone, accounts.Copier}

// check says why the names cannot be used; nil when they can.
func (a Account) check() error {
	for field, name := range map[string]string{"spec.bootstrap.database": a.Database, "spec.bootstrap.owner": a.Owner} {
		if !plainName.MatchString(name) || slices.Contains(reserved, name) {
			return fmt.Errorf("%s: %q cannot be used: choose a name of lower-case letters, digits and underscores that MySQL does not use itself", field, name)
		}
	}
	return nil
}

func (a Account) user() string { return accounts.Quote(a.Owner) + "@'%'" }

// createStatements make the account. In the name of a database that rights are granted on,
// an underscore stands for any character.
func (a Account) createStatements() []string {
	return []string{
		"CREATE DATABASE IF NOT EXISTS `" + a.Database + "`",
		"CREATE USER IF NOT EXISTS " + a.user() + " IDENTIFIED BY " + accounts.Quote(a.Password),
		"GRANT ALL PRIVILEGES ON `" + strings.ReplaceAll(a.Database, "_", `\_`) + "`.* TO " + a.user(),
	}
}

// recordStatement writes the names into the data.
func (a Account) recordStatement() string {
	text, err := json.Marshal(map[string]Names{attribute: {Database: a.Database, Owner: a.Owner}})
	if err != nil {
		panic(fmt.Sprintf("two names always marshal: %v", err))
	}
	return "ALTER USER " + accounts.Quote(accounts.Agent) + "@'localhost' ATTRIBUTE " + accounts.Quote(string(text))
}

// parseNames reads the attributes of the agent's account. Names that the API would not take
// are none.
func parseNames(attributes string) (Names, bool) {
	var all map[string]json.RawMessage
	var names Names
	if attributes == "" || json.Unmarshal([]byte(attributes), &all) != nil || json.Unmarshal(all[attribute], &names) != nil {
		return Names{}, false
	}
	if (Account{Database: names.Database, Owner: names.Owner}).check() != nil {
		return Names{}, false
	}
	return names, true
}

// Server is the server that leads, on which the account is kept.
type Server struct {
	DB *sql.DB
	// Login says whether the server takes a password of an account.
	Login func(ctx context.Context, user, password string) (bool, error)
}

// Ensure makes the first database with its owner in new data, and keeps the password of the
// owner as it is declared. The names that the data was made with count. It returns the
// details to report: with an error, too, where only the password could not be kept. Clients
// may have other accounts.
func (s Server) Ensure(ctx context.Context, declared Account) (map[string]string, error) {
	var attributes sql.NullString
	err := s.DB.QueryRowContext(ctx, "SELECT ATTRIBUTE FROM information_schema.USER_ATTRIBUTES WHERE USER = ? AND HOST = 'localhost'", accounts.Agent).Scan(&attributes)
	if err != nil {
		return nil, fmt.Errorf("read the first database: %w", err)
	}
	names, done := parseNames(attributes.String)
	account := declared
	if done {
		account.Database, account.Owner = names.Database, names.Owner
	} else {
		if err := account.check(); err != nil {
			return nil, err
		}
		if err := accounts.Apply(ctx, s.DB, append(account.createStatements(), account.recordStatement())); err != nil {
			return nil, fmt.Errorf("make the first database: %w", err)
		}
	}
	hasDatabase, hasOwner, err := s.observe(ctx, account)
	if err != nil {
		return nil, err
	}
	if hasOwner {
		err = s.keepPassword(ctx, account)
	}
	return account.describe(hasDatabase, hasOwner), err
}

func (a Account) describe(hasDatabase, hasOwner bool) map[string]string {
	details := map[string]string{mysqlapi.DetailDatabase: a.Database, mysqlapi.DetailOwner: a.Owner}
	var absent []string
	if !hasDatabase {
		absent = append(absent, "database "+a.Database)
	}
	if !hasOwner {
		absent = append(absent, "user "+a.Owner)
	}
	if len(absent) > 0 {
		details[mysqlapi.DetailAbsent] = strings.Join(absent, " and ")
	}
	return details
}

func (s Server) observe(ctx context.Context, a Account) (hasDatabase, hasOwner bool, err error) {
	err = s.DB.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = ?),
		EXISTS (SELECT 1 FROM mysql.user WHERE User = ? AND Host = '%')`, a.Database, a.Owner).Scan(&hasDatabase, &hasOwner)
	if err != nil {
		return false, false, fmt.Errorf("observe the first database: %w", err)
	}
	return hasDatabase, hasOwner, nil
}

// keepPassword changes the password where the server does not take the declared one. The one
// before stays valid for PasswordGrace.
func (s Server) keepPassword(ctx context.Context, a Account) error {
	if a.Password == "" {
		return errors.New("the owner's password is empty")
	}
	taken, err := s.Login(ctx, a.Owner, a.Password)
	if err != nil {
		return fmt.Errorf("try the owner's password: %w", err)
	}
	if !taken {
		err := accounts.Apply(ctx, s.DB, []string{"ALTER USER " + a.user() + " IDENTIFIED BY " + accounts.Quote(a.Password) + " RETAIN CURRENT PASSWORD"})
		if err != nil {
			return fmt.Errorf("change the owner's password: %w", err)
		}
		return nil
	}
	var old bool
	var age int64
	err = s.DB.QueryRowContext(ctx, `SELECT COALESCE(JSON_CONTAINS_PATH(User_attributes, 'one', '$.additional_password'), 0),
		COALESCE(TIMESTAMPDIFF(SECOND, password_last_changed, NOW()), 0) FROM mysql.user WHERE User = ? AND Host = '%'`, a.Owner).Scan(&old, &age)
	if err != nil {
		return fmt.Errorf("observe the owner's passwords: %w", err)
	}
	if !old || time.Duration(age)*time.Second < PasswordGrace {
		return nil
	}
	if err := accounts.Apply(ctx, s.DB, []string{"ALTER USER " + a.user() + " DISCARD OLD PASSWORD"}); err != nil {
		return fmt.Errorf("discard the owner's old password: %w", err)
	}
	return nil
}

// Numbers of the server's errors.
const (
	errAccessDenied       = 1045
	errMustChangePassword = 1820
	errExpiredPassword    = 1862
)

// LoginAt tries a password at a server's socket, over TLS: the server takes a full proof of
// a password over nothing else.
func LoginAt(socket, host string, authorities []byte) func(ctx context.Context, user, password string) (bool, error) {
	return func(ctx context.Context, user, password string) (bool, error) {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(authorities)
		config := mysql.NewConfig()
		config.User, config.Passwd, config.Net, config.Addr, config.Timeout = user, password, "unix", socket, 2*time.Second
		config.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: host}
		config.Logger = &mysql.NopLogger{}
		connector, err := mysql.NewConnector(config)
		if err != nil {
			return false, err
		}
		db := sql.OpenDB(connector)
		defer func() { _ = db.Close() }()
		err = db.PingContext(ctx)
		switch server.ErrorNumber(err) {
		case errAccessDenied:
			return false, nil
		case errMustChangePassword, errExpiredPassword:
			return true, nil
		}
		return err == nil, err
	}
}
