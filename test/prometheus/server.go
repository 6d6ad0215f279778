// Package prometheus runs Debian's Prometheus for tests: it scrapes what tests name, and
// answers queries as Grafana sends them.
package prometheus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"sigs.k8s.io/yaml"
)

// Target is what is scraped, with the labels that its series get.
type Target struct {
	// Address is host:port; metrics are at /metrics.
	Address string
	Labels  map[string]string
}

// Options of a server.
type Options struct {
	// Programs is the folder of prometheus, as `cluster programs prometheus` prints it.
	Programs string
	// Interval between scrapes, and between evaluations of the rules.
	Interval time.Duration
	// Rules is a file of rules; nothing for none.
	Rules []byte
}

// Server is a running Prometheus, which ends with its test.
type Server struct {
	API     promv1.API
	targets string
}

// startTimeout is for the server to be ready.
const startTimeout = 60 * time.Second

// Start runs a server without targets. Its data ends with the test.
func Start(t *testing.T, o Options) *Server {
	t.Helper()
	dir := t.TempDir()
	s := &Server{targets: filepath.Join(dir, "targets.json")}
	if err := s.SetTargets(nil); err != nil {
		t.Fatal(err)
	}
	config, err := writeConfiguration(dir, s.targets, o)
	if err != nil {
		t.Fatal(err)
	}
	address, err := freeAddress()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	command := exec.Command(filepath.Join(o.Programs, "prometheus"), "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address, "--log.level=warn")
	command.Stdout, command.Stderr = &log, &log
	if err := command.Start(); err != nil {
		t.Fatalf("start Prometheus: %v", err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if t.Failed() {
			t.Logf("Prometheus: %s", log.String())
		}
	})
	connection, err := api.NewClient(api.Config{Address: "http://" + address})
	if err != nil {
		t.Fatal(err)
	}
	s.API = promv1.NewAPI(connection)
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	for {
		_, err := s.API.Runtimeinfo(ctx)
		if err == nil {
			return s
		}
		select {
		case <-ctx.Done():
			t.Fatalf("Prometheus does not answer within %s: %v", startTimeout, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// freeAddress is one that nothing listens on.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

type configuration struct {
	Global struct {
		ScrapeInterval     string `json:"scrape_interval"`
		ScrapeTimeout      string `json:"scrape_timeout"`
		EvaluationInterval string `json:"evaluation_interval"`
	} `json:"global"`
	RuleFiles     []string       `json:"rule_files,omitempty"`
	ScrapeConfigs []scrapeConfig `json:"scrape_configs"`
}

type scrapeConfig struct {
	JobName     string       `json:"job_name"`
	FileConfigs []fileConfig `json:"file_sd_configs"`
}

type fileConfig struct {
	Files           []string `json:"files"`
	RefreshInterval string   `json:"refresh_interval"`
}

func writeConfiguration(dir, targets string, o Options) (string, error) {
	var c configuration
	interval := model.Duration(o.Interval).String()
	c.Global.ScrapeInterval, c.Global.ScrapeTimeout, c.Global.EvaluationInterval = interval, interval, interval
	c.ScrapeConfigs = []scrapeConfig{{JobName: "holdfast", FileConfigs: []fileConfig{{Files: []string{targets}, RefreshInterval: "1s"}}}}
	if o.Rules != nil {
		rules := filepath.Join(dir, "rules.yaml")
		if err := os.WriteFile(rules, o.Rules, 0o600); err != nil {
			return "", err
		}
		c.RuleFiles = []string{rules}
	}
	text, err := yaml.Marshal(c)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "prometheus.yaml")
	return path, os.WriteFile(path, text, 0o600)
}

// SetTargets has the server scrape these targets, and no others, from about a second later
// on.
func (s *Server) SetTargets(targets []Target) error {
	type group struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	groups := make([]group, 0, len(targets))
	for _, target := range targets {
		groups = append(groups, group{[]string{target.Address}, target.Labels})
	}
	text, err := json.Marshal(groups)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(s.targets+".new", text, 0o600), os.Rename(s.targets+".new", s.targets))
}

// Query evaluates an expression at this moment.
func (s *Server) Query(ctx context.Context, expr string) (model.Vector, error) {
	value, _, _, err := s.API.Query(ctx, expr, time.Now())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	vector, is := value.(model.Vector)
	if !is {
		return nil, fmt.Errorf("%s: is a %s", expr, value.Type())
	}
	return vector, nil
}

// FiringAlerts are the alerts that fire, by name.
func (s *Server) FiringAlerts(ctx context.Context) (map[string][]model.LabelSet, error) {
	answer, err := s.API.Alerts(ctx)
	if err != nil {
		return nil, err
	}
	firing := map[string][]model.LabelSet{}
	for _, alert := range answer.Alerts {
		if alert.State == promv1.AlertStateFiring {
			name := string(alert.Labels[model.AlertNameLabel])
			firing[name] = append(firing[name], alert.Labels)
		}
	}
	return firing, nil
}
