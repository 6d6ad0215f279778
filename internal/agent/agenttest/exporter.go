package agenttest

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Families are those of a scrape, by name.
type Families map[string]*dto.MetricFamily

// ParseScrape reads a scrape.
func ParseScrape(t *testing.T, from io.Reader) Families {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(from)
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// StartExporter runs an exporter of Debian until the test ends, and returns what scrapes it.
// The variable of the environment names the folder that `cluster programs` prints.
func StartExporter(t *testing.T, name, variable string, environment []string, arguments ...string) (scrape func() Families) {
	t.Helper()
	folder := os.Getenv(variable)
	if folder == "" {
		t.Fatalf("set %s to the folder that `cluster programs %s` prints", variable, name)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	var log bytes.Buffer
	exporter := exec.Command(folder+"/"+name, append(arguments, "--web.listen-address="+address)...)
	exporter.Env = append(os.Environ(), environment...)
	exporter.Stdout, exporter.Stderr = &log, &log
	if err := exporter.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = exporter.Process.Kill()
		_ = exporter.Wait()
		if t.Failed() {
			t.Logf("%s: %s", name, log.String())
		}
	})
	fetch := func() (*http.Response, error) { return http.Get("http://" + address + "/metrics") }
	WaitUntil(t, func() bool {
		response, err := fetch()
		return err == nil && response.Body.Close() == nil
	})
	return func() Families {
		response, err := fetch()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		return ParseScrape(t, response.Body)
	}
}

// Comparison is of what an agent exports with what an exporter does beside it.
type Comparison struct {
	// Exporter's scrape lies between two of the agent's.
	Before, Exporter, After Families
	// Prefix of the names that both have.
	Prefix string
	// SameLabels says that series have the same labels. Otherwise the exporter may have
	// more of them, and its series with the same labels of the agent's count together.
	SameLabels bool
	// Sessions is by how much a value may differ that counts what is going on: the
	// exporter and the agent have sessions of their own. By name.
	Sessions map[string]float64
}

// Compare fails the test for each family that both have whose types, labels or values do
// not agree, and returns how many series agree.
func (c Comparison) Compare(t *testing.T) (series int) {
	t.Helper()
	var alone []string
	for name, family := range c.Before {
		switch theirs := c.Exporter[name]; {
		case !strings.HasPrefix(name, c.Prefix):
		case theirs == nil:
			alone = append(alone, name)
		case family.GetType() != theirs.GetType():
			t.Errorf("%s is a %s, and the exporter's a %s", name, family.GetType(), theirs.GetType())
		default:
			for _, m := range family.GetMetric() {
				series += c.compareSeries(t, name, m)
			}
		}
	}
	slices.Sort(alone)
	t.Logf("this exporter has none of %v", alone)
	return series
}

// compareSeries returns 1 for a series of the agent's that agrees with the exporter's.
func (c Comparison) compareSeries(t *testing.T, name string, m *dto.Metric) int {
	t.Helper()
	labels, begin, moves := labelsOf(m), valueOf(m), c.Sessions[name]
	after, there := sumSeries(c.After[name], labels, true)
	if !there {
		return 0 // a session that has ended, or a state that has passed
	}
	theirs, found := sumSeries(c.Exporter[name], labels, c.SameLabels)
	switch {
	case !found:
		t.Errorf("%s%v: the exporter has no such series", name, labels)
	case theirs < min(begin, after)-moves || theirs > max(begin, after)+moves:
		t.Errorf("%s%v is %v, then %v, and the exporter's %v", name, labels, begin, after, theirs)
	default:
		return 1
	}
	return 0
}

func labelsOf(m *dto.Metric) []string {
	var labels []string
	for _, pair := range m.GetLabel() {
		labels = append(labels, pair.GetName()+"="+pair.GetValue())
	}
	return labels
}

func valueOf(m *dto.Metric) float64 {
	return m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()
}

// sumSeries adds up the series that have the labels: no others where they have to be the
// same.
func sumSeries(family *dto.MetricFamily, labels []string, same bool) (sum float64, found bool) {
	for _, m := range family.GetMetric() {
		have := labelsOf(m)
		if same && len(have) != len(labels) || slices.ContainsFunc(labels, func(l string) bool { return !slices.Contains(have, l) }) {
			continue
		}
		sum, found = sum+valueOf(m), true
	}
	return sum, found
}
