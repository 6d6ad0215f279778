package serverfiles

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/agent/identity"
	"github.com/holdfast-db/holdfast/internal/agent/parameters"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/agent/process"
	"github.com/holdfast-db/holdfast/internal/agent/statusserver"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

const (
	// settingsFile is the configuration file that the server runs with; it lives
	// outside the data directory, so that a copy of the data brings no settings.
	settingsFile = "postgresql.conf"
	// candidateFile is one that the server has not taken yet.
	candidateFile = "candidate.conf"
	// tlsDir holds the certificates as the database reads them.
	tlsDir = "tls"
)

// Options are what Files are made of.
type Options struct {
	Log      *slog.Logger
	Identity identity.Identity
	// Volume of the member, PGData, the data directory on it, and RunDir, which
	// holds the files.
	Volume, PGData, RunDir string
	// Program is the agent's, which the database calls to archive WAL.
	Program string
	// Port of the server.
	Port      int
	Programs  server.Programs
	Resources settings.Resources
}

// Files are those of one member's server, in its run directory and on its volume.
type Files struct{ o Options }

// NewFiles writes nothing yet; MakeDirectories comes first.
func NewFiles(o Options) *Files { return &Files{o: o} }

// MakeDirectories makes the directories that the files are written to.
func (f *Files) MakeDirectories() error {
	for _, dir := range []string{f.o.RunDir, filepath.Join(f.o.RunDir, tlsDir)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make the run directory: %w", err)
		}
	}
	return nil
}

// SettingsPath is the file that the server runs with.
func (f *Files) SettingsPath() string { return filepath.Join(f.o.RunDir, settingsFile) }

// BuildInput is what the settings are computed from now, by the configuration, which
// is nil before the first. What pg_control says counts for a replica only.
func (f *Files) BuildInput(config *agent.Config, parameters map[string]string, control server.ControlData, primary bool) settings.Input {
	in := settings.Input{
		Major: f.o.Programs.Major, Member: f.o.Identity.Pod, Cluster: f.o.Identity.Cluster,
		Port: f.o.Port, RunDir: f.o.RunDir, Resources: f.o.Resources, Parameters: parameters, InPlace: true,
	}
	if config != nil {
		in.VolumeSize = config.VolumeSize
		if config.Archive != nil {
			in.Archive = settings.ArchiveCommand(f.o.Program, filepath.Join(f.o.RunDir, agentapi.ArchiveSocket))
		}
	}
	if !primary {
		in.Floors = control.Floors
	}
	return in
}

// ApplySettings checks settings and puts them in the server's file. A refusal, which
// is a parameters.Refusal, leaves the file as it was.
func (f *Files) ApplySettings(ctx context.Context, in settings.Input) error {
	candidate := filepath.Join(f.o.RunDir, candidateFile)
	if err := atomicfile.WriteFile(candidate, []byte(settings.RenderSettings(settings.ComputeSettings(in)))); err != nil {
		return err
	}
	// The server reads the whole file, checks every value, and prints one.
	if _, err := f.o.Programs.Run(ctx, "postgres", "-D", f.o.PGData, "-c", "config_file="+candidate, "-C", "port"); err != nil {
		var failed *process.Failure
		if errors.As(err, &failed) {
			return &parameters.Refusal{Message: settings.DescribeRefusal(failed.Stderr)}
		}
		return err
	}
	return os.Rename(candidate, f.SettingsPath())
}

// PrepareStart writes what the server reads at its start, apart from the settings.
// The bundle of certificates is nil before the first.
func (f *Files) PrepareStart(bundle *statusserver.Bundle) error {
	return errors.Join(f.writeAccess(), f.WriteTLS(bundle), f.ClearLocks(), os.Chmod(f.o.PGData, 0o700))
}

// writeAccess writes who may connect.
func (f *Files) writeAccess() error {
	name := "postgres"
	if u, err := user.LookupId(strconv.Itoa(os.Getuid())); err == nil {
		name = u.Username
	}
	return errors.Join(
		atomicfile.WriteFile(filepath.Join(f.o.RunDir, "pg_hba.conf"), []byte(settings.RenderHBA())),
		atomicfile.WriteFile(filepath.Join(f.o.RunDir, "pg_ident.conf"), []byte(settings.RenderIdent(name, agentapi.MemberName))))
}

// ClearLocks removes what a killed server left. The lock on the volume says
// that no server runs; the process number in these files says nothing, for
// numbers begin again in a new container.
func (f *Files) ClearLocks() error {
	stale := []string{
		filepath.Join(f.o.PGData, "postmaster.pid"),
		filepath.Join(f.o.RunDir, fmt.Sprintf(".s.PGSQL.%d.lock", f.o.Port)),
		filepath.Join(f.o.RunDir, fmt.Sprintf(".s.PGSQL.%d", f.o.Port)),
	}
	for _, path := range stale {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove a stale lock: %w", err)
		}
	}
	return nil
}

// DropAltered removes from a stopped server's data what ALTER SYSTEM has set of
// Holdfast's own settings, and returns their values: it came with a copy, from
// another version, or from a superuser. All else stays.
func (f *Files) DropAltered() (map[string]string, error) {
	path := f.AlteredPath()
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", settings.AlterSystemFile, err)
	}
	kept, dropped := settings.RemoveOwned(string(data))
	if len(dropped) == 0 {
		return nil, nil
	}
	f.o.Log.Warn("ALTER SYSTEM has set what Holdfast owns: it is reset", "settings", strings.Join(dropped, ","))
	if err := atomicfile.WriteDurably(path, []byte(kept)); err != nil {
		return nil, err
	}
	return settings.ReadValues(string(data), dropped), nil
}

// AlteredPath is the file of what ALTER SYSTEM has set.
func (f *Files) AlteredPath() string { return filepath.Join(f.o.PGData, settings.AlterSystemFile) }

// ReadProven are the parameters with which the database last ran; nil where none are known.
// Which of them were tuned is not known of an earlier agent.
func (f *Files) ReadProven() (proven parameters.Tuned) {
	if _, err := atomicfile.ReadJSON(f.onVolume(datavolume.ParametersName), &proven.Parameters); err != nil {
		return parameters.Tuned{}
	}
	if _, err := atomicfile.ReadJSON(f.onVolume(datavolume.TunedName), &proven.Values); err != nil {
		proven.Values = nil
	}
	return proven
}

// RecordProven keeps the parameters as those that the database runs with. A value counts as tuned
// only while it is in both files, so the order does not matter.
func (f *Files) RecordProven(proven parameters.Tuned) {
	err := atomicfile.WriteJSON(f.onVolume(datavolume.ParametersName), proven.Parameters)
	if len(proven.Values) > 0 {
		err = errors.Join(err, atomicfile.WriteJSON(f.onVolume(datavolume.TunedName), proven.Values))
	} else if gone := os.Remove(f.onVolume(datavolume.TunedName)); !errors.Is(gone, fs.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	if err != nil {
		f.o.Log.Warn("cannot keep the parameters", "error", err.Error())
	}
}

func (f *Files) onVolume(name string) string { return filepath.Join(f.o.Volume, name) }
