package importer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// Run is how far an import is, and how it ended.
type Run struct {
	Step, Progress string
	Err            error
	Result         *v1alpha1.ImportResult
}

// Importer fills a database.
type Importer struct {
	// Source is read, and Target filled. Members are those of the new cluster, one by one.
	Source, Target Server
	Members        []Server
	// Patience is how long a member that receives nothing more is waited for.
	Patience time.Duration
	// UID of the cluster and DatabaseHash, by which the import is recorded in the database.
	UID, DatabaseHash string
	// Programs is the directory of the new server's programs.
	Programs string
	Log      *slog.Logger
	// Report is called when a step begins, and as it goes on.
	Report func(ctx context.Context, run Run)
}

// Import fills the database from the source, unless that is done already. It returns what
// was imported only once the member that takes writes then has it, and those that follow
// it. An error before the end of the transaction leaves the database as it was.
func (i *Importer) Import(ctx context.Context) (*v1alpha1.ImportResult, error) {
	i.Report(ctx, Run{Step: v1alpha1.ImportStepConnecting})
	if err := i.fill(ctx); err != nil {
		return nil, err
	}
	done, err := i.confirm(ctx)
	if err != nil {
		// What was imported stays: another try has only this left to do.
		return nil, errors.New(err.Error())
	}
	return done, nil
}

// fill copies the source in one transaction, unless an earlier try has.
func (i *Importer) fill(ctx context.Context) error {
	target, err := i.Target.connect(ctx)
	if err != nil {
		return err
	}
	defer closeConnection(ctx, target)
	if done, err := i.readRecord(ctx, target); done != nil || err != nil {
		return err
	}
	if err := i.refuseContent(ctx, target); err != nil {
		return err
	}
	source, err := i.Source.connect(ctx)
	if err != nil {
		return err
	}
	defer closeConnection(ctx, source)
	return i.copyDatabase(ctx, source, target)
}

// record is how the new database says that it was imported: it stands in the comment
// on it, which is written in the transaction of the import.
type record struct {
	UID    string                `json:"uid"`
	Source string                `json:"source"`
	Result v1alpha1.ImportResult `json:"result"`
}

const recordPrefix = "Imported by Holdfast: "

// readRecord reads what this import has recorded in the database; nil where it has not.
func (i *Importer) readRecord(ctx context.Context, target *pgx.Conn) (*v1alpha1.ImportResult, error) {
	var comment string
	err := target.QueryRow(ctx, "select coalesce(shobj_description(oid, 'pg_database'), '') from pg_database where datname = current_database()").Scan(&comment)
	if err != nil {
		return nil, explainConnection(i.Target.Side, err)
	}
	var done record
	if text, is := strings.CutPrefix(comment, recordPrefix); is && json.Unmarshal([]byte(text), &done) == nil && done.UID == i.UID && done.Source == i.DatabaseHash {
		return &done.Result, nil
	}
	return nil, nil
}

// refuseContent fails where the database holds anything that a user made. The transaction of
// the import asks again.
func (i *Importer) refuseContent(ctx context.Context, target *pgx.Conn) error {
	var content []string
	if err := target.QueryRow(ctx, "select "+contentQuery).Scan(&content); err != nil {
		return explainConnection(i.Target.Side, err)
	}
	if len(content) > 0 {
		return newPermanent("database %s holds data already, and nothing is imported over it: %s; remove what it holds, or declare another cluster", i.Target.Database, strings.Join(content, ", "))
	}
	return nil
}

// settingsOfSource have the transaction name things in UTF-8, as the new database does, wait
// as long as it takes, and fail where policies would hide rows. They end with it: a pooler may
// give the session to other clients.
const settingsOfSource = `set local client_encoding to 'UTF8'; set local row_security = off; ` + withoutTimeouts

// beginReading begins a transaction that writes nothing, and reads one snapshot.
func (i *Importer) beginReading(ctx context.Context, source *pgx.Conn) (pgx.Tx, error) {
	tx, err := source.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err == nil {
		_, err = tx.Exec(ctx, settingsOfSource, pgx.QueryExecModeSimpleProtocol)
	}
	if err != nil {
		return nil, explainConnection(i.Source.Side, err)
	}
	return tx, nil
}

