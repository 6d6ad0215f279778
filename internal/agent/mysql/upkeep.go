package mysql

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/accounts"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/firstdatabase"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
)

const (
	// passwordFile holds the password of the first database's owner.
	passwordFile    = "app-password"
	upkeepInterval  = time.Second
	accountInterval = time.Minute
	// accountRetry is between two attempts to keep the owner's password.
	accountRetry    = 10 * time.Second
	measureInterval = 30 * time.Second
	// oldDataAge is how long a member must have been online before the data that it
	// replaces is removed.
	oldDataAge = time.Minute
)

// upkeep keeps what the server runs with, and what clients need, up to date.
type upkeep struct {
	run *serverRun
	// account is what was ensured last, of a primary, with what came of its password. The next
	// time is due then; at once where that is 0.
	account     firstdatabase.Account
	passwordErr error
	due         time.Duration
	measured    time.Duration
	// copier is when the account of Jobs that copy was ensured last; 0 while it is not.
	copier time.Duration
	// unread says that the server has not read its certificates since they changed.
	unread bool
	// served says that the settings are known to work.
	served bool
	// failed is what failed last, by what it was about: it is logged once.
	failed map[string]string
}

func newUpkeep(r *serverRun) *upkeep { return &upkeep{run: r, failed: map[string]string{}} }

func (u *upkeep) follow(ctx context.Context) {
	for pause := time.Duration(0); u.run.member.unprepared.Sleep(ctx, pause); {
		pause = upkeepInterval
		u.note(ctx, "the first database is not ready", u.ensureAccount(ctx))
		u.note(ctx, "the account that backups are made with is not ready", u.ensureCopier(ctx))
		u.note(ctx, "the configuration is not taken up yet", u.run.settings.takeConfig(ctx, u.run.currentConfig()))
		u.note(ctx, "the certificate is not taken up", u.takeCertificate(ctx))
		u.noteServing()
		u.note(ctx, "the data that a copy has replaced is not removed", u.dropOldData())
		u.measureData(ctx)
	}
}

// note logs a failure that is another one than the last.
func (u *upkeep) note(ctx context.Context, what string, err error) {
	switch {
	case err == nil:
		delete(u.failed, what)
	case ctx.Err() == nil && u.failed[what] != err.Error():
		u.failed[what] = err.Error()
		u.run.o.Log.Warn(what, "error", err.Error())
	}
}

// takeCertificate has the server read its certificates again where they differ.
func (u *upkeep) takeCertificate(ctx context.Context) error {
	changed, err := u.run.writeCertificates()
	if err != nil || !changed && !u.unread {
		return err
	}
	u.run.o.Log.Info("the certificate has changed")
	err = accounts.Apply(ctx, u.run.db, []string{"ALTER INSTANCE RELOAD TLS"})
	u.unread = err != nil
	return err
}

// ensureAccount makes the first database and keeps its owner's password, on a primary.
func (u *upkeep) ensureAccount(ctx context.Context) error {
	r := u.run
	config := r.currentConfig()
	if o := r.member.current(); !r.member.isPrimary() || o.SuperReadOnly || config == nil {
		u.due = 0
		return nil
	}
	password, err := os.ReadFile(filepath.Join(r.o.CredentialsDir, passwordFile))
	if err != nil {
		return err
	}
	account := firstdatabase.Account{Database: config.Database, Owner: config.Owner, Password: strings.TrimRight(string(password), "\n")}
	if !u.isDue(account) {
		return u.passwordErr
	}
	bundle, _ := r.Certificates.Current()
	if bundle == nil {
		return errors.New("the member has no certificate yet")
	}
	host, _ := r.o.Database(r.o.Identity.Pod)
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	details, err := firstdatabase.Server{DB: r.db, Login: firstdatabase.LoginAt(r.o.socket(), host, bundle.CAPEM)}.Ensure(ctx, account)
	u.noteEnsured(account, details, err)
	return err
}

// isDue says whether the account is to be ensured. A primary that has lost its majority since,
// if only for a moment, is not prepared for clients any more.
func (u *upkeep) isDue(account firstdatabase.Account) bool {
	return u.due == 0 || account != u.account || !u.run.member.isPrepared() || clock.Boottime() >= u.due
}

// noteEnsured notes what came of it. With details clients can be let in, whether or not the
// password could be kept: that is tried again soon.
func (u *upkeep) noteEnsured(account firstdatabase.Account, details map[string]string, err error) {
	if details == nil {
		return
	}
	u.run.reportDetails(details)
	u.run.member.setPrepared()
	interval := accountInterval
	if err != nil {
		interval = accountRetry
	}
	u.account, u.passwordErr, u.due = account, err, clock.Boottime()+interval
}

// ensureCopier makes the account of Jobs that copy a member, on a primary.
func (u *upkeep) ensureCopier(ctx context.Context) error {
	if o := u.run.member.current(); !u.run.member.isPrimary() || o.SuperReadOnly {
		u.copier = 0
		return nil
	}
	if u.copier > 0 && clock.Boottime()-u.copier < accountInterval {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err := accounts.EnsureCopier(ctx, u.run.db)
	if err == nil {
		u.copier = clock.Boottime()
	}
	return err
}

// reportDetails reports what the data says of its first database.
func (r *serverRun) reportDetails(found map[string]string) {
	r.Store.Update(func(s *agentapi.Status) {
		details := maps.Clone(s.Details)
		if details == nil {
			details = map[string]string{}
		}
		delete(details, mysqlapi.DetailAbsent)
		maps.Copy(details, found)
		s.Details = details
	})
}

// noteServing keeps the settings that a member serves with.
func (u *upkeep) noteServing() {
	if u.served || u.run.member.onlineFor() == 0 {
		return
	}
	u.served = true
	u.run.crashes = 0
	u.run.settings.keepProven()
}

// dropOldData removes data that a copy has replaced, once the copy is a member of the group
// for a while.
func (u *upkeep) dropOldData() error {
	if u.run.member.onlineFor() < oldDataAge {
		return nil
	}
	dropped, err := datavolume.DropOld(u.run.o.DataDir)
	if dropped {
		u.run.o.Log.Info("the data that a copy has replaced is removed")
	}
	return err
}

// measureData reports how much a copy of the data takes.
func (u *upkeep) measureData(ctx context.Context) {
	if u.measured > 0 && clock.Boottime()-u.measured < measureInterval {
		return
	}
	size, err := measureDirectory(ctx, u.run.o.mysqlDir())
	if err != nil {
		return
	}
	u.measured = clock.Boottime()
	u.run.Store.Update(func(s *agentapi.Status) { s.DataSize = size })
}

// measureDirectory is the size of the files that a clone copies: all but binlogs and relay
// logs, which come and go. A table may be called like one, in the directory of its database.
func measureDirectory(ctx context.Context, dir string) (int64, error) {
	return diskspace.MeasureFiles(ctx, dir, func(path string, entry fs.DirEntry) bool {
		return !entry.IsDir() && filepath.Dir(path) == filepath.Clean(dir) && (strings.HasPrefix(entry.Name(), "binlog.") || strings.HasPrefix(entry.Name(), "relay"))
	})
}
