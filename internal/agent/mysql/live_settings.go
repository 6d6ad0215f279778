package mysql

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/server"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/settings"
	"github.com/holdfast-db/holdfast/internal/agent/parameters"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// liveSettings are the settings that a run of the server has, and what it takes up of a new
// configuration while it runs.
type liveSettings struct {
	agent *mysqlAgent
	group string
	db    *sql.DB
	// running are the server's settings, and parameters those of the user among them.
	running    map[string]string
	parameters map[string]string
	// taken is the hash of the configuration that was judged last.
	taken string
	// unclear counts how often the server answered a configuration with an error that says
	// nothing of the setting, and retry is when it is tried again.
	unclear struct {
		hash  string
		count int
		retry time.Duration
	}
}

const (
	// unclearMost is how often a setting is tried that the server answers with such an error,
	// and unclearPause between the first two attempts; each pause is twice the one before.
	unclearMost  = 7
	unclearPause = 2 * time.Second
)

// startsBeforeFallback is how many starts in a row must come to nothing before the declared
// parameters are suspected.
const startsBeforeFallback = 3

// startSettings writes the settings of a start: the declared parameters where the server
// takes them, otherwise those that worked last, or none.
func (a *mysqlAgent) startSettings(ctx context.Context, group string) (*liveSettings, error) {
	config := a.currentConfig()
	if config == nil {
		return nil, errors.New("no configuration yet")
	}
	candidates := parameters.ListCandidates(config.Parameters, a.readProven())
	refused := ""
	if n := a.crashes / startsBeforeFallback; n > 0 && len(candidates) > 1 {
		// Round and round: what the server refuses may not be a parameter.
		if skip := n % len(candidates); skip > 0 {
			candidates, refused = candidates[skip:], a.refused
		}
	}
	for i, candidate := range candidates {
		l := &liveSettings{agent: a, group: group, parameters: candidate, taken: config.Hash}
		l.running = settings.ComputeSettings(a.newSettingsInput(config, group, candidate))
		adjusted, err := a.checkSettings(ctx, a.o.settingsFile(), l.running)
		var refusal *parameters.Refusal
		switch {
		case err == nil:
			if refused == "" {
				refused = describeAdjusted(adjusted, candidate)
				a.reportConfig(config.Hash, refused, nil)
			} else {
				a.reportConfig("", refused, nil)
			}
			return l, nil
		case !errors.As(err, &refusal) || i == len(candidates)-1:
			return nil, err
		case refused == "":
			refused = refusal.Message
			a.o.Log.Warn("the declared parameters are refused", "error", refused)
		}
	}
	return nil, errors.New("no settings to start with")
}

// checkSettings writes settings to a file, and has the server check them.
func (a *mysqlAgent) checkSettings(ctx context.Context, file string, s map[string]string) (adjusted map[string]string, err error) {
	if err := atomicfile.WriteFile(file, []byte(settings.RenderSettings(s))); err != nil {
		return nil, err
	}
	return a.programs.CheckSettings(ctx, file)
}

// describeAdjusted says which declared parameters are not Holdfast's to take, and which the
// server takes with another value.
func describeAdjusted(adjusted, declared map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		if why := settings.FindRefusal(name, declared[name]); why != "" {
			parts = append(parts, why)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(adjusted)) {
		if _, ours := declared[name]; ours {
			parts = append(parts, name+": "+adjusted[name])
		}
	}
	return strings.Join(parts, "; ")
}

// reportConfig reports the configuration that is in force; the hash is empty where it is not.
func (a *mysqlAgent) reportConfig(hash, refused string, pending []string) {
	a.Store.Update(func(s *agentapi.Status) {
		s.ConfigError, s.PendingRestart = refused, pending
		if hash != "" {
			s.ConfigHash = hash
		}
	})
}

// takeConfig takes a new configuration up without a restart, as far as that goes. It fails
// where that is to be tried again.
func (l *liveSettings) takeConfig(ctx context.Context, config *agent.Config) error {
	if config == nil || config.Hash == l.taken || !l.isTryDue(config.Hash) {
		return nil
	}
	a := l.agent
	wanted := settings.ComputeSettings(a.newSettingsInput(config, l.group, config.Parameters))
	adjusted, err := a.checkSettings(ctx, filepath.Join(a.o.RunDir, "check.cnf"), wanted)
	var refusal *parameters.Refusal
	if errors.As(err, &refusal) {
		l.taken = config.Hash
		a.o.Log.Warn("the configuration is refused", "hash", config.Hash, "error", err.Error())
		a.reportConfig("", err.Error(), a.Store.Get().PendingRestart)
		return nil
	}
	var applied server.Applied
	if err == nil {
		applied, err = server.ApplySettings(ctx, l.db, settings.PlanChanges(l.running, wanted))
	}
	l.noteTaken(applied.Taken, wanted)
	if err != nil {
		return err
	}
	l.noteTried(config.Hash, len(applied.Unclear) > 0)
	maps.Copy(applied.Refused, applied.Unclear)
	if len(applied.Refused) > 0 {
		a.o.Log.Warn("settings are not taken", "settings", describeRefused(applied.Refused), "triedAgain", l.taken != config.Hash)
		a.reportConfig("", describeRefused(applied.Refused), applied.Pending)
		return nil
	}
	l.parameters = config.Parameters
	a.reportConfig(config.Hash, describeAdjusted(adjusted, config.Parameters), applied.Pending)
	a.o.Log.Info("the configuration is taken up", "hash", config.Hash, "pendingRestart", applied.Pending)
	if len(applied.Pending) == 0 {
		l.keepProven()
	}
	return nil
}

// isTryDue says whether a configuration is to be tried now.
func (l *liveSettings) isTryDue(hash string) bool {
	return l.unclear.hash != hash || clock.Boottime() >= l.unclear.retry
}

// noteTried notes an attempt to take a configuration. It is judged, unless the server was
// unclear and has not been so too often.
func (l *liveSettings) noteTried(hash string, unclear bool) {
	if l.unclear.hash != hash {
		l.unclear.hash, l.unclear.count = hash, 0
	}
	l.unclear.count++
	if !unclear || l.unclear.count >= unclearMost {
		l.taken = hash
		return
	}
	l.unclear.retry = clock.Boottime() + unclearPause<<(l.unclear.count-1)
}

// noteTaken records which settings the server has changed.
func (l *liveSettings) noteTaken(names []string, wanted map[string]string) {
	for _, name := range names {
		if value, set := wanted[name]; set {
			l.running[name] = value
		} else {
			delete(l.running, name)
		}
	}
}

func describeRefused(refused map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(refused)) {
		parts = append(parts, name+": "+refused[name])
	}
	return strings.Join(parts, "; ")
}

// readProven are the parameters with which a member last served; nil where none are known.
func (a *mysqlAgent) readProven() map[string]string {
	var proven map[string]string
	if _, err := atomicfile.ReadJSON(filepath.Join(a.o.DataDir, datavolume.ParametersName), &proven); err != nil {
		return nil
	}
	return proven
}

// keepProven keeps the parameters as those that a member serves with.
func (l *liveSettings) keepProven() {
	proven := l.parameters
	if proven == nil {
		proven = map[string]string{}
	}
	if err := atomicfile.WriteJSON(filepath.Join(l.agent.o.DataDir, datavolume.ParametersName), proven); err != nil {
		l.agent.o.Log.Warn("cannot keep the parameters", "error", err.Error())
	}
}
