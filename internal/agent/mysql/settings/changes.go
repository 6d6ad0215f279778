package settings

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
)

// Change of one setting while the server runs.
type Change struct {
	Name string
	// Statements that make it, of which the first that the server takes is enough: whether
	// a value is a number or a text, only the server knows.
	Statements []string
}

// PlanChanges are the changes, sorted, that lead from the settings that a server runs
// with to others. One that is not set any more gets the server's default.
func PlanChanges(running, wanted map[string]string) []Change {
	var changes []Change
	for _, name := range sortedNames(wanted) {
		if value, runs := running[name]; !runs || value != wanted[name] {
			changes = append(changes, Change{name, setStatements(name, literals(wanted[name]))})
		}
	}
	for _, name := range sortedNames(running) {
		if _, stays := wanted[name]; !stays {
			changes = append(changes, Change{name, setStatements(name, []string{"DEFAULT"})})
		}
	}
	return changes
}

// setStatements change the running server only: SET PERSIST would leave a second
// place for settings.
func setStatements(name string, values []string) []string {
	var statements []string
	for _, value := range values {
		statements = append(statements, "SET GLOBAL "+name+" = "+value)
	}
	return statements
}

var (
	wholeNumber = regexp.MustCompile(`^-?\d+$`)
	sizeNumber  = regexp.MustCompile(`^(\d+)([KMGTPEkmgtpe])$`)
	realNumber  = regexp.MustCompile(`^-?\d+\.\d+$`)
)

// literals of a value, the likeliest first. The server reads sizes such as 1G in its
// file only.
func literals(value string) []string {
	text := "'" + strings.NewReplacer(`\`, `\\`, `'`, `''`, "\n", `\n`, "\r", `\r`).Replace(value) + "'"
	if size := sizeNumber.FindStringSubmatch(value); size != nil {
		if n, err := expandSize(size[1], size[2]); err == nil {
			return []string{n, text}
		}
	}
	if wholeNumber.MatchString(value) || realNumber.MatchString(value) {
		return []string{value, text}
	}
	return []string{text}
}

var errTooLarge = errors.New("the number is too large")

func expandSize(digits, unit string) (string, error) {
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return "", err
	}
	shift := 10 * (1 + strings.Index("KMGTPE", strings.ToUpper(unit)))
	if n<<shift>>shift != n {
		return "", errTooLarge
	}
	return strconv.FormatUint(n<<shift, 10), nil
}

// Verdict of a server about a change.
type Verdict int

// The verdicts.
const (
	// Unclear: the error is none of a setting; try again later.
	Unclear Verdict = iota
	// NeedsRestart: the setting waits for the next start.
	NeedsRestart
	// WrongType: the next statement of the change may be taken.
	WrongType
	// WrongValue: the server refuses the value.
	WrongValue
)

// Numbers of the server's errors.
const (
	errUnknownVariable  = 1193
	errWrongValue       = 1231
	errWrongType        = 1232
	errReadOnlyVariable = 1238
	errNoDefault        = 1230
)

// JudgeError reads the number of the error that a server answered a change with.
func JudgeError(number uint16) Verdict {
	switch number {
	case errReadOnlyVariable, errNoDefault, errUnknownVariable:
		// Options that are no system variables are read at the start.
		return NeedsRestart
	case errWrongType:
		return WrongType
	case errWrongValue:
		return WrongValue
	}
	return Unclear
}
