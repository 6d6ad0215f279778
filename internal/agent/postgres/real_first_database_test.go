//go:build postgres

package postgres

import (
	"testing"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/accounts"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// A cluster that is created again with other names gets no second database,
// and no role of another client's gets a password.
func TestRealFirstDatabaseKeepsItsNames(t *testing.T) {
	w := newWorld(t, 1)
	volume := t.TempDir()
	first := w.start(0, volume, "uid-0")
	first.untilRole(v1alpha1.RolePrimary)
	first.exec("create role shopper login")
	first.stop()

	w.configure(func(c *agentapi.ClusterConfig) { c.Database, c.Owner = "shop", "shopper" })
	again := w.start(0, volume, "uid-0b")
	details := again.untilRole(v1alpha1.RolePrimary).Details
	if details[postgresapi.DetailDatabase] != "app" || details[postgresapi.DetailOwner] != "app" || details[postgresapi.DetailAbsent] != "" {
		t.Errorf("details %v", details)
	}
	if got := again.query("select (exists (select from pg_database where datname = 'shop') or (select rolpassword is not null from pg_authid where rolname = 'shopper'))::text"); got != "false" {
		t.Error("the other names were used")
	}
	login(t, w)

	// Nor does a comment that names a superuser hand out its password: what is
	// reported comes back as the configuration.
	again.exec("create role boss superuser login", "comment on role "+settings.ReplicationRole+" is '"+accounts.FirstDatabase{Database: "app", Owner: "boss"}.FormatComment()+"'")
	misled := again.until("misled", func(s agentapi.Status) bool {
		return s.Details[postgresapi.DetailOwner] == "boss" || s.Details[postgresapi.DetailAbsent] != ""
	}).Details
	if owner := misled[postgresapi.DetailOwner]; owner != "" {
		t.Errorf("the owner that a comment names is reported: %s", owner)
		w.configure(func(c *agentapi.ClusterConfig) { c.Database, c.Owner = misled[postgresapi.DetailDatabase], owner })
		again.until("led on", func(agentapi.Status) bool {
			return again.query("select (rolpassword is not null)::text from pg_authid where rolname = 'boss'") == "true"
		})
	}
	if got := again.query("select (rolpassword is null)::text from pg_authid where rolname = 'boss'"); got != "true" {
		t.Error("a superuser that the spec does not name got a password")
	}

	// An older agent recorded no names: those that exist are taken.
	again.exec("comment on role " + settings.ReplicationRole + " is '" + accounts.Bootstrapped + "'")
	again.until("absent", func(s agentapi.Status) bool {
		return s.Details[postgresapi.DetailAbsent] == "database shop" && s.Details[postgresapi.DetailDatabase] == ""
	})
	w.configure(func(c *agentapi.ClusterConfig) { c.Database, c.Owner = "app", "app" })
	again.until("named", func(s agentapi.Status) bool {
		return s.Details[postgresapi.DetailDatabase] == "app" && s.Details[postgresapi.DetailAbsent] == ""
	})
	again.exec("drop database app")
	again.until("dropped", func(s agentapi.Status) bool { return s.Details[postgresapi.DetailAbsent] == "database app" })
}
