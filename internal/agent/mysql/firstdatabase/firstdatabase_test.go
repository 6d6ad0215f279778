package firstdatabase

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNamesAreReadBack(t *testing.T) {
	a := Account{Database: "app_1", Owner: "app", Password: "secret"}
	statement := a.recordStatement()
	from := strings.Index(statement, "{")
	names, done := parseNames(strings.TrimSuffix(statement[from:], "'"))
	if !done || names != (Names{Database: "app_1", Owner: "app"}) {
		t.Errorf("%+v, %v of %s", names, done, statement)
	}
	for name, attributes := range map[string]string{
		"no attribute": "", "another one": `{"mine": 1}`, "no object": `7`, "a name of the agent's": `{"holdfastFirstDatabase": {"database": "app", "owner": "holdfast"}}`,
		"an empty name": `{"holdfastFirstDatabase": {"database": "", "owner": "app"}}`,
	} {
		if names, done := parseNames(attributes); done {
			t.Errorf("%s: %+v", name, names)
		}
	}
}

// Rights on a database are rights on no other one.
func TestCreateStatements(t *testing.T) {
	got := Account{Database: "app_1", Owner: "app", Password: "it's"}.createStatements()
	want := []string{
		"CREATE DATABASE IF NOT EXISTS `app_1`",
		"CREATE USER IF NOT EXISTS 'app'@'%' IDENTIFIED BY 'it''s'",
		"GRANT ALL PRIVILEGES ON `app\\_1`.* TO 'app'@'%'",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestNamesAreChecked(t *testing.T) {
	for _, a := range []Account{{Database: "app", Owner: "root"}, {Database: "mysql", Owner: "app"}, {Database: "App", Owner: "app"}, {Database: "a`b", Owner: "app"}, {}} {
		if a.check() == nil {
			t.Errorf("%+v is taken", a)
		}
	}
	if err := (Account{Database: "orders_1", Owner: "orders"}).check(); err != nil {
		t.Error(err)
	}
}

func TestDescribe(t *testing.T) {
	a := Account{Database: "app", Owner: "shop"}
	if diff := cmp.Diff(map[string]string{"database": "app", "owner": "shop", "absent": "database app and user shop"}, a.describe(false, false)); diff != "" {
		t.Error(diff)
	}
	if _, absent := a.describe(true, true)["absent"]; absent {
		t.Error("something is missing")
	}
}