// copyDatabase reads the source in one snapshot.
func (i *Importer) copyDatabase(ctx context.Context, source, target *pgx.Conn) error {
	i.Report(ctx, Run{Step: v1alpha1.ImportStepChecking})
	version, err := i.compareVersions(ctx, source, target)
	if err != nil {
		return err
	}
	tx, err := i.beginReading(ctx, source)
	if err != nil {
		return err
	}
	found, err := compareCatalogs(ctx, tx, target)
	if err != nil {
		return explainConnection("the source and the new database", err)
	}
	if err := found.refuse(i.Target.Database); err != nil {
		return err
	}
	if err := i.refuseEmpty(ctx, tx); err != nil {
		return err
	}
	var snapshot string
	if err := tx.QueryRow(ctx, "select pg_export_snapshot()").Scan(&snapshot); err != nil {
		return explainConnection(i.Source.Side, err)
	}
	held, err := takeInventory(ctx, tx, func(done, all int) {
		i.Report(ctx, Run{Step: v1alpha1.ImportStepChecking, Progress: fmt.Sprintf("%d of %d tables counted", done, all)})
	})
	if err != nil {
		return explainConnection(i.Source.Side, err)
	}
	return i.pipe(ctx, snapshot, held, found, v1alpha1.ImportResult{
		SourceVersion: version, Tables: int64(len(held.Tables)), Rows: held.countRows(), Sequences: held.Sequences, LargeObjects: held.LargeObjects,
	})
}

func (i *Importer) compareVersions(ctx context.Context, source, target *pgx.Conn) (string, error) {
	from, words, err := readVersion(ctx, source)
	if err != nil {
		return "", explainConnection(i.Source.Side, err)
	}
	to, own, err := readVersion(ctx, target)
	if err != nil {
		return "", explainConnection(i.Target.Side, err)
	}
	return words, refuseVersion(from, to, words, own)
}

// refuseEmpty fails where the source holds nothing: it is another one than is meant.
func (i *Importer) refuseEmpty(ctx context.Context, source pgx.Tx) error {
	var content []string
	if err := source.QueryRow(ctx, "select "+contentQuery).Scan(&content); err != nil {
		return explainConnection(i.Source.Side, err)
	}
	if len(content) == 0 {
		return newPermanent("database %s of the source holds nothing: name another one in spec.bootstrap.import.database, or remove spec.bootstrap.import", i.Source.Database)
	}
	return nil
}

// oldestSource is the oldest version that has what is asked of a source, such as policies.
const oldestSource = 90500

// refuseVersion fails where a source has a newer major version, which pg_dump does not read,
// or is too old.
func refuseVersion(source, target int, words, own string) error {
	if source < oldestSource {
		return newPermanent("the source runs PostgreSQL %s, and 9.5 is the oldest that is imported: upgrade it, or import by hand (docs/guides/import.md)", words)
	}
	if source/10000 > target/10000 {
		return newPermanent("spec.version: the source runs PostgreSQL %s, which is newer than this cluster's %s: declare a cluster of major version %d or later", words, own, source/10000)
	}
	return nil
}

// dumpArguments leave out what belongs to the source's server: owners, grants, tablespaces
// and replication.
var dumpArguments = []string{
	"--format=custom", "--compress=0", "--encoding=UTF8", "--no-password", "--no-owner", "--no-privileges",
	"--no-tablespaces", "--no-publications", "--no-subscriptions", "--no-security-labels",
}

