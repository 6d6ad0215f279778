package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/agent/process"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// settingsFile is the configuration file that the server runs with; it lives
// outside the data directory, so that a copy of the data brings no settings.
const settingsFile = "postgresql.conf"

// buildInput is what the settings are computed from now.
func (a *postgresAgent) buildInput(parameters map[string]string, control server.ControlData, primary bool) settings.Input {
	in := settings.Input{
		Major: a.major, Member: a.o.Identity.Pod, Cluster: a.o.Identity.Cluster,
		Port: a.o.Port, RunDir: a.o.RunDir, Resources: a.o.Resources, Parameters: parameters,
	}
	if config, _ := a.Config.Current(); config != nil {
		in.VolumeSize = config.VolumeSize
		if config.Archive != nil {
			in.Archive = settings.ArchiveCommand(a.o.Program, filepath.Join(a.o.RunDir, agentapi.ArchiveSocket))
		}
	}
	if !primary {
		in.Floors = control.Floors
		in.Upstream = a.o.primaryConnection(a.knownPrimary(), a.primaryAddress(), a.o.Identity.Pod)
	}
	return in
}

// applySettings checks settings and puts them in the server's file. A refusal leaves
// the file as it was.
func (a *postgresAgent) applySettings(ctx context.Context, in settings.Input) error {
	candidate := filepath.Join(a.o.RunDir, "candidate.conf")
	if err := atomicfile.WriteFile(candidate, []byte(settings.RenderSettings(settings.ComputeSettings(in)))); err != nil {
		return err
	}
	// The server reads the whole file, checks every value, and prints one.
	if _, err := a.programs.Run(ctx, "postgres", "-D", a.o.pgdataPath(), "-c", "config_file="+candidate, "-C", "port"); err != nil {
		var failed *process.Failure
		if errors.As(err, &failed) {
			return &settings.Refusal{Message: settings.DescribeRefusal(failed.Stderr)}
		}
		return err
	}
	return os.Rename(candidate, filepath.Join(a.o.RunDir, settingsFile))
}

// writeAccess writes who may connect.
func (a *postgresAgent) writeAccess() error {
	name := "postgres"
	if u, err := user.LookupId(strconv.Itoa(os.Getuid())); err == nil {
		name = u.Username
	}
	return errors.Join(
		atomicfile.WriteFile(filepath.Join(a.o.RunDir, "pg_hba.conf"), []byte(settings.RenderHBA())),
		atomicfile.WriteFile(filepath.Join(a.o.RunDir, "pg_ident.conf"), []byte(settings.RenderIdent(name, agentapi.MemberName))))
}

// writeTLS copies the certificates to where the database reads them: as a
// consistent set, and with the mode that the database demands of a key. One who
// connects is held against the members' own authority only, in ca.crt; the
// primary is held against roots.crt.
func (a *postgresAgent) writeTLS() error {
	bundle, _ := a.Certificates.Current()
	if bundle == nil {
		return errors.New("the member has no certificate yet")
	}
	dir := filepath.Join(a.o.RunDir, "tls")
	return errors.Join(
		atomicfile.WriteFile(filepath.Join(dir, "ca.crt"), bundle.CAPEM),
		atomicfile.WriteFile(filepath.Join(dir, "roots.crt"), bundle.ServerCAPEM),
		atomicfile.WriteFile(filepath.Join(dir, "tls.crt"), bundle.CertPEM),
		atomicfile.WriteFile(filepath.Join(dir, "tls.key"), bundle.KeyPEM),
		atomicfile.WriteFile(filepath.Join(dir, "server.crt"), bundle.ServerCertPEM),
		atomicfile.WriteFile(filepath.Join(dir, "server.key"), bundle.ServerKeyPEM))
}

// readProven are the user's parameters with which the database last
// ran; nil where none are known.
func (a *postgresAgent) readProven() map[string]string {
	data, err := os.ReadFile(filepath.Join(a.o.DataDir, parametersName))
	if err != nil {
		return nil
	}
	var parameters map[string]string
	if json.Unmarshal(data, &parameters) != nil {
		return nil
	}
	return parameters
}

// recordProven keeps the user's parameters as those that the database runs with.
func (a *postgresAgent) recordProven(parameters map[string]string) {
	data, err := json.Marshal(parameters)
	if err == nil {
		err = atomicfile.WriteDurably(filepath.Join(a.o.DataDir, parametersName), data)
	}
	if err != nil {
		a.log.Warn("cannot keep the parameters", "error", err.Error())
	}
}
