package prometheus

import (
	"fmt"
	"os"
	"time"

	"github.com/prometheus/common/model"
	"sigs.k8s.io/yaml"
)

// ReadRules returns the groups of a PrometheusRule as a file of Prometheus. The durations
// of `for` are divided, so that a test need not wait that long; every expression stays as
// it is.
func ReadRules(path string, divideFor int) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var object struct {
		Spec struct {
			Groups []struct {
				Name  string           `json:"name"`
				Rules []map[string]any `json:"rules"`
			} `json:"groups"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(data, &object); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, group := range object.Spec.Groups {
		for _, rule := range group.Rules {
			text, has := rule["for"].(string)
			if !has {
				continue
			}
			declared, err := model.ParseDuration(text)
			if err != nil {
				return nil, fmt.Errorf("%s: %v: %w", path, rule["alert"], err)
			}
			if shortened := max(time.Second, time.Duration(declared)/time.Duration(divideFor)).Round(time.Second); shortened != time.Duration(declared) {
				rule["for"] = model.Duration(shortened).String()
			}
		}
	}
	return yaml.Marshal(object.Spec)
}
