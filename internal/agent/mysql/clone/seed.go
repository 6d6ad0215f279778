package clone

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/accounts"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/server"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/settings"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
)

// Seed is a throw-away server that clones another one into a new directory.
type Seed struct {
	Programs server.Programs
	Lock     *volumelock.VolumeLock
	// Dir of its own data, which is removed at the end, and Target, which the copy fills.
	// Neither must exist. A copy that fails may leave a part in Target.
	Dir, Target string
	// Prepared is a directory that becomes Dir, if it exists.
	Prepared string
	// Settings by which it reaches the donor.
	Settings settings.Input
	// Account that it logs in to the donor with.
	Account string
	// Patience is how long it waits for a donor that another client clones; 0 for not at all.
	Patience time.Duration
	// Bandwidth is how many bytes a second it reads; 0 for no limit.
	Bandwidth int64
}

// ErrDonorBusy says that another client clones the donor: it serves one at a time.
var ErrDonorBusy = errors.New("the donor is cloned already")

// busyDonor is how the donor says that: the number of its own error is in the text.
var busyDonor = regexp.MustCompile(`\b3634\b|concurrent clone operations`)

// CloneServer clones the donor, and returns the version that both have. A donor that gives
// nothing any more is given up by MySQL itself, after six minutes.
func (s Seed) CloneServer(ctx context.Context, host string, port int) (version string, err error) {
	defer func() { _ = os.RemoveAll(s.Dir) }()
	if err := s.takePrepared(ctx); err != nil {
		return "", err
	}
	file, err := s.writeSettings()
	if err != nil {
		return "", err
	}
	mysqld, err := s.Programs.StartMysqld(s.Lock, file, func(string) {})
	if err != nil {
		return "", err
	}
	defer func() { _ = mysqld.StopAtOnce() }()
	db, err := server.OpenNew(settings.SocketPath(s.Settings.RunDir))
	if err != nil {
		return "", err
	}
	defer func() { _ = db.Close() }()
	if err := mysqld.AwaitReady(ctx, db); err != nil {
		return "", err
	}
	if err := s.awaitCopy(ctx, func() error { return s.askForCopy(ctx, db, host, port) }); err != nil {
		return "", err
	}
	err = db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version)
	if err == nil {
		err = mysqld.StopAtOnce()
	}
	return version, err
}

// takePrepared makes Dir, of what is prepared where there is something.
func (s Seed) takePrepared(ctx context.Context) error {
	if s.Prepared != "" {
		err := os.Rename(s.Prepared, s.Dir)
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return s.makeData(ctx)
}

func (s Seed) makeData(ctx context.Context) error {
	file, err := s.writeSettings()
	if err != nil {
		return err
	}
	return s.Programs.MakeData(ctx, file, s.Dir)
}

func (s Seed) writeSettings() (file string, err error) {
	in := s.Settings
	in.DataDir, in.Parameters, in.Isolated = s.Dir, nil, true
	all := settings.ComputeSettings(in)
	// Small: it holds nothing.
	all["innodb_redo_log_capacity"], all["innodb_buffer_pool_size"] = strconv.Itoa(8<<20), strconv.Itoa(32<<20)
	all["innodb_buffer_pool_chunk_size"] = strconv.Itoa(32 << 20)
	maps.Copy(all, limitBandwidth(s.Bandwidth))
	file = filepath.Join(in.RunDir, "clone.cnf")
	return file, atomicfile.WriteFile(file, []byte(settings.RenderSettings(all)))
}

// maxThreads is how many threads MySQL clones with by itself.
const maxThreads = 16

// limitBandwidth are the settings for a limit. MySQL takes whole MiB, and at least one for
// each of its threads.
func limitBandwidth(bytes int64) map[string]string {
	if bytes <= 0 {
		return nil
	}
	most := max(1, bytes>>20)
	return map[string]string{
		"clone_max_data_bandwidth": strconv.FormatInt(min(most, 1<<20), 10), // more, MySQL refuses
		"clone_max_concurrency":    strconv.FormatInt(min(most, maxThreads), 10),
	}
}

// busyInterval is between two attempts to clone a donor that another client clones.
const busyInterval = 250 * time.Millisecond

// awaitCopy asks again while the donor is busy, as long as the patience lasts.
func (s Seed) awaitCopy(ctx context.Context, ask func() error) error {
	for began := time.Now(); ; {
		err := ask()
		if !errors.Is(err, ErrDonorBusy) || time.Since(began) >= s.Patience || !clock.Sleep(ctx, busyInterval) {
			return err
		}
	}
}

// askForCopy has the seed copy the donor. Both are of one series and patch: MySQL refuses
// others.
func (s Seed) askForCopy(ctx context.Context, db *sql.DB, host string, port int) error {
	address := net.JoinHostPort(host, strconv.Itoa(port))
	err := accounts.Apply(ctx, db, []string{
		"SET GLOBAL clone_valid_donor_list = " + accounts.Quote(address),
		fmt.Sprintf("CLONE INSTANCE FROM %s@%s:%d IDENTIFIED BY '' DATA DIRECTORY = %s REQUIRE SSL",
			accounts.Quote(s.Account), accounts.Quote(host), port, accounts.Quote(s.Target)),
	})
	if err != nil && busyDonor.MatchString(err.Error()) {
		return errors.Join(ErrDonorBusy, err, os.RemoveAll(s.Target)) // whatever the attempt began
	}
	return err
}
