//go:build postgres

package settings

import (
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The catalogue that counts for a version says what its real server says.
func TestRealCatalogue(t *testing.T) {
	version, err := exec.Command("postgres", "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	digits := regexp.MustCompile(`\d+`).FindString(string(version))
	major, err := strconv.Atoi(digits)
	if err != nil {
		t.Fatalf("%s: %v", version, err)
	}
	described, err := exec.Command("postgres", "--describe-config").Output()
	if err != nil {
		t.Fatal(err)
	}
	catalogue, compared := ForPostgres(major), 0
	for line := range strings.Lines(string(described)) {
		columns := strings.Split(line, "\t")
		if len(columns) < 2 {
			continue
		}
		name, context := columns[0], columns[1]
		effect := catalogue.EffectOf(name)
		if effect == Unknown {
			if catalogue.Exact {
				t.Errorf("%s is in no catalogue", name)
			}
			continue
		}
		compared++
		if want := effectOfContext(context); effect != want {
			t.Errorf("%s of PostgreSQL %d has the context %s: effect %s, want %s", name, major, context, effect, want)
		}
	}
	if compared < 250 {
		t.Errorf("%d settings were compared", compared)
	}
}
