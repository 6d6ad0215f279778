package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/agent/process"
)

// programs are etcd's.
type programs struct{ process.Programs }

// readVersion reads the version of etcd, such as 3.6.4, and its release.
func (p programs) readVersion(ctx context.Context) (string, release, error) {
	out, err := p.Run(ctx, "etcd", "--version")
	if err != nil {
		return "", release{}, err
	}
	return parseVersion(out)
}

var versionLine = regexp.MustCompile(`(?m)^etcd Version: ((\d+)\.(\d+)\.\S+)`)

func parseVersion(out string) (string, release, error) {
	match := versionLine.FindStringSubmatch(out)
	if match == nil {
		return "", release{}, fmt.Errorf("etcd says an unknown version: %s", process.LastLine(out))
	}
	major, _ := strconv.Atoi(match[2])
	minor, _ := strconv.Atoi(match[3])
	return match[1], release{major, minor}, nil
}

// refusal is what etcd says of settings that it does not take.
type refusal struct {
	// flag that it names; may be empty.
	flag    string
	message string
}

func (r *refusal) Error() string { return r.message }

// nowhere is no place for data, so that etcd checks all of its settings and
// then ends.
const nowhere = "/dev/null/etcd"

// checkArguments has etcd check a command line. It fails with a *refusal.
func (p programs) checkArguments(ctx context.Context, args []string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	_, err := p.Run(ctx, "etcd", append(slices.Clone(args), "--data-dir="+nowhere)...)
	var failed *process.Failure
	if !errors.As(err, &failed) {
		return errors.New("etcd did not check its settings")
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return refusalIn(failed.Stderr)
}

var (
	undefinedFlag = regexp.MustCompile(`(?m)^flag provided but not defined: -(\S+)`)
	invalidFlag   = regexp.MustCompile(`(?m)^(invalid (?:boolean )?value ".*") for (?:flag )?-(\S+): (.*)$`)
)

// refusalIn reads what etcd wrote when it was to check its settings.
func refusalIn(stderr string) error {
	if match := undefinedFlag.FindStringSubmatch(stderr); match != nil {
		return &refusal{match[1], match[1] + ": unrecognized parameter"}
	}
	if match := invalidFlag.FindStringSubmatch(stderr); match != nil {
		return &refusal{match[2], fmt.Sprintf("%s: %s: %s", match[2], match[1], match[3])}
	}
	var last logLine
	for line := range strings.Lines(stderr) {
		switch parsed := parseLogLine(line); {
		case strings.Contains(parsed.Message, "failed to list data directory"):
			return nil // everything before that was well
		case parsed.isReason():
			last = parsed
		}
	}
	if last.Message == "" {
		return &refusal{message: process.LastLine(stderr)}
	}
	return &refusal{message: last.String()}
}

// logLine is a line that etcd writes to its text log.
type logLine struct {
	Level   string `json:"level"`
	Message string `json:"msg"`
	Error   string `json:"error"`
}

// parseLogLine reads a line; one that is no log is its own message.
func parseLogLine(line string) logLine {
	var parsed logLine
	if json.Unmarshal([]byte(line), &parsed) != nil {
		return logLine{Message: strings.TrimSpace(line)}
	}
	return parsed
}

// isReason says whether the line may be the reason of an end.
func (l logLine) isReason() bool {
	return l.Error != "" || l.Level == "fatal" || l.Level == "panic" || l.Level == "error" || strings.HasPrefix(l.Message, "panic:")
}

func (l logLine) String() string {
	if l.Error == "" {
		return l.Message
	}
	return l.Message + ": " + l.Error
}

// choice is which parameters etcd runs with.
type choice struct {
	// Parameters by the names that this release has for them.
	Parameters map[string]string
	// Refused says which declared ones are not among them, and why; empty
	// when all are.
	Refused string
}

// chooseParameters takes of the declared parameters what etcd accepts. What it refuses
// without naming a flag falls back to the parameters that worked last.
func chooseParameters(declared, proven map[string]string, accepts func(map[string]string) error) (choice, error) {
	c := choice{Parameters: maps.Clone(declared)}
	if c.Parameters == nil {
		c.Parameters = map[string]string{}
	}
	var reasons []string
	for name, reason := range findOwnParameters(declared) {
		delete(c.Parameters, name)
		reasons = append(reasons, reason)
	}
	slices.Sort(reasons)
	tried := map[string]bool{}
	for {
		err := accepts(c.Parameters)
		var no *refusal
		switch {
		case err == nil:
			c.Refused = strings.Join(reasons, "; ")
			return c, nil
		case !errors.As(err, &no):
			return choice{}, err
		}
		value, declaredSo := c.Parameters[no.flag]
		switch other := otherName(no.flag); {
		case !declaredSo && proven != nil:
			c.Parameters, proven = maps.Clone(proven), nil
			reasons = append(reasons, no.message)
		case !declaredSo && len(c.Parameters) > 0:
			c.Parameters = map[string]string{}
			reasons = append(reasons, no.message)
		case !declaredSo:
			return choice{}, err // not even without parameters
		case isUndefined(no) && !tried[other] && len(findOwnParameters(map[string]string{other: ""})) == 0:
			tried[no.flag], tried[other] = true, true
			delete(c.Parameters, no.flag)
			c.Parameters[other] = value
		default:
			delete(c.Parameters, no.flag)
			name := no.flag
			if _, there := declared[name]; !there {
				name = otherName(name)
			}
			reasons = append(reasons, name+strings.TrimPrefix(no.message, no.flag))
		}
	}
}

func isUndefined(r *refusal) bool { return strings.HasSuffix(r.message, "unrecognized parameter") }

// otherName is what another release calls a flag: most experimental ones have
// lost their prefix.
func otherName(name string) string {
	if rest, found := strings.CutPrefix(name, experimental); found {
		return rest
	}
	return experimental + name
}

// provenParameters are those with which etcd last served; nil where none are
// known.
func provenParameters(dir string) map[string]string {
	var parameters map[string]string
	if _, err := atomicfile.ReadJSON(filepath.Join(dir, parametersName), &parameters); err != nil {
		return nil
	}
	return parameters
}

// saveProven keeps the parameters as those that etcd serves with.
func saveProven(dir string, parameters map[string]string) error {
	return atomicfile.WriteJSON(filepath.Join(dir, parametersName), parameters)
}
