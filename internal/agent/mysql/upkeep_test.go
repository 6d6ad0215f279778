package mysql

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/firstdatabase"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// A primary that lost its majority for a moment serves again at once, also where the upkeep
// did not see that.
func TestAccountIsEnsuredAfterALossOfTheMajority(t *testing.T) {
	r := newTestRun(t, agentapi.ClusterConfig{})
	u, account := newUpkeep(r), firstdatabase.Account{Owner: "app"}
	leads := group.Observation{UUID: own, State: group.Online, View: inView("1", own, second)}
	r.member.observe(leads)
	if !u.isDue(account) {
		t.Error("a new primary is not prepared")
	}
	u.noteEnsured(account, map[string]string{}, nil)
	if u.isDue(account) {
		t.Error("it is due again at once")
	}
	if !u.isDue(firstdatabase.Account{Owner: "app", Password: "new"}) {
		t.Error("a new password is not due")
	}
	lost := leads
	lost.View = inView("1", own, second)
	lost.View.Members[1].State = group.Unreachable
	r.member.observe(lost)
	r.member.observe(leads)
	if !u.isDue(account) {
		t.Error("it is out of the Service until the interval has passed")
	}
}

// A password that cannot be kept keeps no clients away, and is tried again sooner than one
// that is kept, and not at once. Without any details nothing is known.
func TestPasswordThatIsNotKept(t *testing.T) {
	r := newTestRun(t, agentapi.ClusterConfig{})
	r.member.observe(group.Observation{UUID: own, State: group.Online, View: inView("1", own)})
	u, account, locked := newUpkeep(r), firstdatabase.Account{Owner: "app"}, errors.New("the account is locked")
	u.noteEnsured(account, nil, locked)
	if !u.isDue(account) || r.member.isPrepared() {
		t.Errorf("the database is not known: due at %s, prepared %v", u.due, r.member.isPrepared())
	}
	u.noteEnsured(account, map[string]string{}, locked)
	if u.isDue(account) || !r.member.isPrepared() || u.passwordErr == nil || u.due > clock.Boottime()+accountRetry {
		t.Errorf("due at %s, prepared %v", u.due, r.member.isPrepared())
	}
	u.noteEnsured(account, map[string]string{}, nil)
	if u.passwordErr != nil || u.due <= clock.Boottime()+accountRetry {
		t.Errorf("due at %s", u.due)
	}
}

// The logs of the server are no part of a clone. A table whose name is like theirs is.
func TestMeasureDirectory(t *testing.T) {
	dir := t.TempDir()
	for name, size := range map[string]int{
		"ibdata1": 1000, "binlog.000001": 5000, "relay-group_replication_applier.000001": 7000,
		"app/relay_stations.ibd": 200, "app/binlog.ibd": 30, "relay/t.ibd": 4,
	} {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(strings.Repeat("x", size)), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if size, err := measureDirectory(t.Context(), dir); err != nil || size != 1234 {
		t.Errorf("%d, %v", size, err)
	}
}
