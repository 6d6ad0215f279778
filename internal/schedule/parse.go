package schedule

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// fields of a line, which the error of a wrong line lists.
const fields = "minute, hour, day of the month, month, day of the week, such as 30 2 * * *"

var parser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// Parse reads a line of five fields, or a word such as @daily, in a time zone
// of the IANA database; none is UTC. Errors begin with the field that is wrong,
// schedule or timeZone, and say what to write.
func Parse(line, timeZone string) (Schedule, error) {
	zone, err := parseZone(timeZone)
	if err != nil {
		return Schedule{}, err
	}
	line = strings.Join(strings.Fields(line), " ")
	if err := checkForm(line); err != nil {
		return Schedule{}, err
	}
	parsed, err := parser.Parse(line)
	if err != nil {
		return Schedule{}, fmt.Errorf("schedule %q is no line of cron: %w; its fields are %s", line, err, fields)
	}
	wall, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return Schedule{}, fmt.Errorf("schedule %q has no times of its own", line)
	}
	wall.Location = time.UTC
	// A leap year, so that what is left out never comes.
	if wall.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(-time.Second)).IsZero() {
		return Schedule{}, fmt.Errorf("schedule %q never comes: none of its months has such a day; name one that it has", line)
	}
	const allHours = 1<<24 - 1
	return Schedule{line: line, zone: zone, wall: wall, everyHour: wall.Hour&allHours == allHours}, nil
}

// checkForm refuses what cron's parser takes, or fails at without a remedy.
func checkForm(line string) error {
	count := len(strings.Fields(line))
	switch {
	case line == "":
		return errors.New("schedule is empty: write five fields, " + fields)
	case strings.HasPrefix(line, "TZ=") || strings.HasPrefix(line, "CRON_TZ="):
		return fmt.Errorf("schedule %q names a time zone: write it into timeZone, and the five fields alone here", line)
	case strings.HasPrefix(line, "@every"):
		return fmt.Errorf("schedule %q counts from whenever the operator starts, so it has no times of its own: name them, such as */30 * * * * for every half hour", line)
	case strings.HasPrefix(line, "@"):
		return nil
	case count == 6:
		return fmt.Errorf("schedule %q has six fields, and there is none for seconds: write five, %s", line, fields)
	case count != 5:
		return fmt.Errorf("schedule %q has not five fields: write %s", line, fields)
	}
	return nil
}

func parseZone(name string) (*time.Location, error) {
	switch name {
	case "", "UTC":
		return time.UTC, nil
	case "Local":
		return nil, errors.New(`timeZone "Local" is another one on every machine: name one of the IANA database, such as Europe/Berlin`)
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("timeZone %q is unknown: name one of the IANA database, such as Europe/Berlin", name)
	}
	return zone, nil
}
