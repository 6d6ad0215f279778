package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/holdfast-db/holdfast/internal/member"
	"github.com/holdfast-db/holdfast/internal/memberapi"
)

// settingsFile is the configuration file that the server runs with; it lives
// outside the data directory, so that a copy of the data brings no settings.
const settingsFile = "postgresql.conf"

// input is what the settings are computed from now.
func (a *agent) input(parameters map[string]string, control controlData, primary bool) settingsInput {
	in := settingsInput{
		Major: a.major, Member: a.o.Identity.Pod, Cluster: a.o.Identity.Cluster,
		Port: a.o.Port, RunDir: a.o.RunDir, Resources: a.o.Resources, Parameters: parameters,
	}
	if config, _ := a.Config.Current(); config != nil {
		in.VolumeSize = config.VolumeSize
		if config.Archive != nil {
			in.Archive = archiveCommand(a.o.Program, filepath.Join(a.o.RunDir, memberapi.ArchiveSocket))
		}
	}
	if !primary {
		in.Floors = control.Floors
		in.Upstream = upstream(a.o, a.knownPrimary(), a.primaryAddress(), a.o.Identity.Pod)
	}
	return in
}

// takeUp checks settings and puts them in the server's file. A refusal leaves
// the file as it was.
func (a *agent) takeUp(ctx context.Context, in settingsInput) error {
	candidate := filepath.Join(a.o.RunDir, "candidate.conf")
	if err := member.WriteFile(candidate, []byte(renderSettings(settings(in)))); err != nil {
		return err
	}
	// The server reads the whole file, checks every value, and prints one.
	if _, err := a.programs.Run(ctx, "postgres", "-D", a.o.pgdata(), "-c", "config_file="+candidate, "-C", "port"); err != nil {
		var failed *member.Failure
		if errors.As(err, &failed) {
			return &refusal{refusedSettings(failed.Stderr)}
		}
		return err
	}
	return os.Rename(candidate, filepath.Join(a.o.RunDir, settingsFile))
}

// refusal is what the database says of settings that it does not take.
type refusal struct{ message string }

func (r *refusal) Error() string { return r.message }

var (
	logLevel    = regexp.MustCompile(`^(?:.*? )?(?:LOG|ERROR|FATAL|WARNING):  (.*)$`)
	inFile      = regexp.MustCompile(` in file "[^"]*" line \d+`)
	inParameter = regexp.MustCompile(`(?: for)?(?: configuration)? parameter "([^"]+)"`)
)

// refusedSettings turns what the server writes about a configuration file into
// one line that begins with the parameter's name.
func refusedSettings(stderr string) string {
	var found []string
	for line := range strings.Lines(stderr) {
		match := logLevel.FindStringSubmatch(strings.TrimSpace(line))
		if match == nil || strings.Contains(match[1], "contains errors") {
			continue
		}
		message := inFile.ReplaceAllString(match[1], "")
		if name := inParameter.FindStringSubmatch(message); name != nil {
			short := strings.TrimSpace(strings.Replace(message, name[0], "", 1))
			if strings.HasPrefix(short, "unrecognized") {
				short = "unrecognized configuration parameter"
			}
			message = name[1] + ": " + short
		}
		found = append(found, message)
	}
	if len(found) == 0 {
		return member.LastLine(stderr)
	}
	return strings.Join(found, "; ")
}

// writeAccess writes who may connect.
func (a *agent) writeAccess() error {
	name := "postgres"
	if u, err := user.LookupId(strconv.Itoa(os.Getuid())); err == nil {
		name = u.Username
	}
	return errors.Join(
		member.WriteFile(filepath.Join(a.o.RunDir, "pg_hba.conf"), []byte(renderHBA())),
		member.WriteFile(filepath.Join(a.o.RunDir, "pg_ident.conf"), []byte(renderIdent(name, memberapi.MemberName))))
}

// writeTLS copies the certificates to where the database reads them: as a
// consistent set, and with the mode that the database demands of a key. Whoever
// connects is held against the members' own authority only, in ca.crt; the
// primary is held against roots.crt.
func (a *agent) writeTLS() error {
	bundle, _ := a.Certificates.Current()
	if bundle == nil {
		return errors.New("the member has no certificate yet")
	}
	dir := filepath.Join(a.o.RunDir, "tls")
	return errors.Join(
		member.WriteFile(filepath.Join(dir, "ca.crt"), bundle.CAPEM),
		member.WriteFile(filepath.Join(dir, "roots.crt"), bundle.ServerCAPEM),
		member.WriteFile(filepath.Join(dir, "tls.crt"), bundle.CertPEM),
		member.WriteFile(filepath.Join(dir, "tls.key"), bundle.KeyPEM),
		member.WriteFile(filepath.Join(dir, "server.crt"), bundle.ServerCertPEM),
		member.WriteFile(filepath.Join(dir, "server.key"), bundle.ServerKeyPEM))
}

// provenParameters are the user's parameters with which the database last
// ran; nil where none are known.
func (a *agent) provenParameters() map[string]string {
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

// prove keeps the user's parameters as those that the database runs with.
func (a *agent) prove(parameters map[string]string) {
	data, err := json.Marshal(parameters)
	if err == nil {
		err = member.WriteFile(filepath.Join(a.o.DataDir, parametersName), data)
	}
	if err != nil {
		a.log.Warn("cannot keep the parameters", "error", err.Error())
	}
}

// candidates are the parameters to start with, in order: the declared ones,
// those that worked last, none.
func candidates(declared, proven map[string]string) []map[string]string {
	list := []map[string]string{declared}
	if proven != nil && !maps.Equal(proven, declared) {
		list = append(list, proven)
	}
	if len(declared) > 0 && (proven == nil || len(proven) > 0) {
		list = append(list, map[string]string{})
	}
	return list
}
