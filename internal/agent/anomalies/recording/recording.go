package recording

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-db/holdfast/internal/anomaly"
)

// The parts of a recording that are no fault.
const (
	// Calm is the load alone.
	Calm = "calm"
	// After is what follows a fault, while its effects may last.
	After = "after"
)

// Cause is a fault that is caused on purpose.
type Cause struct {
	// Name is a word, and What describes it in a sentence.
	Name, What string
	// Signals that are expected to show it.
	Signals []string
}

// Recording is what was measured of one server.
type Recording struct {
	// Engine and Version of the server, and Machine that it ran on.
	Engine, Version, Machine string
	Began                    time.Time
	Interval                 time.Duration
	// Signals by name, in the order of values.
	Signals []string
	Causes  []Cause
	Rows    []Row
}

// Row is one measurement.
type Row struct {
	// At is when, since the recording began.
	At time.Duration
	// Part is Calm, After or the name of a fault.
	Part string
	// Values are gauges, and of a counter how much it rose each second since the measurement
	// before. NaN for one that is missing.
	Values []float64
}

// digits that are kept of a value.
const digits = 4

// writer writes a recording while it is made, so that a run which is stopped loses nothing.
type writer struct{ out io.Writer }

func (w writer) writeHeader(r *Recording, comment []string) error {
	var b strings.Builder
	for _, line := range comment {
		fmt.Fprintf(&b, "# %s\n", line)
	}
	fmt.Fprintf(&b, "#engine=%s\n#version=%s\n#machine=%s\n#began=%s\n#interval=%s\n", r.Engine, r.Version, r.Machine, r.Began.UTC().Format(time.RFC3339), r.Interval)
	for _, c := range r.Causes {
		fmt.Fprintf(&b, "#fault=%s;%s;%s\n", c.Name, strings.Join(c.Signals, "+"), c.What)
	}
	fmt.Fprintf(&b, "seconds,part,%s\n", strings.Join(r.Signals, ","))
	_, err := io.WriteString(w.out, b.String())
	return err
}

func (w writer) writeRow(row Row) error {
	fields := []string{strconv.FormatFloat(row.At.Seconds(), 'f', 1, 64), row.Part}
	for _, v := range row.Values {
		text := ""
		if !math.IsNaN(v) {
			// As few characters as the digits need: 1e+06 becomes 1000000, and 0.1000 0.1.
			rounded, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', digits, 64), 64)
			if err != nil {
				return err
			}
			text = strconv.FormatFloat(rounded, 'f', -1, 64)
		}
		fields = append(fields, text)
	}
	_, err := fmt.Fprintln(w.out, strings.Join(fields, ","))
	return err
}

// Read reads a recording.
func Read(from io.Reader) (*Recording, error) {
	r, lines := &Recording{}, bufio.NewScanner(from)
	for number := 1; lines.Scan(); number++ {
		var err error
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "# "):
		case strings.HasPrefix(line, "#"):
			err = r.readHeader(line[1:])
		case r.Signals == nil:
			fields := strings.Split(line, ",")
			if len(fields) < 3 || fields[0] != "seconds" || fields[1] != "part" {
				err = fmt.Errorf("no list of signals: %s", line)
			} else {
				r.Signals = fields[2:]
			}
		default:
			err = r.readRow(line)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
	}
	return r, lines.Err()
}

func (r *Recording) readHeader(line string) (err error) {
	key, value, _ := strings.Cut(line, "=")
	switch key {
	case "engine":
		r.Engine = value
	case "version":
		r.Version = value
	case "machine":
		r.Machine = value
	case "began":
		r.Began, err = time.Parse(time.RFC3339, value)
	case "interval":
		r.Interval, err = time.ParseDuration(value)
	case "fault":
		parts := strings.SplitN(value, ";", 3)
		if len(parts) != 3 {
			return fmt.Errorf("no fault: %s", value)
		}
		r.Causes = append(r.Causes, Cause{Name: parts[0], Signals: strings.Split(parts[1], "+"), What: parts[2]})
	default:
		return fmt.Errorf("no such field: %s", key)
	}
	return err
}

func (r *Recording) readRow(line string) error {
	fields := strings.Split(line, ",")
	if len(fields) != len(r.Signals)+2 {
		return fmt.Errorf("%d fields instead of %d", len(fields), len(r.Signals)+2)
	}
	seconds, err := strconv.ParseFloat(fields[0], 64)
	if err != nil {
		return err
	}
	row := Row{At: time.Duration(seconds * float64(time.Second)), Part: fields[1]}
	if row.Part != Calm && row.Part != After && !slices.ContainsFunc(r.Causes, func(c Cause) bool { return c.Name == row.Part }) {
		return fmt.Errorf("no such part: %s", row.Part)
	}
	for _, field := range fields[2:] {
		value := math.NaN()
		if field != "" {
			if value, err = strconv.ParseFloat(field, 64); err != nil {
				return err
			}
		}
		row.Values = append(row.Values, value)
	}
	r.Rows = append(r.Rows, row)
	return nil
}

// Stretches are the measurements of a part, in stretches without a gap.
func (r *Recording) Stretches(part string) (stretches [][]Row) {
	within := false
	for _, row := range r.Rows {
		switch {
		case row.Part != part:
			within = false
			continue
		case !within:
			stretches = append(stretches, nil)
		}
		within = true
		last := len(stretches) - 1
		stretches[last] = append(stretches[last], row)
	}
	return stretches
}

// rateOf is what is kept of a measurement: gauges, and the rates of counters.
func rateOf(signals []anomaly.Signal, before, values []float64, elapsed time.Duration) []float64 {
	kept := slices.Clone(values)
	for i, s := range signals {
		if !s.Counter {
			continue
		}
		kept[i] = math.NaN()
		if before != nil && values[i] >= before[i] {
			kept[i] = (values[i] - before[i]) / elapsed.Seconds()
		}
	}
	return kept
}