// pipe sends what pg_dump reads to psql, through pg_restore, which makes one transaction
// of it. The transaction ends only once both have ended well.
func (i *Importer) pipe(parent context.Context, snapshot string, held inventory, found catalogs, result v1alpha1.ImportResult) error {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	dump := i.command(ctx, i.Source.environment(), "pg_dump", append([]string{keepalives, "--snapshot=" + snapshot}, dumpArguments...)...)
	restore := i.command(ctx, []string{"LC_ALL=C"}, "pg_restore", "--single-transaction", "--no-owner", "--no-privileges", "--no-tablespaces", "--file=-")
	psql := i.command(ctx, i.Target.environment(), "psql", keepalives, "--no-psqlrc", "--quiet", "--no-password", "--set=ON_ERROR_STOP=1", "--set=VERBOSITY=verbose", "--output=/dev/null", "--file=-")
	dumped, err := dump.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	restore.cmd.Stdin = dumped
	text, err := restore.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	to, err := psql.cmd.StdinPipe()
	if err != nil {
		return err
	}
	for _, p := range []*program{psql, restore, dump} {
		if err := p.cmd.Start(); err != nil {
			cancel()
			return fmt.Errorf("start %s: %w", p.name, err)
		}
	}
	_ = dumped.Close() // else pg_dump would not know that pg_restore has ended
	s := &script{to: to, skipped: found.Installed, copied: func(tables int, bytes int64) {
		i.Report(parent, Run{Step: v1alpha1.ImportStepCopying, Progress: fmt.Sprintf("table %d of %d, %d MiB", tables, max(len(held.Tables), tables), bytes>>20)})
	}}
	passed := s.passAll(beginning(i.Target.Database), text)
	if passed != nil && !errors.Is(passed, errNoEnd) {
		// psql has ended: what it said is the cause, and the others end with it. Where it has
		// not, it ends without the end of the transaction.
		_ = to.Close()
		stopped := psql.cmd.Wait()
		cancel()
		_, _ = restore.cmd.Wait(), dump.cmd.Wait()
		return explainTarget(parent, psql.said(), errors.Join(stopped, passed))
	}
	restored, read := restore.cmd.Wait(), dump.cmd.Wait()
	if err := i.explainReading(parent, dump, read, restore, restored, passed); err != nil {
		_ = to.Close() // without the end of the transaction: it is rolled back
		_ = psql.cmd.Wait()
		return err
	}
	result.Size = *resource.NewQuantity(s.size, resource.BinarySI)
	return i.complete(parent, s, psql, to, held, result)
}

func (i *Importer) explainReading(ctx context.Context, dump *program, read error, restore *program, restored, passed error) error {
	switch {
	case read != nil:
		return explainDump(ctx, dump.name, dump.said(), read)
	case restored != nil:
		return explainDump(ctx, restore.name, restore.said(), restored)
	}
	return passed
}

// complete verifies the copy, records the import, and ends the transaction.
func (i *Importer) complete(ctx context.Context, s *script, psql *program, to interface{ Close() error }, held inventory, result v1alpha1.ImportResult) error {
	i.Report(ctx, Run{Step: v1alpha1.ImportStepVerifying})
	data, err := json.Marshal(record{UID: i.UID, Source: i.DatabaseHash, Result: result})
	if err != nil {
		return err
	}
	err = errors.Join(s.end(verification(held, i.Target.Database, recordPrefix+string(data))), to.Close())
	if stopped := psql.cmd.Wait(); stopped != nil || err != nil {
		return explainTarget(ctx, psql.said(), errors.Join(stopped, err))
	}
	return nil
}

// program that runs, and what it says of errors.
type program struct {
	name   string
	cmd    *exec.Cmd
	stderr *messages
}

func (p *program) said() string { return p.stderr.String() }

func (i *Importer) command(ctx context.Context, env []string, name string, args ...string) *program {
	p := &program{name: name, cmd: exec.CommandContext(ctx, filepath.Join(i.Programs, name), args...), stderr: &messages{}} //nolint:gosec // the image's own
	p.cmd.Env, p.cmd.Stderr = env, p.stderr
	return p
}

// messages keeps the first and the last part of what a program says: pg_dump's first error
// is the cause, and psql's last.
type messages struct{ first, last []byte }

// messagesSize is that of each part, in bytes.
const messagesSize = 32 << 10

func (m *messages) Write(p []byte) (int, error) {
	n := min(len(p), messagesSize-len(m.first))
	m.first, m.last = append(m.first, p[:n]...), append(m.last, p[n:]...)
	if len(m.last) > 2*messagesSize {
		m.last = append([]byte{'\n'}, m.last[len(m.last)-messagesSize:]...)
	}
	return len(p), nil
}

func (m *messages) String() string { return string(m.first) + string(m.last) }
